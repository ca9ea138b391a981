"""The type rules of scalar functions, beside DataFusion's."""

from __future__ import annotations

import itertools
import operator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq import col, scan
from hybridq.errors import HybridqError, Unsupported
from hybridq.frontend.sql import plan_sql
from hybridq.plan.function_table import PAGE, markdown
from hybridq.plan.functions import BY_SUBSTRAIT_NAME, FUNCTIONS, common_type, result_type
from hybridq.types import Field

NUMBERS = {
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "u8": pa.uint8(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "p5": pa.decimal128(5, 5),
    "p15": pa.decimal128(15, 2),
    "p38": pa.decimal128(38, 4),
    "d": pa.date32(),
    "b": pa.bool_(),
}
TABLES = {"t": tuple(Field(name, data_type) for name, data_type in NUMBERS.items())}
OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "<": operator.lt,
}
DECIMALS = st.integers(1, 38).flatmap(lambda digits: st.builds(pa.decimal128, st.just(digits), st.integers(0, digits)))


def computed(make):
    """The expression that a plan computes, or nothing if it is refused."""
    try:
        plan = make()
    except HybridqError:
        return None
    return plan.root.expressions[-1].expression


@pytest.mark.parametrize("sign", OPERATORS)
def test_operators_are_typed_as_datafusion_does(sign):
    pairs = [(left, right) for left, right in itertools.product(NUMBERS, NUMBERS) if (sign, left) != ("<", right)]
    compared = 0
    for left, right in pairs:
        sql = computed(lambda a=left, b=right: plan_sql(f"select {a} {sign} {b} as x from t", TABLES))
        ours = OPERATORS[sign](col(left), col(right))
        built = computed(lambda e=ours: scan("t").select(x=e).to_plan(TABLES))
        if built is None:
            # Where SQL compares numbers with dates, the builder wants a cast.
            assert sql is None or "d" in (left, right)
            continue
        assert built == sql, (left, right)
        assert sql.type == result_type(sql.function, tuple(argument.type for argument in sql.arguments))
        compared += 1
    assert compared > 100


@settings(max_examples=60, deadline=None)
@given(left=DECIMALS, right=DECIMALS)
def test_decimals_of_any_digits(left, right):
    tables = {"t": (Field("a", left), Field("b", right))}
    for sign, name in {"+": "add", "*": "multiply", "/": "divide", "%": "modulus"}.items():
        sql = computed(lambda s=sign: plan_sql(f"select a {s} b as x from t", tables))
        if sql is None:
            continue
        assert sql.function == name
        assert sql.type == result_type(name, (left, right))


@settings(deadline=None)
@given(left=DECIMALS, right=DECIMALS)
def test_the_common_type_of_decimals_is_symmetric_and_no_smaller(left, right):
    common = common_type(left, right)
    assert common == common_type(right, left)
    assert common.scale == max(left.scale, right.scale)
    assert common.precision <= 38


def test_common_types():
    assert common_type(pa.int8(), pa.uint8()) == pa.int16()
    assert common_type(pa.int32(), pa.float32()) == pa.float32()
    assert common_type(pa.date32(), pa.timestamp("ms")) == pa.timestamp("ms")
    assert common_type(pa.timestamp("s"), pa.timestamp("ns")) == pa.timestamp("ns")
    assert common_type(pa.timestamp("s"), pa.timestamp("s", "UTC")) is None
    assert common_type(pa.null(), pa.string()) == pa.string()
    assert common_type(pa.string(), pa.int64()) is None
    assert common_type(pa.bool_(), pa.int64()) is None


def test_what_no_function_takes_is_refused():
    with pytest.raises(Unsupported, match="the function nosuch"):
        result_type("nosuch", ())
    with pytest.raises(Unsupported, match="add with 1 arguments"):
        result_type("add", (pa.int64(),))
    with pytest.raises(Unsupported, match=r"add\(string, int64\)"):
        result_type("add", (pa.string(), pa.int64()))
    with pytest.raises(Unsupported, match="negate"):
        result_type("negate", (pa.uint8(),))
    with pytest.raises(Unsupported, match="multiply"):
        result_type("multiply", (pa.decimal128(38, 30), pa.decimal128(38, 30)))


def test_every_function_has_a_name_in_substrait():
    assert set(BY_SUBSTRAIT_NAME.values()) == {each.name for each in FUNCTIONS.values() if each.aliases}


def test_the_page_of_functions_is_up_to_date():
    assert PAGE.read_text() == markdown(), "run  python -m hybridq.plan.function_table"
