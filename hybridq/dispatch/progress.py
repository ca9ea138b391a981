"""How far a query has come: a snapshot for programs, and a bar for people at a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hybridq.topology import Kind

REFRESH_SECONDS = 0.1


@dataclass(slots=True)
class KindProgress:
    """What the devices of one kind have done so far: chunks and source rows."""

    chunks: int = 0
    rows: int = 0


@dataclass(slots=True)
class Progress:
    """A snapshot of a running query.

    Attributes
    ----------
    stages_done, stages : int
    rows_done, rows : int
        Source rows that finished chunks have read, and those of all stages that have started.
    kinds : dict of kind to KindProgress
    finished : bool
    """

    stages_done: int = 0
    stages: int = 0
    rows_done: int = 0
    rows: int = 0
    kinds: dict[Kind, KindProgress] = field(default_factory=dict)
    finished: bool = False


@contextmanager
def progress_bar(snapshot: Callable[[], Progress], enabled: bool) -> Iterator[None]:
    """Show a bar with a row for each kind of device while the block runs, if standard error is a terminal.

    Parameters
    ----------
    snapshot : callable
        Gives the current progress; called from another thread.
    enabled : bool
        Without it, nothing is shown.
    """
    if not enabled or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description:<4}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}% of rows, {task.fields[chunks]} chunks, stage {task.fields[stage]}"),
        TimeElapsedColumn(),
    )
    stop = threading.Event()
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        rows: dict[Kind, TaskID] = {}

        def update() -> None:
            now = snapshot()
            for kind, done in now.kinds.items():
                if kind not in rows:
                    rows[kind] = bar.add_task(kind.upper(), total=None, chunks=0, stage="")
                stage = f"{min(now.stages_done + 1, now.stages)}/{now.stages}"
                bar.update(rows[kind], total=now.rows or None, completed=done.rows, chunks=done.chunks, stage=stage)

        def keep_updating() -> None:
            while not stop.wait(REFRESH_SECONDS):
                update()

        thread = threading.Thread(target=keep_updating, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            update()
