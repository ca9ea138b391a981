"""What a scheduler keeps of every computation for Dask's dashboard: nothing, where there is no dashboard.

Dask starts a span whenever tasks come after all earlier ones have ended, and never forgets one. Each query would leave
some 9 KiB in the scheduler for as long as the cluster lives.
"""

from __future__ import annotations

from typing import Any


class NoSpans:
    """Stands where Dask's scheduler keeps spans, and keeps none.

    The place can't be left empty: workers send what they measured by span with each of their heartbeats.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Whose extension it is.
    """

    def __init__(self, scheduler: Any) -> None:
        del scheduler

    def observe_tasks(self, tasks: Any, **known: Any) -> dict[Any, Any]:
        """Return no annotations for tasks that came."""
        del tasks, known
        return {}

    def heartbeat(self, worker: Any, measured: Any) -> None:
        """Take what a worker measured."""


def scheduler_extensions() -> dict[str, Any]:
    """Return the extensions of a scheduler without a dashboard: Dask's own, but for spans."""
    import dask
    from distributed.scheduler import DEFAULT_EXTENSIONS

    extensions = {**DEFAULT_EXTENSIONS, "spans": NoSpans}
    if not dask.config.get("distributed.scheduler.work-stealing"):
        extensions.pop("stealing", None)  # as Dask does where it is given no extensions
    return extensions
