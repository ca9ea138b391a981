"""The files that make connections to a cluster encrypted and mutually authenticated (TLS)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hybridq.errors import ConfigurationError

KEYS = ("ca", "certificate", "key")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one party. Client, scheduler and workers trust what the same authority has signed.

    Attributes
    ----------
    ca : str
        Certificate of the authority.
    certificate, key : str
        This party's certificate, and its private key.
    """

    ca: str
    certificate: str
    key: str

    def to_dict(self) -> dict[str, str]:
        """Return plain data."""
        return asdict(self)


def tls_files(data: Any, where: str, folder: str | os.PathLike[str] = ".") -> TlsFiles:
    """Read and check a description of TLS files.

    Parameters
    ----------
    data : mapping or TlsFiles
        The paths, as ``ca``, ``certificate`` and ``key``.
    where : str
        What errors call the description.
    folder : path
        What relative paths start from.

    Raises
    ------
    ConfigurationError
        A key is missing or unknown, or a file cannot be read; the message names it.
    """
    if isinstance(data, TlsFiles):
        return data
    if not isinstance(data, Mapping) or set(data) != set(KEYS):
        found = ", ".join(map(str, data)) if isinstance(data, Mapping) else repr(data)
        raise ConfigurationError(f"{where}: expected the keys {', '.join(KEYS)} with paths of PEM files, not {found}")
    paths = {}
    for name in KEYS:
        if not isinstance(data[name], (str, os.PathLike)) or "\0" in os.fspath(data[name]):
            raise ConfigurationError(f"{where}: {name} must be the path of a PEM file, not {data[name]!r}")
        path = Path(folder) / Path(data[name]).expanduser()
        try:
            with path.open("rb") as file:
                begins = file.read(11)
        except OSError as error:
            raise ConfigurationError(f"{where}: cannot read {name} {path}: {error.strerror}") from None
        if not begins.startswith(b"-----BEGIN "):
            raise ConfigurationError(f"{where}: {name} {path} is no PEM file")
        paths[name] = str(path.absolute())
    return TlsFiles(**paths)
