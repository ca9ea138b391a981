"""Columns that have one value in each file: what the names of a table's folders say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.column import storage_dtype
from hybridq.engines.constants import stored
from hybridq.engines.footer import footer_at
from hybridq.engines.pages import Decoded
from hybridq.engines.protocol import FileConstant
from hybridq.storage import stamp


def rows_by_file(files: Sequence[tuple[str, Sequence[int]]]) -> list[int]:
    """Return how many rows some row groups have, of each of some local files."""
    return [sum(footer_at(stamp(path)).rows[group] for group in groups) for path, groups in files]


def constant_array(constant: FileConstant, rows: Sequence[int]) -> pa.Array:
    """Return a column for all files, one below the other; strings as a dictionary.

    Parameters
    ----------
    constant : FileConstant
    rows : sequence of int
        Rows of each file.

    >>> year = FileConstant("year", "year", pa.int64(), (2020, None))
    >>> constant_array(year, [1, 2]).to_pylist()
    [2020, None, None]
    """
    values = pa.array(constant.values, constant.type)
    files = pa.array(np.repeat(np.arange(len(rows)), rows))
    if not types.is_string(constant.type):
        return values.take(files)
    encoded = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(files), encoded.dictionary)


def constant_chunk(constant: FileConstant, file: int, rows: int) -> Decoded:
    """Return what the column is in a row group of one file, as if it were a column chunk with a dictionary of one."""
    value = constant.values[file]
    codes, valid = np.zeros(rows, np.int32), None if value is not None else np.zeros(rows, np.bool_)
    dtype = storage_dtype(constant.type)
    if dtype is None:
        return Decoded(codes, None, valid, pa.array(["" if value is None else value], pa.string()))
    return Decoded(codes, np.array([0 if value is None else stored(constant.type, value)], dtype), valid)
