"""Columns that one chunk reads more than once: a table joined with itself on the key by which it is sorted.

A GPU keeps them decoded until the chunk ends, and reads each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hybridq.engines.cache import ColumnCache
from hybridq.engines.protocol import Engine
from hybridq.physical.pipeline import AlignedBuild, Pipeline, Stage, TableSource


@dataclass(slots=True)
class KeptColumns:
    """Which columns of tables stay decoded once a chunk has read them.

    Attributes
    ----------
    hot : mapping of str to frozenset of str
        By table, those that stay on the device from query to query.
    shared : mapping of str to frozenset of str
        Those that the chunk reads again.
    cache : ColumnCache or None
        Where these are until the chunk has read all that it will.
    """

    hot: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shared: Mapping[str, frozenset[str]] = field(default_factory=dict)
    cache: ColumnCache[Any] | None = None

    def of(self, table: str) -> tuple[frozenset[str], ColumnCache[Any] | None]:
        """Return the columns of a table that stay, and where; ``None``: where the engine keeps hot ones."""
        if table in self.hot:
            return self.hot[table], None
        return self.shared.get(table, frozenset()), self.cache

    def end(self) -> int:
        """Let the shared columns go; return the bytes in files that were not read again."""
        cache, self.cache, self.shared = self.cache, None, {}
        return 0 if cache is None else cache.release()


def kept_columns(engine: Engine, stage: Stage, hot: Mapping[str, frozenset[str]] | None) -> KeptColumns:
    """Return what stays decoded while an engine runs a chunk of a stage: on CPUs, nothing."""
    own: ColumnCache[Any] | None = getattr(engine, "cache", None)
    shared = {} if own is None else shared_columns(stage)
    return KeptColumns(hot or {}, shared, own.private() if own is not None and shared else None)


def shared_columns(stage: Stage) -> Mapping[str, frozenset[str]]:
    """Return the source columns, by table, that several of a chunk's pipelines read.

    Tables that are inlined do not count: they are small, and read with each chunk.

    Parameters
    ----------
    stage : Stage
        Without further branches.
    """
    found = Counter(
        (pipeline.source.table, column)
        for pipeline in _pipelines(stage)
        if isinstance(pipeline.source, TableSource)
        for column in {each.source for each in pipeline.source.columns}
    )
    repeated: dict[str, frozenset[str]] = {}
    for (table, column), times in found.items():
        if times > 1:
            repeated[table] = repeated.get(table, frozenset()) | {column}
    return repeated


def shares_its_source(stage: Stage) -> bool:
    """Tell whether the rows that a stage's chunks begin with are read with those of a build side."""
    source = stage.pipeline.source
    return isinstance(source, TableSource) and source.table in shared_columns(stage)


def _pipelines(stage: Stage) -> list[Pipeline]:
    aligned = [build for build in stage.builds if isinstance(build, AlignedBuild) and build.probe_column is not None]
    return [stage.pipeline, *(build.pipeline for build in aligned)]
