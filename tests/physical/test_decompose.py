from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from hybridq.errors import Unsupported
from hybridq.physical.decompose import decompose
from hybridq.plan.expressions import AggregateCall, Column, Literal, SortKey

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
        (AggregateCall("m", "product", PRICE, PRICE.type), "product"),
        (AggregateCall("c", "corr", PRICE, pa.float64(), True, (PRICE,)), "DISTINCT"),
    ],
)
def test_what_has_no_partial_form_is_named(call: AggregateCall, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        decompose([call])


def test_statistics_of_the_same_variables_share_their_state() -> None:
    x, y = Column(pa.float64(), "x"), Column(pa.float64(), "y")
    calls = [AggregateCall(name, name, x, pa.float64()) for name in ("var_samp", "var_pop", "stddev_samp")]
    calls += [AggregateCall(name, name, y, pa.float64(), further=(x,)) for name in ("corr", "regr_slope", "covar_pop")]
    parts = decompose(calls)
    assert [call.function for call in parts.partial] == ["moments", "comoments"]
    assert [call.function for call in parts.merge] == ["merge_moments", "merge_comoments"]


def test_aggregates_of_distinct_values_share_their_list() -> None:
    calls = [AggregateCall(name, name, PRICE, PRICE.type, distinct=True) for name in ("sum", "avg", "count")]
    parts = decompose(calls)
    assert [call.function for call in parts.partial] == ["distinct"]
    assert [str(item) for item in parts.final] == [
        "cast(aggregate_list(sum, distinct:0) as decimal128(15, 2)) AS sum",
        "average(aggregate_list(sum, distinct:0), list_length(distinct:0)) AS avg",
        "list_length(distinct:0) AS count",
    ]  # fmt: skip


def test_a_fraction_is_the_number_as_written() -> None:
    x, seven_tenths = Column(pa.float64(), "x"), Literal(pa.float64(), 0.7)
    call = AggregateCall("q", "quantile_cont", x, pa.float64(), further=(seven_tenths,))
    assert decompose([call]).final[0].expression.options == ("interpolated", "7/10")
    descending = replace(call, order=(SortKey(x, descending=True),))
    assert decompose([descending]).final[0].expression.options == ("interpolated", "3/10")
    with pytest.raises(Unsupported, match="fraction"):
        decompose([replace(call, further=(Literal(pa.float64(), 1.5),))])
