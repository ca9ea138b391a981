"""Small tables that travel within messages: with a task's report to the driver, and with the tasks that read them.

Where a task's value stays on its worker, whoever reads it asks for it, which takes longer than computing it, and Dask
gives all that reads it to that one worker.
"""

from __future__ import annotations

import pyarrow as pa

ANSWER_BYTES = 64 * 1024
"""A stage's output up to this size travels with its task's report, and with the tasks that read it."""

PART_BYTES = 4 * 1024
"""The same of a partial result, of which there may be many; more where the stage has few chunks."""

MERGED_HERE_BYTES = 64 * 1024
"""Partial results up to this size together, which came with their tasks' reports, are merged without a task."""


def packed(table: pa.Table) -> bytes:
    """Return a table in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def opened(sent: pa.Table | bytes) -> pa.Table:
    """Return a table that came with a message."""
    return pa.ipc.open_stream(sent).read_all() if isinstance(sent, bytes) else sent
