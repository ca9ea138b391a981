"""Substrait's window functions as window calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.frontend.coercion import cast_to
from hybridq.frontend.window_details import WindowDetail
from hybridq.plan.expressions import AggregateCall, Expression, Literal, SortKey
from hybridq.plan.windows import CURRENT, END, PICKS, RANKS, SHIFTS, START, WHOLE, Bound, Frame, WindowCall
from hybridq.types import is_decimal, is_floating, is_integer

_UNITS = {1: "rows", 2: "range"}
_RANK_TYPES = {"percent_rank": pa.float64(), "cume_dist": pa.float64()}
MOST_TILES = 2**63 - 1


def frame_of(message: Any) -> Frame:
    """Convert the frame of a ``substrait.Expression.WindowFunction``.

    Raises
    ------
    Unsupported
        Its bounds are of no kind.
    """
    start, end = _bound(message.lower_bound, START), _bound(message.upper_bound, END)
    if message.bounds_type not in _UNITS:
        if (start, end) == (START, END):
            return WHOLE
        raise Unsupported("a window frame that is neither of ROWS nor of RANGE is not supported")
    return Frame("rows" if _UNITS[message.bounds_type] == "rows" else "range", start, end)


def _bound(message: Any, unbounded: Bound) -> Bound:
    kind = message.WhichOneof("kind")
    if kind in (None, "unbounded"):
        return unbounded
    if kind == "current_row":
        return CURRENT
    return Bound("preceding" if kind == "preceding" else "following", int(getattr(message, kind).offset))


def window_call(
    function: str,
    arguments: Sequence[Expression],
    aggregate: AggregateCall | None,
    partition: tuple[Expression, ...],
    order: tuple[SortKey, ...],
    frame: Frame,
    detail: WindowDetail | None,
) -> WindowCall:
    """Return a window call, checked, with all its arguments.

    Parameters
    ----------
    function : str
        As the plan calls it, in lower case.
    arguments : sequence of Expression
        As in the plan.
    aggregate : AggregateCall or None
        What the function is, if it is an aggregate.
    partition, order, frame
        The window, as the plan has it.
    detail : WindowDetail or None
        What the plan could not say.

    Raises
    ------
    Unsupported, PlanFormatError
    """
    ignore_nulls = False
    if detail is not None:
        frame, ignore_nulls = detail.frame, detail.ignore_nulls
    if ignore_nulls and function not in SHIFTS | PICKS:
        raise Unsupported(f"IGNORE NULLS is not supported for {function}: lag, lead, and first_, last_ and nth_value")
    if function in RANKS | SHIFTS:
        frame = WHOLE
    _check_frame(frame, order)
    if aggregate is not None:
        return WindowCall("", "aggregate", (), aggregate.type, partition, order, frame, aggregate=aggregate)
    if function in RANKS:
        data_type, given = _RANK_TYPES.get(function, pa.uint64()), _rank_arguments(function, arguments)
    elif function in SHIFTS:
        given = _shift_arguments(function, arguments)
        data_type = given[0].type
    elif function in PICKS:
        given = _pick_arguments(function, arguments)
        data_type = given[0].type
    else:
        raise Unsupported(f"the window function {function} is not supported")
    return WindowCall("", function, given, data_type, partition, order, frame, ignore_nulls)


def _check_frame(frame: Frame, order: Sequence[SortKey]) -> None:
    """Check that a frame can be computed.

    Raises
    ------
    Unsupported
    """
    offsets = [bound.offset for bound in (frame.start, frame.end) if bound.offset is not None]
    if frame.start == END or frame.end == START:
        raise PlanFormatError(f"the plan has a window frame that ends before it begins: {frame}")
    if frame.unit != "range" or not offsets:
        return
    if len(order) != 1:
        raise Unsupported(f"RANGE with an offset needs exactly one sort key: {frame}")
    data_type = order[0].expression.type
    numeric = is_integer(data_type) or is_decimal(data_type) or is_floating(data_type)
    temporal = pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)
    for offset in offsets:
        is_number = isinstance(offset, int | float) or type(offset).__name__ == "Decimal"
        if not (numeric if is_number else temporal):
            raise Unsupported(f"RANGE with the offset {offset} over values of type {data_type} is not supported")


def _rank_arguments(function: str, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    if function != "ntile":
        if arguments:
            raise Unsupported(f"{function} takes no argument")
        return ()
    if len(arguments) != 1:
        raise Unsupported("ntile takes one argument")
    return (_positive(function, arguments[0]),)


def _positive(function: str, argument: Expression) -> Literal:
    """Check that an argument is a constant from 1 on."""
    value = argument.value if isinstance(argument, Literal) and is_integer(argument.type) else None
    if value is None or not 1 <= value <= MOST_TILES:
        raise Unsupported(f"{function} takes a constant of 1 or more, not {argument}")
    return Literal(pa.int64(), int(value))


def _shift_arguments(function: str, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    if not 1 <= len(arguments) <= 3:
        raise Unsupported(f"{function} takes one to three arguments")
    value = arguments[0]
    distance: Expression = Literal(pa.int64(), 1) if len(arguments) < 2 else arguments[1]
    if isinstance(distance, Literal) and distance.value is None:
        distance = Literal(pa.int64(), None)
    if not is_integer(distance.type):
        raise Unsupported(f"{function} takes a whole number of rows, not {distance}")
    default: Expression = Literal(value.type, None) if len(arguments) < 3 else cast_to(arguments[2], value.type)
    return value, cast_to(distance, pa.int64()), default


def _pick_arguments(function: str, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    wanted = 2 if function == "nth_value" else 1
    if len(arguments) != wanted:
        raise Unsupported(f"{function} takes {wanted} argument{'s' if wanted > 1 else ''}")
    if wanted == 1:
        return (arguments[0],)
    return arguments[0], _positive(function, arguments[1])
