"""What a session asks GPUs to keep: checks ``Session.cache``."""

from __future__ import annotations

from collections.abc import Sequence

from hybridq.catalog import ParquetUnit, Table
from hybridq.config import HotColumns
from hybridq.errors import RequestError, UnknownColumn
from hybridq.storage import is_url


def with_columns(
    hot: HotColumns | None, table: Table, columns: Sequence[str] | None, device: str, limit: int | None
) -> HotColumns:
    """Return what is to be kept when a table's columns are added, in place of those named before.

    Parameters
    ----------
    hot : HotColumns or None
        What is kept so far.
    table : Table
    columns : sequence of str or None
        ``None``: all of them.
    device : str
    limit : int or None
        Bytes on each GPU; ``None``: as before.

    Raises
    ------
    RequestError
        The device is no GPU, the limit is not positive, or the table is in memory or remote.
    UnknownColumn
        The table has no such column.
    """
    if device != "gpu":
        raise RequestError(f"columns can be cached on the gpu only, not on {device!r}")
    if limit is not None and limit <= 0:
        raise RequestError(f"the limit of cached columns must be above 0 bytes, not {limit}")
    if isinstance(columns, str):
        raise RequestError(f"columns must be a list of names, not the text {columns!r}")
    names = [field.name for field in table.schema]
    for column in columns or ():
        if column not in names:
            raise UnknownColumn(f"table {table.name!r} has no column {column!r}: it has {', '.join(names)}")
    if not all(isinstance(unit, ParquetUnit) and not is_url(unit.path) for unit in table.units):
        raise RequestError(f"columns of {table.name!r} cannot be cached, for it is not in local Parquet files")
    hot = hot or HotColumns()
    wanted = {**hot.columns, table.name: frozenset(names if columns is None else columns)}
    kept = {name: chosen for name, chosen in wanted.items() if chosen}
    return HotColumns(kept, hot.limit if limit is None else limit)
