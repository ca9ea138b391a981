"""String and mathematical functions where libcudf's are certain to give the CPU engine's answers.

Each takes the form in which queries mostly call it, on the device; another form of the same function (arguments that
vary, an empty text to search for) is computed by the CPU engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pylibcudf as plc

from hybridq.engines.gpu import device
from hybridq.engines.gpu.arithmetic import Kernel, Run
from hybridq.engines.gpu.column import Constant, GpuColumn, Operand, is_null_constant
from hybridq.engines.gpu.comparison import truth
from hybridq.plan.expressions import Call

_SIDES = {
    "trim": plc.strings.side_type.SideType.BOTH,
    "ltrim": plc.strings.side_type.SideType.LEFT,
    "rtrim": plc.strings.side_type.SideType.RIGHT,
}
_WHOLE = {
    "sqrt": plc.unary.UnaryOperator.SQRT, "floor": plc.unary.UnaryOperator.FLOOR, "ceil": plc.unary.UnaryOperator.CEIL,
}  # fmt: skip

LAST = 2**31 - 1


def _text(value: str) -> plc.Scalar:
    return device.scalar(value, device.STRING)


def _constants(operands: list[Operand]) -> list[str] | None:
    """Return the arguments after the first as texts that are not empty; ``None`` where they are not constants."""
    found = []
    for operand in operands[1:]:
        if not isinstance(operand, Constant) or not isinstance(operand.value, str):
            return None
        found.append(operand.value)
    return found


def _search(call: Call, operands: list[Operand], run: Run) -> Operand:
    """CONTAINS and ENDS_WITH."""
    column, wanted = operands[0], _constants(operands)
    if not isinstance(column, GpuColumn) or not wanted or not wanted[0]:
        return run.host(call, operands)
    find = plc.strings.find.contains if call.function == "contains" else plc.strings.find.ends_with
    return truth(find(column.data, _text(wanted[0])))


def _trim(call: Call, operands: list[Operand], run: Run) -> Operand:
    column, given = operands[0], _constants(operands)
    if not isinstance(column, GpuColumn) or given is None or given == [""]:
        return run.host(call, operands)
    characters = given[0] if given else " "
    return GpuColumn(call.type, plc.strings.strip.strip(column.data, _SIDES[call.function], _text(characters)))


def _replace(call: Call, operands: list[Operand], run: Run) -> Operand:
    column, given = operands[0], _constants(operands)
    if not isinstance(column, GpuColumn) or not given or not given[0]:
        return run.host(call, operands)
    return GpuColumn(call.type, plc.strings.replace.replace(column.data, _text(given[0]), _text(given[1])))


def _left(call: Call, operands: list[Operand], run: Run) -> Operand:
    column, count = operands
    if not isinstance(column, GpuColumn) or not isinstance(count, Constant) or int(count.value) < 0:
        return run.host(call, operands)
    first, stop, step = (device.scalar(place, device.INT32) for place in (0, min(int(count.value), LAST), 1))
    return GpuColumn(call.type, plc.strings.slice.slice_strings(column.data, first, stop, step))


def _reverse(call: Call, operands: list[Operand], run: Run) -> Operand:
    (column,) = operands
    assert isinstance(column, GpuColumn)
    return GpuColumn(call.type, plc.strings.reverse.reverse(column.data))


def _octet_length(call: Call, operands: list[Operand], run: Run) -> Operand:
    (column,) = operands
    assert isinstance(column, GpuColumn)
    lengths = plc.strings.attributes.count_bytes(column.data)
    return GpuColumn(call.type, device.cast(lengths, device.physical(call.type)))


def _whole(call: Call, operands: list[Operand], run: Run) -> Operand:
    """SQRT, FLOOR and CEIL of doubles, which IEEE defines to the last bit."""
    (column,) = operands
    if not isinstance(column, GpuColumn) or column.type != pa.float64() or call.type != pa.float64():
        return run.host(call, operands)
    return GpuColumn(call.type, plc.unary.unary_operation(column.data, _WHOLE[call.function]))


def _is_nan(call: Call, operands: list[Operand], run: Run) -> Operand:
    (column,) = operands
    assert isinstance(column, GpuColumn)
    found = plc.unary.is_nan(column.data)
    return truth(device.with_nulls(found, device.is_valid(column.data)) if column.nulls else found)


def _null_for_null(kernel: Kernel) -> Kernel:
    """Give NULL where an argument is the constant NULL."""

    def checked(call: Call, operands: list[Operand], run: Run) -> Operand:
        if any(is_null_constant(operand) for operand in operands):
            return Constant(call.type, None)
        return kernel(call, operands, run)

    return checked


_PLAIN: Mapping[str, Callable[[Call, list[Operand], Run], Operand]] = {
    "contains": _search, "ends_with": _search, "trim": _trim, "ltrim": _trim, "rtrim": _trim, "replace": _replace,
    "left": _left, "reverse": _reverse, "octet_length": _octet_length, "is_nan": _is_nan,
    **dict.fromkeys(_WHOLE, _whole),
}  # fmt: skip

KERNELS: Mapping[str, Kernel] = {name: _null_for_null(kernel) for name, kernel in _PLAIN.items()}
