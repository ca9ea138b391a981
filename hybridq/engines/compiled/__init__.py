"""Loops that NumPy and pyarrow do not have, compiled by numba, and when they are there to be used.

Nothing waits for a compiler: until the loops are loaded, or where numba cannot be used, everything is computed without
them, with the same results. They are loaded by a thread of their own once a process has enough work to gain from it;
the first time on a machine that takes some seconds, later half a second, since numba keeps on disk what it compiled.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from types import ModuleType

logger = logging.getLogger(__name__)

WORTHWHILE_ROWS = 1_000_000
"""Rows that a process reads before the loops are loaded: a short session never needs them."""

CHOICE = "HYBRIDQ_COMPILED"
"""Environment variable: ``never`` does without the loops, ``always`` waits for them at their first use."""

_MODULE = "hybridq.engines.compiled.kernels"


class Kernels:
    """The compiled loops of a process.

    Parameters
    ----------
    choice : str
        ``never``, ``always``, or anything else: once they are worth it.

    Attributes
    ----------
    loading : threading.Thread or None
        What loads them, or has done so.
    """

    def __init__(self, choice: str = "") -> None:
        self._choice = choice
        self._module: ModuleType | None = None
        self._rows = 0
        self._lock = threading.Lock()
        self._begun = choice == "never"
        self.loading: threading.Thread | None = None

    @property
    def module(self) -> ModuleType | None:
        """Return ``hybridq.engines.compiled.kernels``, if it is loaded."""
        if self._module is None and self._choice == "always":
            self.load()
        return self._module

    def did_without(self, rows: int) -> None:
        """Say that rows were read without the loops: after enough of them these are loaded."""
        if self._begun:
            return
        with self._lock:
            self._rows += rows
            if self._begun or self._rows < WORTHWHILE_ROWS:
                return
            self._begun = True
        self.loading = threading.Thread(target=self._try_to_load, name="load compiled loops", daemon=True)
        self.loading.start()

    def load(self) -> ModuleType:
        """Load the loops now.

        Raises
        ------
        ImportError
            numba is missing.
        """
        self._module = importlib.import_module(_MODULE)
        return self._module

    def unload(self) -> None:
        """Do without the loops from now on."""
        self._begun = True
        self._module = None

    def _try_to_load(self) -> None:
        try:
            self.load()
        except Exception as error:  # numba fails in many ways; all that is lost is time
            logger.warning("compiled loops are not used: %r", error)


KERNELS = Kernels(os.environ.get(CHOICE, ""))
"""Those of this process."""
