"""Digests of texts and bytes, and bytes written as text."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping

from hybridq.engines.column import Column
from hybridq.engines.constants import constant
from hybridq.engines.text import any_null
from hybridq.engines.text_functions import each_value
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call

Data = str | bytes


def _bytes(data: Data) -> bytes:
    return data.encode() if isinstance(data, str) else data


def _digest(call: Call, arguments: list[Column]) -> Column:
    """Return a digest: bytes, and MD5's as text in base 16."""
    if any_null(arguments):
        return constant(call.type, None)
    name = call.function

    def digest(data: Data) -> Data:
        found = hashlib.new(name, _bytes(data), usedforsecurity=False)
        return found.hexdigest() if name == "md5" else found.digest()

    return each_value(digest, call, arguments)


def _encode(call: Call, arguments: list[Column]) -> Column:
    """Write bytes, or a text's in UTF-8, in base 16 or 64."""
    if any_null(arguments):
        return constant(call.type, None)
    written = bytes.hex if call.options == ("hex",) else lambda data: base64.b64encode(data).decode()
    return each_value(lambda data: written(_bytes(data)), call, arguments)


def _decode(call: Call, arguments: list[Column]) -> Column:
    """Read what ``_encode`` writes; in base 64 also without the signs that fill up the end."""
    if any_null(arguments):
        return constant(call.type, None)
    (form,) = call.options

    def read(data: Data) -> bytes:
        code = _bytes(data)
        try:
            if form == "hex":
                return binascii.unhexlify(code)
            bare = code.rstrip(b"=") if len(code) % 4 == 0 else code
            return base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise ExecutionError(f"not a text in {form}: {str(data)[:80]!r}, in {call}") from None

    return each_value(read, call, arguments)


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    **dict.fromkeys(("md5", "sha224", "sha256", "sha384", "sha512"), _digest),
    "encode": _encode, "decode": _decode,
}  # fmt: skip
