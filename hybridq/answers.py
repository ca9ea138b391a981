"""A query that runs, and its answer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

from hybridq.errors import ExecutionError, HybridqError, QueryCancelled

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from hybridq.dispatch.driver import Driver
    from hybridq.dispatch.progress import Progress
    from hybridq.query import Query
    from hybridq.report import Report

WAIT_SECONDS = 0.2
"""How long a wait lasts before it looks for Ctrl-C again."""


class Handle:
    """A query that runs in the background."""

    def __init__(self, driver: Driver, query: Query, report: Report, start: float, finished: Any) -> None:
        self._driver = driver
        self._query = query
        self._report = report
        self._start = start
        self._finished = finished
        self._done = threading.Event()
        self._table: pa.Table | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="hybridq-driver", daemon=True).start()

    def _run(self) -> None:
        try:
            self._table = self._driver.run()
            elapsed = time.perf_counter() - self._start
            self._report.seconds["execute"] = elapsed
            self._report.seconds["total"] = self._report.seconds["plan"] + elapsed
            self._query._learn(self._report)
        except BaseException as error:
            self._error = self._as_ours(error)
        finally:
            self._finished()
            self._done.set()

    def _as_ours(self, error: BaseException) -> BaseException:
        """Return what to raise where the answer is asked for."""
        ours = error
        if isinstance(error, Exception) and self._query._session.closed:  # whatever it looked like to the driver
            ours = QueryCancelled("the session was closed while the query ran")
        elif isinstance(error, Exception) and not isinstance(error, HybridqError):
            ours = ExecutionError(f"the query could not be run to its end: {type(error).__name__}: {error}")
        if ours is not error:
            ours.__cause__ = error
        return ours

    def progress(self) -> Progress:
        """Return how far the query has come."""
        return self._driver.progress()

    def cancel(self) -> None:
        """Stop the query and free what it has on the cluster. Does nothing once it has finished."""
        if not self._done.is_set():
            self._driver.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended, well or not; return whether it has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done.is_set():
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return False
            self._done.wait(left)
        return True

    def finish(self) -> Report:
        """Wait until the query has ended, and return its report.

        Raises
        ------
        QueryCancelled, ExecutionError
            As for ``result``.
        """
        self.wait()
        if self._error is not None:
            raise self._error
        return self._report

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the answer.

        Parameters
        ----------
        timeout : float or None
            Seconds.

        Raises
        ------
        TimeoutError
            It is not there yet; the query goes on.
        QueryCancelled
            The query was cancelled.
        ExecutionError
            It failed.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"the query has not finished within {timeout:g} s")
        if self._error is not None:
            raise self._error
        return Result(cast("pa.Table", self._table), self._query.schema, self._report)


def as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return what a query gave under the names of the answer's columns, which may repeat, as SQL allows.

    Raises
    ------
    ExecutionError
        Its types are not those that the plan declares.
    """
    import pyarrow as pa

    if table.schema.types != schema.types:
        raise ExecutionError(f"the answer's types are {table.schema.types}, and the plan declares {schema.types}")
    return pa.Table.from_arrays(table.columns, schema=schema) if schema.names else table


class Result:
    """An answer, in memory.

    Attributes
    ----------
    report : Report
        Where everything ran, and why.
    """

    def __init__(self, table: pa.Table, schema: pa.Schema, report: Report) -> None:
        self._table = as_declared(table, schema)
        self.report = report

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<Result {self._table.num_rows} rows: {', '.join(self._table.column_names)}>"

    def to_arrow(self) -> pa.Table:
        """Return the answer as an Arrow table, with exactly the plan's types."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """Return the answer as a pandas frame with Arrow-backed columns, which keep decimals, dates and NULL."""
        import pandas as pd

        return cast("pd.DataFrame", self._table.to_pandas(types_mapper=pd.ArrowDtype))
