"""The functions that make final values of merged aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hybridq.engines import collecting, moments, sketches, tallies
from hybridq.engines.column import Column
from hybridq.plan.expressions import Call

FINAL_VALUES: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "moment": moments.moment,
    "comoment": moments.comoment,
    "quantile": tallies.quantile,
    "summary_bound": tallies.summary_bound,
    "estimate_distinct": sketches.estimate_distinct,
    "ordered_values": collecting.ordered_values,
    "row_value": collecting.row_value,
    "join_text": collecting.join_text,
    "aggregate_list": collecting.aggregate_list,
}
