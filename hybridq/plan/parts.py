"""What the dataclasses of plans and stages consist of, however they are nested."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

_KNOWN: dict[type, tuple[str, ...] | None] = {}


def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields, in order; ``None`` where a class is no dataclass.

    ``dataclasses.fields`` makes its answer anew each time, and planning a query asks some thousand times.
    """
    if kind not in _KNOWN:
        _KNOWN[kind] = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None
    return _KNOWN[kind]
