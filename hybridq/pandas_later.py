"""Keeps pyarrow from importing pandas before anybody needs it, in processes that hybridq has to itself.

The first time that pyarrow converts a list or a number it imports pandas, to know a Series when it is given one. That
takes a third of a second, in a process that may only live for one short query.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NotNow(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)
        return None


def leave_pandas_for_later() -> None:
    """Have pyarrow find that there is no pandas, unless it is imported already.

    It looks again when it is to make a pandas object. Only ``pyarrow.array`` of a Series would until then give other
    NULLs, so this is for processes in which nobody else calls pyarrow.
    """
    if "pandas" in sys.modules:
        return
    finder = _NotNow()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
