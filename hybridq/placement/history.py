"""How fast each kind of device ran a stage before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from hybridq.physical.pipeline import Stage
from hybridq.topology import Kind

CAPACITY = 1000
"""Stages that are remembered at most; the one noted longest ago is forgotten first."""


class RateHistory:
    """Seconds a row of one slot of each kind of device, by what a stage does. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, dict[Kind, float]] = OrderedDict()

    def known(self, stage: Stage) -> Mapping[Kind, float]:
        """Return seconds a row by kind, of the last run of the same pipeline; kinds that never ran it are left out."""
        with self._lock:
            return dict(self._known.get(_work(stage), {}))

    def note(self, stage: Stage, rates: Mapping[Kind, float]) -> None:
        """Remember what was measured, in place of what was known of the same kinds."""
        work = _work(stage)
        with self._lock:
            self._known[work] = {**self._known.pop(work, {}), **rates}
            while len(self._known) > CAPACITY:
                self._known.popitem(last=False)


def _work(stage: Stage) -> str:
    """Return what tells apart stages of different work: pipelines with all their columns and expressions."""
    return repr((stage.pipeline, stage.builds, stage.more))
