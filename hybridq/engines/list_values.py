"""Lists taken apart into their elements, and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines import comparison
from hybridq.engines.column import Column, Indices, Mask, arrow_validity, concatenate, from_arrow, to_arrow
from hybridq.engines.decimals import as_constant
from hybridq.engines.grouped import list_lengths, lists_of
from hybridq.engines.grouping import group
from hybridq.plan.expressions import Call

_SAME = Call(pa.bool_(), "is_not_distinct_from", ())


@dataclass(frozen=True)
class Lists:
    """A column of lists.

    Attributes
    ----------
    items : Column
        The elements of all lists, in order.
    lengths : array of int64
        0 for NULL.
    valid : array of bool, or None
        Which lists are not NULL; ``None``: all.
    """

    items: Column
    lengths: Indices
    valid: Mask | None

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Indices:
        """Return where the elements of each list begin."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def owners(self) -> Indices:
        """Return the list that each element is of."""
        return np.repeat(np.arange(self.rows), self.lengths)

    @cached_property
    def places(self) -> Indices:
        """Return the place of each element in its list, from 0 on."""
        return np.arange(len(self.owners)) - self.starts[self.owners]

    def chosen(self, indices: Indices, lengths: Indices) -> Lists:
        """Return lists of other lengths, made of the elements at ``indices``."""
        return Lists(self.items.take(indices), lengths, self.valid)

    def kept(self, mask: Mask) -> Lists:
        """Return the lists without some of their elements."""
        return self.chosen(np.flatnonzero(mask), np.bincount(self.owners[mask], minlength=self.rows))

    def with_valid(self, valid: Mask | None) -> Lists:
        """Return the same elements in lists of which others are NULL."""
        return Lists(self.items, self.lengths, valid)

    def same_as(self, values: Column) -> Mask:
        """Return which elements are the value of their list's row: NULL is NULL, and NaN is NaN."""
        found = comparison.KERNELS["is_not_distinct_from"](_SAME, [self.items, values.take(self.owners)])
        return np.broadcast_to(found.numbers, self.owners.shape)


def ranges(starts: Indices, lengths: Indices, step: Indices | int = 1) -> Indices:
    """Return numbers from each start on, so many of each, one range after the other.

    >>> ranges(np.array([7, 0, 3]), np.array([2, 0, 3]))
    array([7, 8, 3, 4, 5])
    """
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    steps = np.repeat(step, lengths) if isinstance(step, np.ndarray) else step
    return np.repeat(starts, lengths) + within * steps


def rows_of(arguments: Sequence[Column]) -> int:
    """Return how many rows a call has: one where all arguments are constants."""
    return max((argument.rows for argument in arguments if not argument.constant), default=1)


def lists_in(column: Column, rows: int) -> Lists:
    """Take a column of lists apart."""
    array = to_arrow(column.expand(rows))
    return Lists(from_arrow(pc.list_flatten(array)), list_lengths(array), arrow_validity(array))


def finished(column: Column, arguments: Sequence[Column]) -> Column:
    """Return a result, as a constant where all arguments are."""
    return as_constant(column) if all(argument.constant for argument in arguments) else column


def put_together(lists: Lists, call: Call, arguments: Sequence[Column]) -> Column:
    """Return lists as the result of a call.

    Raises
    ------
    ExecutionError
        They have too many elements together.
    """
    items = to_arrow(lists.items)
    if items.type != call.type.value_type:
        items = items.cast(call.type.value_type)
    return finished(lists_of(items, lists.lengths, call.type, lists.valid), arguments)


def numbers_of(column: Column, rows: int) -> tuple[Indices, Mask]:
    """Return the integers of a column, 0 for NULL, and which are not NULL."""
    expanded = column.expand(rows)
    known = np.ones(rows, np.bool_) if expanded.valid is None else expanded.valid
    numbers = expanded.numbers
    if numbers.dtype == np.uint64:  # no list has so many elements
        numbers = np.minimum(numbers, np.uint64(np.iinfo(np.int64).max))
    values = numbers.astype(np.int64)
    return np.where(known, values, 0), known


def joined(lists: Sequence[Lists]) -> Lists:
    """Put the elements of several lists a row one after the other; NULL where all are."""
    rows = lists[0].rows
    bases = np.cumsum([0, *(each.items.rows for each in lists[:-1])])
    starts = np.stack([each.starts + base for each, base in zip(lists, bases, strict=True)], axis=1)
    lengths = np.stack([each.lengths for each in lists], axis=1)
    items = concatenate([each.items.contiguous() for each in lists])
    masks = [each.valid for each in lists]
    valid = None if any(mask is None for mask in masks) else np.logical_or.reduce([m for m in masks if m is not None])
    indices = ranges(starts.ravel(), lengths.ravel())
    return Lists(items.take(indices), lengths.sum(axis=1) if rows else np.zeros(0, np.int64), valid)


def codes_of(lists: Sequence[Lists]) -> list[Indices]:
    """Number the elements of several columns of lists: equal for equal elements (also NULL) of the same row."""
    owners = np.concatenate([each.owners for each in lists])
    if len(owners) == 0:
        return [np.zeros(0, np.int64) for _ in lists]
    items = concatenate([each.items.contiguous() for each in lists])
    rows = Column(pa.int64(), owners, bounds=(0, max(lists[0].rows - 1, 0)))
    codes = group([rows, items], len(owners)).codes.astype(np.int64)
    return list(np.split(codes, np.cumsum([each.items.rows for each in lists])[:-1]))


def first_of_each(codes: Indices) -> Mask:
    """Tell which elements are the first with their number."""
    found = np.zeros(len(codes), np.bool_)
    found[np.unique(codes, return_index=True)[1]] = True
    return found
