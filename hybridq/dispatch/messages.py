"""Dask's messages sent without delay, and not kept.

It holds them back for 2 to 10 ms, to send several at once. Nearly all of a short stage's time would be that waiting. A
chunk is one task of milliseconds at least, so messages stay few. And it keeps the last thousand of them, with the tasks
and rows in them, for whoever wants to look.
"""

from __future__ import annotations

from collections import deque
from typing import Any

SEND_INTERVAL = 0.0005
"""Seconds for which messages are collected."""

KEPT_MESSAGES = 1
"""Messages that a sender keeps after they have been sent: the last one shows what it was at."""


def send_promptly(sender: Any) -> None:
    """Shorten the time for which a sender collects messages, and keep few of those that it has sent.

    Parameters
    ----------
    sender : distributed.batched.BatchedSend or None
        Left as it is if it has no such time or log.
    """
    if hasattr(sender, "interval"):
        sender.interval = SEND_INTERVAL
    if hasattr(sender, "recent_message_log"):
        sender.recent_message_log = deque(sender.recent_message_log, maxlen=KEPT_MESSAGES)


def prompt_scheduler() -> Any:
    """Return a plugin that makes a scheduler send without delay to workers and clients."""
    from distributed.diagnostics.plugin import SchedulerPlugin

    base: Any = SchedulerPlugin

    class Prompt(base):  # type: ignore[misc] # distributed is untyped
        def add_worker(self, scheduler: Any, worker: str) -> None:
            send_promptly(scheduler.stream_comms.get(worker))

        def add_client(self, scheduler: Any, client: str) -> None:
            # Its sender is made right after this.
            scheduler.loop.add_callback(lambda: send_promptly(scheduler.client_comms.get(client)))

    return Prompt()
