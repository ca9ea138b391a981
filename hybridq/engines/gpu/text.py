"""String functions, on code points."""

from __future__ import annotations

from collections.abc import Mapping

import pylibcudf as plc

from hybridq.engines.gpu import device
from hybridq.engines.gpu.arithmetic import Kernel, Run
from hybridq.engines.gpu.column import Constant, GpuColumn, Operand, is_null_constant
from hybridq.engines.gpu.comparison import truth
from hybridq.engines.text import ANY_TEXT, DEFAULT_ESCAPE, parse_pattern
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call

LAST = 2**31 - 1
ESCAPE = "\\"


def _any_null(operands: list[Operand]) -> bool:
    return any(is_null_constant(operand) for operand in operands)


def _text(value: str) -> plc.Scalar:
    return device.scalar(value, device.STRING)


def matched(data: plc.Column, parts: list[object]) -> plc.Column:
    """Match strings with a parsed LIKE pattern; NULL where the string is NULL."""
    shape = tuple("text" if isinstance(part, str) else part for part in parts)
    if not parts:
        return device.compare("equal", data, _text(""))
    if shape == (ANY_TEXT,):
        return device.compare("equal", data, data)
    if shape == ("text",):
        return device.compare("equal", data, _text(str(parts[0])))
    if shape == ("text", ANY_TEXT):
        return plc.strings.find.starts_with(data, _text(str(parts[0])))
    if shape == (ANY_TEXT, "text"):
        return plc.strings.find.ends_with(data, _text(str(parts[1])))
    if shape == (ANY_TEXT, "text", ANY_TEXT):
        return plc.strings.find.contains(data, _text(str(parts[1])))
    pattern = "".join("%" if part is ANY_TEXT else _quoted(part) if isinstance(part, str) else "_" for part in parts)
    return plc.strings.contains.like(data, pattern, ESCAPE)


def _quoted(literal: str) -> str:
    return "".join(ESCAPE + character if character in f"%_{ESCAPE}" else character for character in literal)


def _like(call: Call, operands: list[Operand], run: Run) -> Operand:
    if _any_null(operands):
        return Constant(call.type, None)
    column, pattern = operands
    if call.function == "ilike" or not isinstance(column, GpuColumn) or not isinstance(pattern, Constant):
        return run.host(call, operands)
    escape = call.options[1] if call.options[:1] == ("escape",) else DEFAULT_ESCAPE
    return truth(matched(column.data, parse_pattern(pattern.value, escape)))


def _starts_with(call: Call, operands: list[Operand], run: Run) -> Operand:
    if _any_null(operands):
        return Constant(call.type, None)
    column, prefix = operands
    if not isinstance(column, GpuColumn):
        return run.host(call, operands)
    target = _text(prefix.value) if isinstance(prefix, Constant) else prefix.data
    return truth(plc.strings.find.starts_with(column.data, target))


def _substring(call: Call, operands: list[Operand], run: Run) -> Operand:
    """SUBSTRING(text, start[, length]): positions count characters from 1 and may lie outside of the text."""
    if _any_null(operands):
        return Constant(call.type, None)
    column, *where = operands
    if not isinstance(column, GpuColumn) or not all(isinstance(place, Constant) for place in where):
        return run.host(call, operands)
    start, *length = (int(place.value) for place in where if isinstance(place, Constant))
    stop = LAST
    if length:
        if length[0] < 0:
            raise ExecutionError(f"substring of negative length {length[0]}: the third argument must not be below 0")
        stop = min(max(start - 1 + length[0], 0), LAST)
    first = min(max(start - 1, 0), stop)
    one = device.scalar(1, device.INT32)
    bounds = [device.scalar(place, device.INT32) for place in (first, stop)]
    return GpuColumn(call.type, plc.strings.slice.slice_strings(column.data, bounds[0], bounds[1], one))


def _length(call: Call, operands: list[Operand], run: Run) -> Operand:
    (column,) = operands
    assert isinstance(column, GpuColumn)
    lengths = plc.strings.attributes.count_characters(column.data)
    return GpuColumn(call.type, device.cast(lengths, device.physical(call.type)))


def _is_ascii(data: plc.Column) -> bool:
    """Tell whether every character takes one byte."""
    longer = device.compare(
        "not_equal", plc.strings.attributes.count_bytes(data), plc.strings.attributes.count_characters(data)
    )
    return not device.any_true(longer)


def _change_case(call: Call, operands: list[Operand], run: Run) -> Operand:
    (column,) = operands
    assert isinstance(column, GpuColumn)
    if not _is_ascii(column.data):
        # Arrow maps one character to one; libcudf knows other special cases.
        return run.host(call, operands)
    change = plc.strings.case.to_upper if call.function == "upper" else plc.strings.case.to_lower
    return GpuColumn(call.type, change(column.data))


def _concat(call: Call, operands: list[Operand], run: Run) -> Operand:
    """Join strings; NULL if one is."""
    if _any_null(operands):
        return Constant(call.type, None)
    parts = [operand.expanded(run.rows).data if isinstance(operand, Constant) else operand.data for operand in operands]
    # Without a NULL for NULLs, pylibcudf puts an empty string in their place.
    missing = device.scalar(None, device.STRING)
    return GpuColumn(call.type, plc.strings.combine.concatenate(plc.Table(parts), _text(""), missing))


KERNELS: Mapping[str, Kernel] = {
    "like": _like, "ilike": _like, "starts_with": _starts_with, "substring": _substring, "length": _length,
    "upper": _change_case, "lower": _change_case, "concat": _concat,
}  # fmt: skip
