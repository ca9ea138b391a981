"""Stages that compute the same are one: its output is read wherever it is needed, under the names wanted there.

A common table expression that is used twice, or a subquery over the same joins as the query around it, comes from the
front end as two copies whose columns have different names. Stages are compared without regard to names: names, build
sides and subqueries are replaced by numbers in the order in which they appear.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.pipeline import (
    AlignedBuild,
    BroadcastBuild,
    CarriedWindowStep,
    CollectSink,
    FinishStep,
    PartitionedBuild,
    PartitionSource,
    Pipeline,
    ProbeStep,
    RangeSource,
    Stage,
    StageSource,
)
from hybridq.plan.expressions import Literal, SubqueryValue
from hybridq.plan.parts import field_names
from hybridq.types import Field, Schema

NAMED = frozenset({"name", "mark", "output", "keys", "groups", "split_keys", "witness", "lists", "ordinality"})
"""Attributes of the parts of a stage whose texts are names of columns."""


class SharedStages:
    """The stages of a plan so far, by what they compute."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, Schema, tuple[int, ...]]] = {}

    def find(self, stage: Stage) -> Stage | int:
        """Look for a stage that computes the same, or the same up to some finishing steps; if there is none, note this.

        Parameters
        ----------
        stage : Stage
            A new one, whose id is the next one.

        Returns
        -------
        Stage or int
            The id of an equal stage, whose output has other names perhaps and the same order; or the stage to run: the
            one given, or one that does what is left to do with an earlier stage's output.
        """
        comparison = _Comparison(dict(stage.subqueries))
        try:
            begin = comparison.form((stage.pipeline, stage.builds, stage.merge, stage.early_stop, stage.more))
            steps = [comparison.form(step) for step in stage.finish]
            order = tuple(comparison.number(item.name) for item in stage.schema)
        except _NotComparable:
            return stage
        if stage.values is not None:
            return stage
        whole = (begin, tuple(steps), order)
        if whole in self._known:
            return self._known[whole][0]
        self._known[whole] = (stage.id, stage.schema, order)
        self._known.setdefault((begin, tuple(steps)), (stage.id, stage.schema, order))
        for count in reversed(range(len(steps))):
            known = self._known.get((begin, tuple(steps[:count])))
            if known is not None:
                earlier, schema, numbers = known
                renamed = tuple(Field(comparison.names[n], item.type) for n, item in zip(numbers, schema, strict=True))
                return _rest(stage, earlier, renamed, stage.finish[count:])
        return stage


def _rest(stage: Stage, earlier: int, schema: Schema, finish: tuple[FinishStep, ...]) -> Stage:
    """Return a stage that takes the output of an earlier one through the finishing steps that are left."""
    source = StageSource(earlier, schema, tuple(item.name for item in schema))
    pipeline = Pipeline(source, (), CollectSink(schema))
    words = stage.title.split(", ")
    return replace(
        stage,
        pipeline=pipeline,
        builds=(),
        merge=ConcatenateMerge(schema),
        finish=finish,
        input_rows=0,
        title=", ".join([f"read stage {earlier}", "collect", *(word for word in words if word in _FINISHING)]),
        early_stop=None,
        more=(),
    )


_FINISHING = ("sort", "limit", "window")


_BUILD_IDS: Mapping[type, str] = {
    ProbeStep: "build",
    CarriedWindowStep: "build",
    BroadcastBuild: "id",
    AlignedBuild: "id",
    PartitionedBuild: "id",
    PartitionSource: "id",
    RangeSource: "id",
}
"""The attribute of each part of a stage that is the number of a build side."""


class _NotComparable(Exception):
    """A stage holds something that is only equal to itself, such as a constant table."""


@dataclass(slots=True)
class _Comparison:
    """Numbers for the names, build sides and subqueries of one stage, in the order in which they appear.

    Attributes
    ----------
    subqueries : mapping of int to int
        The stage that gives each subquery's value.
    names : list of str
        By number.
    """

    subqueries: Mapping[int, int]
    names: list[str]
    _numbers: dict[str, int]
    _builds: dict[int, int]

    def __init__(self, subqueries: Mapping[int, int]) -> None:
        self.subqueries = subqueries
        self.names = []
        self._numbers = {}
        self._builds = {}

    def number(self, name: str) -> int:
        """Return a name's number."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def form(self, part: Any, named: bool = False) -> Hashable:
        """Return what a part of a stage is but for names; ``named``: texts in it are names of columns.

        Raises
        ------
        _NotComparable
        """
        if isinstance(part, tuple):
            return tuple(self.form(item, named) for item in part)
        if isinstance(part, str):
            return ("name", self.number(part)) if named else part
        if isinstance(part, Literal):
            return "literal", part.type, repr(part.value)  # 0.0 and -0.0 are equal, and not the same
        if isinstance(part, SubqueryValue):
            return "subquery", part.type, self.subqueries[part.number]
        if (attributes := field_names(type(part))) is not None:
            found: list[Hashable] = [type(part).__name__]
            build_id = _BUILD_IDS.get(type(part))
            for name in attributes:
                value = getattr(part, name)
                if name == build_id:
                    value = self._builds.setdefault(value, len(self._builds))
                found.append(self.form(value, name in NAMED))
            return tuple(found)
        if part is None or isinstance(part, bool | int | pa.DataType):
            return type(part).__name__, part
        raise _NotComparable
