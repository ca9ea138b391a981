"""The cost ratio, measured: how fast each kind of device gets through a stage, and how much it should take next.

After He et al. (ACM TODS 2009, section 5): with p = T_GPU(c0)/T_CPU(c0), the time that a GPU chunk of c0 rows takes
over the time that a CPU chunk of as many rows takes, a CPU chunk of c0 * p rows takes as long as a GPU chunk. Here p
comes from the stage's own chunks, the first of which are equally large on both, and is corrected by each one that
finishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybridq.topology import Kind

SMALLEST_CHUNK_ROWS = 64 * 1024
"""No chunk is planned smaller: below this, handing it out costs as much as computing it."""

SMALLEST_GPU_CHUNK_ROWS = 8_000_000
"""A stage on GPUs alone is not cut into smaller chunks for the sake of balance: reading one of 9 million rows takes
27 ms, reading 45 million 66 (7 columns, one H100)."""

LARGEST_LAST_CHUNK = 1.2
"""The last chunk of a stage on GPUs alone may be larger than the others by this factor, if that leaves no rest."""

TOGETHER_SECONDS = 0.04
"""What it costs that both kinds of device work on a stage: some twenty more chunks, each handed out and merged, and
partial results that have to be copied from one worker to another."""

QUEUE_SECONDS = 0.03
"""Work that each slot should have queued: the time that news of a finished chunk and the next one take to travel."""

DEEPEST_QUEUE = 16
"""Chunks queued for a slot at most, however small they are."""


class Rate:
    """Seconds a row of one slot of a device, from finished chunks.

    The first chunk counts only until there is another: it pays for imports, opening files and cold caches. Where the
    same work has been done before, what was measured then counts until there is another chunk.

    Parameters
    ----------
    before : float, optional
        Seconds a row when the same work was done before.

    Attributes
    ----------
    largest : int
        Most rows of a chunk so far.
    """

    def __init__(self, before: float | None = None) -> None:
        self._before = before
        self._first: tuple[int, float] | None = None
        self._chunks = 0
        self.largest = 0
        self._rows = 0
        self._seconds = 0.0

    @property
    def known(self) -> bool:
        """Tell whether any chunk has finished, or did before."""
        return self._first is not None or self._before is not None

    @property
    def measured(self) -> float | None:
        """Return seconds a row of the chunks but for the first; ``None`` if there are none."""
        return max(self._seconds, 1e-9) / self._rows if self._rows else None

    @property
    def seconds_per_row(self) -> float:
        """Return seconds a row.

        Raises
        ------
        ValueError
            No chunk has finished.
        """
        found = self.measured or self._before
        if found is not None:
            return found
        if self._first is None:
            raise ValueError("no chunk has finished")
        rows, seconds = self._first
        return max(seconds, 1e-9) / max(rows, 1)

    @property
    def cold_rows(self) -> int:
        """Return the rows of the first chunk while it is the only one; 0 otherwise."""
        return self._first[0] if self._first is not None and not self._chunks and self._before is None else 0

    @property
    def chunks_within(self) -> float:
        """Return how many chunks, of the size they had so far, a slot finishes in ``QUEUE_SECONDS``; 0 if unknown."""
        return QUEUE_SECONDS * self._chunks / max(self._seconds, 1e-9)

    def observe(self, rows: int, seconds: float) -> None:
        """Add a finished chunk."""
        self.largest = max(self.largest, rows)
        if self._first is None:
            self._first = (rows, seconds)
        else:
            self._chunks += 1
            self._rows += rows
            self._seconds += seconds


class PullPolicy:
    """Says how many rows the next chunk of a kind of device should have, for one stage.

    Parameters
    ----------
    kinds : sequence of str
        The kinds of device that the stage may use.
    slots : mapping of kind to int
        Chunks that all devices of a kind work on at the same time.
    chunk_rows : mapping of kind to int
        The most rows of a chunk of each kind; the GPU's is c0.
    before : mapping of kind to float, optional
        Seconds a row of one slot when the same work was done before.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        slots: Mapping[Kind, int],
        chunk_rows: Mapping[Kind, int],
        before: Mapping[Kind, float] | None = None,
    ) -> None:
        self._kinds = tuple(kinds)
        self._slots = dict(slots)
        self._limits = dict(chunk_rows)
        self._rates: dict[Kind, Rate] = {kind: Rate((before or {}).get(kind)) for kind in self._limits}

    def set_slots(self, slots: Mapping[Kind, int]) -> None:
        """Take note that devices have come or gone."""
        self._slots = dict(slots)

    def limit(self, kind: Kind, rows: int) -> None:
        """Never plan a larger chunk for a kind again (a chunk of more rows did not fit its memory)."""
        self._limits[kind] = min(self._limits[kind], max(rows, 1))

    def withdraw(self, kind: Kind, unless_last: bool) -> None:
        """Plan no more chunks for a kind; with ``unless_last``, only if the stage may use another."""
        rest = tuple(each for each in self._kinds if each != kind)
        if rest or not unless_last:
            self._kinds = rest

    def replace(self, kind: Kind, other: Kind) -> None:
        """Plan no more chunks for a kind, and those of another one instead."""
        self._kinds = tuple(dict.fromkeys(other if each == kind else each for each in self._kinds))

    def observe(self, kind: Kind, rows: int, seconds: float) -> None:
        """Take note of a finished chunk: the rows it read and the seconds it took."""
        if rows > 0:
            self._rates[kind].observe(rows, seconds)

    @property
    def active(self) -> tuple[Kind, ...]:
        """Return the kinds that the stage may use and that are there."""
        return tuple(kind for kind in self._kinds if self._slots.get(kind))

    @property
    def measured(self) -> bool:
        """Tell whether every kind in use has finished a chunk."""
        return all(self._rates[kind].known for kind in self.active)

    @property
    def rates(self) -> dict[Kind, float]:
        """Return seconds a row by kind, as far as they were measured."""
        return {kind: found for kind, rate in self._rates.items() if (found := rate.measured) is not None}

    @property
    def cost_ratio(self) -> float | None:
        """Return p = T_GPU(c0)/T_CPU(c0), once both kinds have finished a chunk."""
        gpu, cpu = self._rates["gpu"], self._rates["cpu"]
        return gpu.seconds_per_row / cpu.seconds_per_row if gpu.known and cpu.known else None

    def window(self, kind: Kind, window: int) -> int:
        """Return how many chunks of a kind may be in flight: ``window`` for each slot, more when they are very short.

        It is one a slot while the stage runs on both kinds and their speeds are not known: what is queued on a device
        cannot be given to the other.
        """
        depth = 1
        if len(self.active) < 2 or self.measured:
            depth = max(window, min(int(self._rates[kind].chunks_within), DEEPEST_QUEUE))
        return depth * self._slots.get(kind, 0)

    def rows_for(self, kind: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> int | None:
        """Return the rows that a kind should take next; ``None``: none now, the other kind will finish them sooner.

        Parameters
        ----------
        kind : str
            ``cpu`` or ``gpu``.
        remaining : int
            Rows that nobody has taken.
        in_flight : mapping of kind to int
            Rows taken and not finished.
        """
        active = self.active
        if kind not in active:
            return None
        total_slots = sum(self._slots[each] for each in active)
        if active == ("gpu",):
            return self._even(remaining, in_flight.get("gpu", 0))
        if len(active) == 1:
            return _balanced(remaining, self._limits[kind], total_slots)
        if not self.measured:
            # Equal sizes, so that the first chunks show the ratio of the costs; the CPU's, so that little is at stake.
            return _balanced(remaining, min(self._limits.values()), total_slots)
        other: Kind = "cpu" if kind == "gpu" else "gpu"
        if not (self._rates[kind].cold_rows or self._helps(kind, other, remaining, in_flight)):
            return None
        size = self._chunk_rows(kind)
        if self._finish(kind, remaining, in_flight) <= self._finish(other, remaining, in_flight):
            if kind == "gpu":
                share = 1.0
                if self._helps(other, kind, remaining, in_flight):
                    share = self._speed(kind) / (self._speed(kind) + self._speed(other))
                return self._even(max(int(remaining * share), 1), in_flight.get(kind, 0))
            return _balanced(remaining, size, self._slots[kind])
        fair = self._fair_share(kind, other, remaining, in_flight)
        smallest = min(SMALLEST_CHUNK_ROWS, self._rates[kind].largest)
        if fair >= smallest:
            return min(size, int(fair))
        cold = self._rates[kind].cold_rows
        if cold and not in_flight.get(kind) and remaining >= 2 * total_slots * cold:
            # It looks too slow, but a device's first chunk often is (imports, compilation): one more will tell.
            return cold
        return None

    def _helps(self, kind: Kind, other: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> bool:
        """Tell whether a kind is the faster one, or saves the other more time than working together costs."""
        if self._speed(kind) >= self._speed(other):
            return True
        rows = remaining + sum(in_flight.values())
        together = rows / (self._speed(kind) + self._speed(other))
        return rows / self._speed(other) - together >= TOGETHER_SECONDS

    def _even(self, remaining: int, in_flight: int) -> int:
        """Return the size of one of the equal chunks that a GPU stage is cut into.

        Small chunks at the end would balance the load, but on a GPU a chunk costs much the same up to some size: what
        is in flight counts as if it were still to be cut, and a small rest goes with the last chunk.
        """
        size = max(
            _balanced(remaining + in_flight, self._limits["gpu"], self._slots["gpu"]),
            min(SMALLEST_GPU_CHUNK_ROWS, self._limits["gpu"]),
        )
        return remaining if SMALLEST_CHUNK_ROWS <= remaining <= size * LARGEST_LAST_CHUNK else size

    def seconds_left(self, remaining: int, in_flight: Mapping[Kind, int]) -> float | None:
        """Return the seconds that the rows not finished will take with all devices at work; ``None`` if unmeasured."""
        active = self.active
        if not active or not self.measured:
            return None
        return (remaining + sum(in_flight.values())) / sum(self._speed(kind) for kind in active)

    def _chunk_rows(self, kind: Kind) -> int:
        """Return a kind's chunk size: c0 for the GPU, c0 * p for the CPU, within bounds."""
        ratio = self.cost_ratio
        if kind == "gpu" or ratio is None:
            return self._limits[kind]
        return max(min(int(self._limits["gpu"] * ratio), self._limits["cpu"]), SMALLEST_CHUNK_ROWS)

    def _speed(self, kind: Kind) -> float:
        """Return rows a second of all slots of a kind."""
        return self._slots[kind] / self._rates[kind].seconds_per_row

    def _finish(self, kind: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> float:
        """Return the seconds in which a kind alone would finish its own work and all that remains."""
        return (in_flight.get(kind, 0) + remaining) / self._speed(kind)

    def _fair_share(self, kind: Kind, other: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> float:
        """Return the rows of one chunk that would be finished just when the other kind has finished all the rest."""
        slot_speed = 1 / self._rates[kind].seconds_per_row
        backlog = in_flight.get(kind, 0) / self._slots[kind]
        share = slot_speed / self._speed(other)
        return (share * (in_flight.get(other, 0) + remaining) - backlog) / (1 + share)


def _balanced(remaining: int, largest: int, slots: int) -> int:
    """Return a chunk size not above ``largest`` that divides what remains evenly among slots.

    >>> _balanced(6_000_000, 2_000_000, 2)
    1500000
    """
    rounds = -(-remaining // max(largest * slots, 1))
    return max(-(-remaining // max(rounds * slots, 1)), min(largest, SMALLEST_CHUNK_ROWS))
