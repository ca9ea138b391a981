from __future__ import annotations

import pyarrow as pa
import pytest

from hybridq.errors import Unsupported
from hybridq.physical.decompose import decompose
from hybridq.plan.expressions import AggregateCall, Column

PRICE = Column(pa.decimal128(15, 2), "price")
COUNT = pa.int64()


def test_equal_partials_are_computed_once() -> None:
    parts = decompose(
        [
            AggregateCall("total", "sum", PRICE, pa.decimal128(38, 2)),
            AggregateCall("mean", "avg", PRICE, pa.decimal128(19, 6)),
            AggregateCall("n", "count", PRICE, COUNT),
            AggregateCall("rows", "count", None, COUNT),
        ]
    )
    assert [(call.function, call.argument) for call in parts.partial] == [
        ("sum", PRICE),
        ("count", PRICE),
        ("count", None),
    ]
    assert [call.name for call in parts.merge] == [call.name for call in parts.partial]
    assert [item.name for item in parts.final] == ["total", "mean", "n", "rows"]


def test_integer_sums_are_partial_in_decimals_and_final_in_integers() -> None:
    parts = decompose([AggregateCall("s", "sum", Column(pa.int32(), "x"), pa.int64())])
    assert parts.partial[0].type == pa.decimal128(38, 0)
    assert parts.final[0].expression.type == pa.int64()


def test_count_distinct_merges_lists() -> None:
    parts = decompose([AggregateCall("d", "count", Column(pa.string(), "x"), COUNT, distinct=True)])
    assert (parts.partial[0].function, parts.partial[0].type) == ("distinct", pa.list_(pa.string()))
    assert parts.merge[0].function == "union"
    assert str(parts.final[0]) == "list_length(distinct:0) AS d"


def test_counts_are_merged_by_sum_and_never_null() -> None:
    parts = decompose([AggregateCall("n", "count", None, COUNT)])
    assert parts.merge[0].function == "sum"
    assert str(parts.final[0].expression) == "coalesce(count:0, 0)"


@pytest.mark.parametrize("distinct", [True, False])
def test_min_ignores_distinct(distinct: bool) -> None:
    parts = decompose([AggregateCall("m", "min", PRICE, PRICE.type, distinct=distinct)])
    assert parts.partial[0].function == "min"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (AggregateCall("m", "median", PRICE, PRICE.type), "median"),
        (AggregateCall("s", "sum", PRICE, pa.decimal128(38, 2), distinct=True), "DISTINCT"),
    ],
)
def test_what_has_no_partial_form_is_named(call: AggregateCall, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        decompose([call])
