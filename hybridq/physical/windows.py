"""Window functions as engines compute them: aggregates over frames in partial form, and what is made of them.

Where their input is too large for one worker, its rows are split by what windows are partitioned by. Windows that are
partitioned by different things are computed one after the other, with a split before each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hybridq.config import Config
from hybridq.physical import fragments
from hybridq.physical.decompose import decompose
from hybridq.physical.fragments import OpenPipeline, OpenUnion, PendingSplit
from hybridq.physical.partitions import WINDOW_SIZE, partitions_for
from hybridq.physical.pipeline import ProbeStep, ProjectStep, UnnestStep, WindowStep
from hybridq.plan.expressions import Column, Expression, NamedExpression, substitute
from hybridq.plan.nodes import Project, Window
from hybridq.plan.windows import WindowCall, columns_of_window
from hybridq.types import Field, is_splittable

DIRECT = frozenset({"sum", "count", "min", "max"})
"""Aggregates that are computed over a frame in one piece."""


def decompose_windows(calls: Sequence[WindowCall]) -> tuple[tuple[WindowCall, ...], tuple[NamedExpression, ...]]:
    """Split aggregates over frames as those over groups are split, but for those that need no other form.

    Parameters
    ----------
    calls : sequence of WindowCall
        As in the plan.

    Returns
    -------
    tuple of WindowCall
        What is computed over the frames; equal calls appear once.
    tuple of NamedExpression
        The calls themselves, over those columns.

    Raises
    ------
    Unsupported
        An aggregate has no partial form; the message names it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from hybridq.plan.expressions import AggregateCall
    >>> mean = AggregateCall("", "avg", Column(pa.int64(), "x"), pa.float64())
    >>> partial, final = decompose_windows([WindowCall("mean", "aggregate", (), pa.float64(), (), (), aggregate=mean)])
    >>> [call.text for call in partial]
    ['sum(x) OVER ()', 'count(x) OVER ()']
    >>> [str(item) for item in final]
    ['average(window:0, window:1) AS mean']
    """
    names: dict[WindowCall, str] = {}

    def column(call: WindowCall) -> Column:
        return Column(call.type, names.setdefault(call.renamed(""), f"window:{len(names)}"))

    final: list[NamedExpression] = []
    for call in calls:
        aggregate = call.aggregate
        if aggregate is None or (aggregate.function in DIRECT and not aggregate.distinct and not aggregate.further):
            final.append(NamedExpression(call.name, column(call)))
            continue
        parts = decompose([replace(aggregate, name=call.name)])
        values: dict[str, Expression] = {
            partial.name: column(replace(call, type=partial.type, aggregate=replace(partial, name="")))
            for partial in parts.partial
        }
        (item,) = parts.final
        final.append(NamedExpression(call.name, substitute(item.expression, values)))
    return tuple(call.renamed(name) for call, name in names.items()), tuple(final)


def united(node: Window) -> Window:
    """Return one node for windows over windows, as far as they do not depend on each other.

    Front ends make a node of their own for each order of rows. The node may have columns that only windows below read.
    """
    while True:
        below = node.input
        if isinstance(below, Project) and all(_passes_on(item) for item in below.expressions):
            below = below.input
        if not isinstance(below, Window):
            return node
        made = {call.name for call in below.calls}
        if any(made & columns_of_window(call) for call in node.calls):
            return node
        node = Window(below.input, below.calls + node.calls)


def _passes_on(item: NamedExpression) -> bool:
    return isinstance(item.expression, Column) and item.expression.name == item.name


def by_split_keys(calls: Sequence[WindowCall]) -> list[tuple[tuple[Expression, ...], tuple[WindowCall, ...]]]:
    """Group window functions by what rows can be split by for them.

    Parameters
    ----------
    calls : sequence of WindowCall

    Returns
    -------
    list of (keys, calls)
        All of these calls are partitioned by the keys, at least one of them by nothing more. Those that need all rows
        in one place come last, without keys.

    Examples
    --------
    >>> import pyarrow as pa
    >>> a, b, c = (Column(pa.int64(), name) for name in "abc")
    >>> made = [WindowCall(str(n), "rank", (), pa.uint64(), by, ()) for n, by in enumerate([(a, b), (c,), (b,), ()])]
    >>> [([str(key) for key in keys], [call.name for call in found]) for keys, found in by_split_keys(made)]
    [(['b'], ['0', '2']), (['c'], ['1']), ([], ['3'])]
    """
    usable = {call: tuple(dict.fromkeys(key for key in call.partition if is_splittable(key.type))) for call in calls}
    found: dict[tuple[Expression, ...], list[WindowCall]] = {}
    for call in sorted(calls, key=lambda each: len(usable[each])):
        keys = next((known for known in found if known and set(known) <= set(usable[call])), usable[call])
        found.setdefault(keys, []).append(call)
    order = {call: place for place, call in enumerate(calls)}
    groups = [(keys, tuple(sorted(members, key=order.__getitem__))) for keys, members in found.items()]
    return sorted(groups, key=lambda group: (not group[0], order[group[1][0]]))


def split_by_partition(
    inner: OpenPipeline | OpenUnion,
    keys: tuple[Expression, ...],
    calls: Sequence[WindowCall],
    identifier: int,
    config: Config,
) -> OpenPipeline:
    """Return window functions as steps of a pipeline whose chunks have all rows of any partition that they have.

    Parameters
    ----------
    inner : OpenPipeline or OpenUnion
        Gives their input.
    keys : tuple of Expression
        Every call is partitioned by these, and maybe more.
    calls : sequence of WindowCall
    identifier : int
        See ``hybridq.physical.fragments.PendingSplit``.
    config : Config
    """
    schema, rows, size = inner.schema, inner.rows, inner.bytes
    if isinstance(inner, OpenPipeline) and _is_split_by(inner, keys):
        found = inner
    else:
        names = fragments.with_key_columns(inner, keys)
        source = PendingSplit(inner, names, partitions_for(WINDOW_SIZE * size, config), windows=identifier)
        found = OpenPipeline(source, inner.schema, rows, size)
    partial, final = decompose_windows(calls)
    found.steps += [WindowStep(partial), ProjectStep(fragments.identity(schema) + final)]
    found.schema = schema + tuple(Field(call.name, call.type) for call in calls)
    return found


def _is_split_by(pipeline: OpenPipeline, keys: tuple[Expression, ...]) -> bool:
    """Tell whether all rows that are equal on some keys are in one frame of a pipeline as it is."""
    if not isinstance(pipeline.source, PendingSplit) or not pipeline.source.whole:
        return False
    if any(isinstance(step, ProbeStep | UnnestStep) for step in pipeline.steps):  # it may give rows piece by piece
        return False
    return pipeline.split_columns(keys, range(len(keys))) is not None
