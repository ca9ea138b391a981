"""A second look at the kind of device that a stage leaves out, while the stage runs: the choice may have been wrong.

Whatever is believed of a device, a small chunk shows what it takes. It runs beside the others, and its rows are the
stage's, so it costs next to nothing as long as it is back before they are done. One that is not is given up, and its
rows are computed where the others were.
"""

from __future__ import annotations

from hybridq.topology import Kind

LEAST_LEFT_S = 0.25
"""A stage that will be done in less is not looked into."""

FIRST_SHARE = 0.02
"""Part of what is left that the first chunk takes, unless that is less than the smallest piece."""

MOST_SHARE = 0.04
"""A smallest piece that is a larger part of what is left is too much to be risked."""

MOST_ENTRY = 0.5
"""Part of the time that is left that it may take to bring a kind what it needs before its first chunk."""

GROWTH = 4
"""Each further chunk is larger by this factor: a GPU takes much the same time for any small one."""

HARMLESS = 0.25
"""A further chunk may take this part of the time that is left, at the speed of the one before."""

STRAIGHT = 0.7
"""A chunk that took at least this part of the seconds a row of the one before shows a speed that grows no more."""


class SecondLook:
    """What is tried on a kind of device that a stage does not use.

    Parameters
    ----------
    kind : str
        The kind that is left out.
    due : bool
        It is to be tried; otherwise it is only called in where the stage goes far worse than expected.

    Attributes
    ----------
    kind : str
    seconds_per_row : float or None
        Of one slot, the best that it has shown.
    """

    def __init__(self, kind: Kind, due: bool) -> None:
        self.kind = kind
        self.seconds_per_row: float | None = None
        self._due = due
        self._next: tuple[int, float] | None = None
        self._out = False

    @property
    def waits(self) -> bool:
        """Tell whether a chunk that is being tried, or is to be, will say more than what is expected."""
        return self.seconds_per_row is None and (self._due or self._out)

    def rows(self, rows_left: int, seconds_left: float, smallest: int, entry: float = 0.0) -> int | None:
        """Return the rows of the chunk to be tried now; ``None``: none.

        Parameters
        ----------
        rows_left : int
            Rows of the stage that are not done.
        seconds_left : float
            What the kind that is used will take for them.
        smallest : int
            Rows of the smallest piece that can be handed out.
        entry : float
            Seconds until the kind has what it needs before its first chunk.
        """
        if not self._due or seconds_left < LEAST_LEFT_S or entry > seconds_left * MOST_ENTRY:
            return None
        if self._next is None:
            found = max(round(rows_left * FIRST_SHARE), smallest)
            harmless = found <= rows_left * MOST_SHARE
        else:
            found, seconds = self._next
            harmless = seconds <= seconds_left * HARMLESS and found <= rows_left * HARMLESS
        if not harmless:
            self._due = False
            return None
        self._due, self._out = False, True  # until it is back
        return found

    def observe(self, rows: int, seconds: float) -> None:
        """Take note of what such a chunk took."""
        self._out = False
        per_row, before = seconds / rows, self.seconds_per_row
        self._due = before is None or per_row < STRAIGHT * before
        self._next = (rows * GROWTH, seconds * GROWTH)
        self.seconds_per_row = per_row if before is None else min(per_row, before)
