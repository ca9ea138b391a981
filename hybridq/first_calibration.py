"""Measures a cluster that was never measured, in the background of a session that has just begun."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridq.config import Config
    from hybridq.dispatch.connection import ConnectionProtocol
    from hybridq.placement.placer import Placer

logger = logging.getLogger(__name__)

PATIENCE_S = 4.0
"""Seconds from their beginning that queries wait for the measurements: on two cores they take less than two."""


class FirstCalibration:
    """Measures in a thread of its own; whatever goes wrong there, queries run, by what is assumed of the devices.

    It knows the connection but not the session, which may be forgotten meanwhile.
    """

    def __init__(self) -> None:
        self._done = threading.Event()
        self._done.set()
        self._until = 0.0

    def begin(self, connection: ConnectionProtocol, placer: Placer) -> None:
        """Begin to measure, and return at once."""
        self._done.clear()
        self._until = time.monotonic() + PATIENCE_S
        threading.Thread(target=self._measure, args=(connection, placer), name="hybridq-calibrate", daemon=True).start()

    def wait(self) -> None:
        """Wait until the measurements are there, but not for ever, nor for each query anew."""
        left = self._until - time.monotonic()
        if left > 0 and not self._done.wait(left):
            logger.warning("the devices are not measured after %g s: their speeds are assumed", PATIENCE_S)

    def _measure(self, connection: ConnectionProtocol, placer: Placer) -> None:
        try:
            devices = connection.devices()
            found = connection.measure("small")
            if not placer.profile.measured:  # else somebody has measured more meanwhile
                placer.calibrate(found, devices)
        except BaseException as error:  # also what Dask raises for a task that is cancelled, as the session ends
            logger.info("the devices were not measured: %s: %s", type(error).__name__, error)
        finally:
            self._done.set()


def is_wanted(connection: ConnectionProtocol, config: Config) -> bool:
    """Tell whether a session is to measure by itself: there is a choice between devices, and nobody forbade it."""
    allowed = bool(config.calibrate) and connection.keeps_profiles
    return allowed and len({each.kind for each in connection.devices()}) > 1
