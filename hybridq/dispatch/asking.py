"""Asks a Dask scheduler and its workers, and never waits for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from hybridq.errors import ClusterUnreachable

logger = logging.getLogger(__name__)

ATTEMPT_SECONDS = 2.0
"""Seconds after which the scheduler is asked again, if the client is still connected to it."""

_ENDED = ("closing", "closed", "failed")
"""States of a Dask client that has given its scheduler up."""


def ask(client: Any, function: Callable[..., Any], *arguments: Any, timeout: float, **keywords: Any) -> Any:
    """Run one of Dask's coroutines and wait for its answer.

    Parameters
    ----------
    client : distributed.Client
    function : callable
        Makes the coroutine. It is made anew every few seconds, so it must be a question that may be asked twice.
    timeout : float
        Seconds.

    Raises
    ------
    ClusterUnreachable
        No answer in time, or the connection is lost for good.
    """
    deadline = time.monotonic() + timeout
    while True:
        if getattr(client, "status", "running") in _ENDED:
            raise ClusterUnreachable("the scheduler does not answer any more: the connection is lost")
        left = deadline - time.monotonic()
        if left <= 0:
            raise ClusterUnreachable(f"the scheduler has not answered for {timeout:g} s: it is paused or cut off")
        try:
            return client.sync(function, *arguments, callback_timeout=min(left, ATTEMPT_SECONDS), **keywords)
        except TimeoutError:
            continue
        except (OSError, KeyError, AttributeError, RuntimeError) as error:
            # Dask's client loses parts of itself, one after the other, as it closes.
            raise ClusterUnreachable(f"the scheduler does not answer any more: {error}") from error


def tell(client: Any, function: Callable[..., Any], *arguments: Any, timeout: float, **keywords: Any) -> bool:
    """Run one of Dask's coroutines where it does not matter much whether it succeeds; tell whether it did."""
    if getattr(client, "status", "running") in _ENDED:
        return False
    try:
        client.sync(function, *arguments, callback_timeout=timeout, **keywords)
    except Exception as error:
        logger.info("%s: %s: %s", getattr(function, "__name__", function), type(error).__name__, error)
        return False
    return True
