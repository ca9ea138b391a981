"""How much each kind of device should take next, from how fast it gets through a stage.

After He et al. (ACM TODS 2009, section 5): with p = T_GPU(c0)/T_CPU(c0), the time that a GPU chunk of c0 rows takes
over the time that a CPU chunk of as many rows takes, a CPU chunk of c0 * p rows takes as long as a GPU chunk. Here p
comes from earlier runs or from the stage's own first chunks, and is corrected by each one that finishes. Towards the
end the CPU's chunks shrink, so that all devices finish at the same time; the GPU's are cut evenly, for small chunks
cost it more a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hybridq.placement.rates import Rate
from hybridq.placement.second_look import SecondLook
from hybridq.topology import Kind

SMALLEST_CHUNK_ROWS = 64 * 1024
"""No chunk is planned smaller: below this, handing it out costs as much as computing it."""

SMALLEST_CPU_CHUNK_ROWS = 256 * 1024
"""A stage on CPUs alone is not cut into smaller chunks for the sake of balance: computing one takes some 5 ms."""

SMALLEST_GPU_CHUNK_ROWS = 8_000_000
"""A stage on GPUs alone is not cut into smaller chunks for the sake of balance: reading one of 9 million rows takes
27 ms, reading 45 million 66 (7 columns, one H100)."""

FEW_GPU_SLOTS = 4
"""Up to so many slots of GPUs, a stage is cut for all of them; of more, half do better: chunks twice as large spend
half as much time on being asked for, while the other slots read for the next stage. (TPC-H Q3 at scale factor 30, one
H200: 0.20 s with four threads and chunks for four, 0.27 s with eight.)"""

LARGEST_LAST_CHUNK = 1.2
"""The last chunk of a stage on GPUs alone may be larger than the others by this factor, if that leaves no rest."""

TOGETHER_SECONDS = 0.04
"""What it costs that both kinds of device work on a stage: some twenty more chunks, each handed out and merged, and
partial results that have to be copied from one worker to another."""

LEAST_ENTRY_SECONDS = 0.01
"""What bringing build sides to a kind of device costs is looked at from here on."""

DEEPEST_QUEUE = 16
"""Chunks queued for a slot at most, however small they are."""

SHARES_LEFT = 3
"""A CPU's task of several rounds takes this part of a slot's share of what is left, lest the others wait for it."""

ONE_ROUND_ROWS = 1024 * 1024
"""Up to so many rows a CPU slot, a stage is cut into one chunk a slot: more would take longer to hand out and to merge
than a slot that finishes early could save."""

FIRST_SHARE = 64
"""While a device's speed is not known it gets this part of the stage at most, lest a slow one hold up the rest."""

WORSE_FACTOR = 2.0
"""A kind that a stage leaves out is called in where the one that it uses turns out to take longer by this factor."""

WORTH_CALLING = 0.9
"""... or where a chunk on it has shown that both together will take at most this part of the time."""

LATE_FACTOR = 4.0
LATE_SECONDS = 0.5
"""A chunk that is out for so many times what was expected, and at least so many seconds, is late."""

LEAST_WAIT_S = 0.02
"""So long everybody may wait for a chunk that only tries a kind of device."""

SLOTS_SEEN = 2
"""A GPU's chunk that ran alone shows what so many of its slots get through at the same time: they share it."""

LEAST_LEFT = 0.05
"""Part of a chunk that is taken to be still to do for as long as it has not come back."""

CPU_SHARE_AT_ONCE = 0.5
"""Part of what a CPU slot has left to do that it takes at once; the rest follows in ever smaller chunks."""


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
        Seconds a row of one slot that earlier runs have shown.
    cpu_slots : int
        CPU slots at work while the GPU works as well; 0: all. More would slow the GPU's feed.
    look : SecondLook, optional
        At a kind that the stage does not use, and could.
    unit_rows : float
        Rows of the smallest piece that can be handed out.
    rounds : int
        Chunks of the most rows that a CPU's task takes one after the other, where CPUs have the stage for themselves.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        slots: Mapping[Kind, int],
        chunk_rows: Mapping[Kind, int],
        before: Mapping[Kind, float] | None = None,
        cpu_slots: int = 0,
        look: SecondLook | None = None,
        unit_rows: float = 1.0,
        rounds: int = 1,
    ) -> None:
        self._rounds = rounds
        self._smallest = max(SMALLEST_CHUNK_ROWS, math.ceil(unit_rows))
        self._kinds = tuple(kinds)
        self._slots = dict(slots)
        self._limits = dict(chunk_rows)
        self._rates: dict[Kind, Rate] = {kind: Rate((before or {}).get(kind)) for kind in self._limits}
        self._cpu_slots = cpu_slots
        self._look = look
        self._entry: dict[Kind, float] = {}
        self._waited: dict[Kind, float] = {}
        self._stuck: dict[Kind, int] = {}

    def set_slots(self, slots: Mapping[Kind, int]) -> None:
        """Take note that devices have come or gone."""
        self._slots = dict(slots)

    def limit(self, kind: Kind, rows: int) -> None:
        """Never plan a larger chunk for a kind again (a chunk of more rows did not fit its memory)."""
        self._limits[kind] = min(self._limits[kind], max(rows, 1))

    def charge(self, entry: Mapping[Kind, float]) -> None:
        """Take note of the seconds that it takes to bring each kind of device what it needs before its first chunk.

        What all of them have to wait for makes no difference.
        """
        least = min((entry.get(kind, 0.0) for kind in self._kinds), default=0.0)
        found = {kind: seconds - least for kind, seconds in entry.items()}
        self._entry = {kind: seconds for kind, seconds in found.items() if seconds >= LEAST_ENTRY_SECONDS}

    def narrow(self, breadth: float) -> None:
        """Take note that a chunk reads ``breadth`` rows for each row of its source, which alone are counted here."""
        self._limits = {kind: max(int(rows / breadth), 1) for kind, rows in self._limits.items()}

    def withdraw(self, kind: Kind, unless_last: bool) -> None:
        """Plan no more chunks for a kind; with ``unless_last``, only if the stage may use another."""
        rest = tuple(each for each in self._kinds if each != kind)
        if rest or not unless_last:
            self._kinds = rest
        if self._look is not None and self._look.kind == kind:
            self._look = None

    def replace(self, kind: Kind, other: Kind) -> None:
        """Plan no more chunks for a kind, and those of another one instead."""
        self._kinds = tuple(dict.fromkeys(other if each == kind else each for each in self._kinds))
        self._look = None

    def observe(self, kind: Kind, rows: int, seconds: float) -> None:
        """Take note of a finished chunk: the rows it read and the seconds it took."""
        if rows <= 0:
            return
        self._rates[kind].observe(rows, seconds)
        if self._look is not None and self._look.kind == kind:
            self._look.observe(rows, seconds)

    @property
    def active(self) -> tuple[Kind, ...]:
        """Return the kinds that the stage may use and that are there."""
        return tuple(kind for kind in self._kinds if self._free_slots(kind))

    def _free_slots(self, kind: Kind) -> int:
        """Return the slots of a kind but for those still at work on chunks that were given up; all, if none is left."""
        there = {each: self._slots.get(each, 0) - self._stuck.get(each, 0) for each in self._kinds}
        if kind in there and all(free <= 0 for free in there.values()):
            return self._slots.get(kind, 0)
        return max(self._slots.get(kind, 0) - self._stuck.get(kind, 0), 0)

    @property
    def takers(self) -> tuple[Kind, ...]:
        """Return the kinds to be asked for chunks: the active ones, and first of all one that may be tried."""
        active = self.active
        if self._look is None or not active or not self._free_slots(self._look.kind):
            return active
        return (self._look.kind, *active)

    @property
    def measured(self) -> bool:
        """Tell whether the speed of every kind in use is known."""
        return all(self._rates[kind].known for kind in self.active)

    @property
    def cost_ratio(self) -> float | None:
        """Return p = T_GPU(c0)/T_CPU(c0), once both are known."""
        gpu, cpu = self._rates["gpu"], self._rates["cpu"]
        return gpu.seconds_per_row / cpu.seconds_per_row if gpu.known and cpu.known else None

    def window(self, kind: Kind, window: int) -> int:
        """Return how many chunks of a kind may be in flight: ``window`` for each slot, more when they are very short.

        It is one a slot while the stage runs on both kinds and their speeds are not known: what is queued on a device
        cannot be given to the other.
        """
        if kind not in self.active:
            return 1
        depth = 1
        if len(self.active) < 2 or self.measured:
            depth = max(window, min(int(self._rates[kind].chunks_within), DEEPEST_QUEUE))
        return depth * self.working(kind)

    def working(self, kind: Kind) -> int:
        """Return the slots of a kind that are to work."""
        slots = self._free_slots(kind)
        if kind == "cpu" and self._cpu_slots and len(self.active) > 1:
            return min(slots, self._cpu_slots)
        return slots

    def rows_left(self, kind: Kind, rows: int, elapsed: float) -> int:
        """Return the rows of a chunk that are not done yet, so many seconds after a slot has begun it."""
        rate = self._rates[kind]
        if kind in self._entry and not rate.largest:
            self._waited[kind] = max(elapsed, self._waited.get(kind, 0.0))
            elapsed = max(elapsed - self._entry[kind], 0.0)
        if not rate.known:
            return rows
        return max(round(rows - elapsed / rate.seconds_per_row), round(rows * LEAST_LEFT))

    def rows_for(self, kind: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> int | None:
        """Return the rows that a kind should take next; ``None``: none now, the other kind will finish them sooner.

        Parameters
        ----------
        kind : str
            ``cpu`` or ``gpu``.
        remaining : int
            Rows that nobody has taken.
        in_flight : mapping of kind to int
            Rows taken and not finished: of a chunk that runs, those that are left.
        """
        active = self.active
        if kind not in active:
            return self._rows_to_try(kind, remaining, in_flight)
        if len(active) == 1:
            return self._alone(kind, remaining, in_flight)
        if not self.measured:
            entering = next((each for each in active if each in self._entry and not self._rates[each].known), None)
            if entering is not None and not self._may_enter(entering, remaining, in_flight):
                return None if kind == entering else self._alone(kind, remaining, in_flight)
            # Equal sizes, so that the first chunks show the ratio of the costs; small, so that little is at stake.
            slots = sum(self.working(each) for each in active)
            first = _balanced(remaining, min(self._limits.values()), slots)
            return min(first, max(remaining // FIRST_SHARE, min(self._smallest, *self._limits.values())))
        return self._fair_share(kind, remaining, in_flight)

    def _alone(self, kind: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> int:
        """Return the next chunk of a kind that has the stage for itself."""
        if kind == "gpu":
            return self._even(remaining, in_flight.get("gpu", 0))
        slots = self.working(kind)
        whole = remaining + in_flight.get(kind, 0)
        shared = whole if whole <= ONE_ROUND_ROWS * slots else remaining
        most = self._limits[kind]
        if self.active == (kind,) and self._look is None:
            most = max(most, min(most * self._rounds, remaining // (slots * SHARES_LEFT)))
        return _balanced(shared, most, slots, SMALLEST_CPU_CHUNK_ROWS)

    def _may_enter(self, kind: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> bool:
        """Tell whether a kind whose speed is not known is to be brought what it needs for a first chunk.

        That is worth trying where the other kind will be at work for at least twice as long.
        """
        other: Kind = "cpu" if kind == "gpu" else "gpu"
        if not self._rates[other].known:
            return False
        left = (remaining + sum(in_flight.values())) / self._speed(other)
        return left >= 2 * (self._entry[kind] + TOGETHER_SECONDS)

    def seconds_left(self, remaining: int, in_flight: Mapping[Kind, int]) -> float | None:
        """Return the seconds that the rows not finished will take with all devices at work; ``None`` if unmeasured."""
        active = self.active
        if not active or not self.measured:
            return None
        waiting = sum(self._speed(kind) * self._still_to_enter(kind) for kind in active)
        return (remaining + sum(in_flight.values()) + waiting) / sum(self._speed(kind) for kind in active)

    def _fair_share(self, kind: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> int | None:
        """Return the next chunk of one of two kinds that work together.

        If all devices worked to the same end, a slot would have some rows still to take: a GPU slot takes them in equal
        chunks, a CPU slot half of them at a time (as a GPU slot does that is no faster than a CPU slot). Where nothing
        is left to take the kind is left alone.
        """
        other: Kind = "cpu" if kind == "gpu" else "gpu"
        if not self._joins(kind, other, remaining, in_flight):
            return None
        if not self._joins(other, kind, remaining, in_flight):
            if kind == "gpu":
                return self._even(remaining, in_flight.get(kind, 0))
            return _balanced(remaining, self._limits[kind], self.working(kind))
        end = self.seconds_left(remaining, in_flight) or 0.0
        due = self._rows_until(kind, end, in_flight)
        smallest = min(self._smallest, self._limits[kind], remaining)
        rest = remaining / self.working(kind)
        has_its_share = self._rows_until(other, end, in_flight) < min(self._smallest, remaining)
        others_rest = remaining / self.working(other)
        if has_its_share and self._finish(kind, rest, in_flight) <= self._finish(other, others_rest, in_flight):
            due = max(due, rest)  # what is left is this one's
        if due >= smallest:
            limit = self._chunk_rows(kind)
            if kind == "gpu" and (self.cost_ratio or 0.0) < 1:
                return min(max(round(due / max(-(-due // limit), 1)), smallest), remaining)
            return min(max(int(due * CPU_SHARE_AT_ONCE), smallest), limit, remaining)
        if self._finish(kind, smallest, in_flight) <= self._finish(other, smallest, in_flight):
            return smallest
        cold = self._rates[kind].cold_rows
        slots = sum(self.working(each) for each in self.active)
        if cold and not in_flight.get(kind) and remaining >= 2 * slots * cold:
            # It looks too slow, but a device's first chunk often is (imports, compilation): one more will tell.
            return cold
        return None

    def _joins(self, kind: Kind, other: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> bool:
        """Tell whether a kind is to work on the stage: it does, or is the faster one, or saves more than it costs."""
        if self._begun(kind, in_flight):
            return True
        rows = remaining + sum(in_flight.values())
        mine, others = self._speed(kind), self._speed(other)
        entry, others_entry = self._still_to_enter(kind), self._still_to_enter(other)
        if not (entry or others_entry):
            return mine >= others or rows / others - rows / (mine + others) >= TOGETHER_SECONDS
        together = (rows + mine * entry + others * others_entry) / (mine + others) + TOGETHER_SECONDS
        without = rows / others + others_entry
        instead = math.inf if self._begun(other, in_flight) else rows / mine + entry
        return min(together, instead) < without

    def _begun(self, kind: Kind, in_flight: Mapping[Kind, int]) -> bool:
        return bool(in_flight.get(kind) or self._rates[kind].largest)

    def _still_to_enter(self, kind: Kind) -> float:
        """Return the seconds that pass until a kind has its build sides and begins with its first chunk."""
        if self._rates[kind].largest:
            return 0.0
        return max(self._entry.get(kind, 0.0) - self._waited.get(kind, 0.0), 0.0)

    def _rows_until(self, kind: Kind, end: float, in_flight: Mapping[Kind, int]) -> float:
        """Return the rows that a slot can still take if it is to be done in ``end`` seconds."""
        working = end - self._still_to_enter(kind)
        return working / self._rates[kind].seconds_per_row - in_flight.get(kind, 0) / self.working(kind)

    def _finish(self, kind: Kind, rows: float, in_flight: Mapping[Kind, int]) -> float:
        """Return the seconds in which a slot is done with its own work and so many rows more."""
        working = (in_flight.get(kind, 0) / self.working(kind) + rows) * self._rates[kind].seconds_per_row
        return working + self._still_to_enter(kind)

    # --- a kind that is left out -----------------------------------------------------------------------------------

    def _rows_to_try(self, kind: Kind, remaining: int, in_flight: Mapping[Kind, int]) -> int | None:
        """Return the rows of a chunk for a kind that the stage does not use, to see what it takes; ``None``: none."""
        look = self._look
        if look is None or look.kind != kind or in_flight.get(kind) or not self.measured:
            return None
        rows_left = remaining + sum(in_flight.values())
        seconds_left = rows_left / sum(self._speed(each) for each in self.active)
        found = look.rows(rows_left, seconds_left, self._smallest, self._still_to_enter(kind))
        return None if found is None else min(found, self._limits[kind], remaining)

    def call_in(self, remaining: int, in_flight: Mapping[Kind, int]) -> str | None:
        """Use a kind that was left out from now on, if that pays by what the stage has shown; return why.

        Either chunks on it were so fast, or those on the kind that is used so slow that even what was expected of the
        other one is far better.
        """
        look, active = self._look, self.active
        if look is None or look.waits or not active or remaining <= 0 or not self._free_slots(look.kind):
            return None
        tried = look.seconds_per_row
        if not self.measured or (tried is None and not all(self._rates[kind].largest for kind in active)):
            return None
        rows = remaining + sum(in_flight.values())
        used = sum(self._speed(kind) for kind in active)
        alone = rows / used
        slots = self._free_slots(look.kind)
        if tried is not None:
            tried *= max(slots / SLOTS_SEEN, 1.0) if look.kind == "gpu" else 1.0
            pays = rows / (used + slots / tried) + TOGETHER_SECONDS <= WORTH_CALLING * alone
            reason = f"a chunk on the {look.kind.upper()} has shown that it pays there"
        elif self._rates[look.kind].known:
            other = self._entry.get(look.kind, 0.0) + rows / self._speed(look.kind)
            pays = WORSE_FACTOR * (other + TOGETHER_SECONDS) <= alone
            reason = f"{alone:.3g} s were left, and {other:.3g} s expected on the {look.kind.upper()}"
        else:
            return None
        if not pays:
            return None
        self._call(look.kind, tried)
        return reason

    def _call(self, kind: Kind, seconds_per_row: float | None) -> None:
        self._kinds = (*self._kinds, kind)
        self._look = None
        if seconds_per_row is not None:
            self._rates[kind] = Rate(seconds_per_row, self._rates[kind].largest)

    def replacement(self, kind: Kind) -> Kind | None:
        """Return the other kind that could take a chunk of a kind's, if there is one."""
        other: Kind = "cpu" if kind == "gpu" else "gpu"
        able = other in self._kinds or (self._look is not None and self._look.kind == other)
        return other if able and self._free_slots(other) else None

    def is_late(
        self, kind: Kind, rows: int, elapsed: float, before: int = 0, expected: Mapping[Kind, float] | None = None
    ) -> bool:
        """Tell whether a chunk is out for so long that the other kind should do it.

        That is so when it takes far longer than expected, and longer than the other kind would have taken for it and
        all else: then the whole takes at most twice as long as if that had done it from the first. It also is when the
        other kind would do it anew, after all else, and still be done far earlier, as its chunks of this stage have
        shown.

        Parameters
        ----------
        rows : int
            0: the size of the chunk is not known.
        elapsed : float
            Seconds since a slot has begun it.
        before : int
            Rows that the other kind has still to do, those that nobody has taken included.
        expected : mapping of kind to float, optional
            Seconds of the whole stage on each kind, for a chunk of unknown size.
        """
        other = self.replacement(kind)
        if other is None or kind not in self._kinds:
            return False
        if not rows:
            seconds = expected or {}
            if kind not in seconds or other not in seconds:
                return False
            mine, instead, seen = seconds[kind], seconds[other], False
        elif self._rates[kind].known and self._rates[other].known:
            mine = rows * self._rates[kind].seconds_per_row + self._entry.get(kind, 0.0)
            instead = (before + rows) / self._speed(other) + self._entry.get(other, 0.0)
            seen = other in self._kinds and self._rates[other].largest > 0
        else:
            return False
        instead += TOGETHER_SECONDS
        if elapsed > max(LATE_FACTOR * mine, instead, LATE_SECONDS):
            return True
        return seen and mine - elapsed > max(WORSE_FACTOR * instead, LATE_SECONDS)

    def holds_up(self, kind: Kind, rows: int, waited: float) -> bool:
        """Tell whether a chunk that only tries a kind is waited for longer than the others would take for it."""
        if kind in self.active or not rows or not self.measured:
            return False
        return waited > max(rows / sum(self._speed(each) for each in self.active), LEAST_WAIT_S)

    def give_up(self, kind: Kind, rows: int, elapsed: float) -> bool:
        """Take note that a chunk of a kind goes to the other one, which takes part from now on.

        Returns
        -------
        bool
            That it was out for so long says something about its device: it is more than was expected, or than the other
            kind took for all the rest.
        """
        other = self.replacement(kind)
        expected = self._rates[kind].seconds_per_row if self._rates[kind].known else 0.0
        slow = kind not in self._kinds or elapsed > rows * expected
        if rows and slow:
            self._rates[kind].observe(rows, elapsed)
        if other is not None and other not in self._kinds:
            self._call(other, None)
        if elapsed:
            self._stuck[kind] = self._stuck.get(kind, 0) + 1
        return slow

    def _even(self, remaining: int, in_flight: int) -> int:
        """Return the size of one of the equal chunks that a GPU stage is cut into.

        Small chunks at the end would balance the load, but on a GPU a chunk costs much the same up to some size: what
        is in flight counts as if it were still to be cut, a small rest goes with the last chunk, and what all slots
        could take at once goes to half of many.
        """
        whole, limit, slots = remaining + in_flight, self._limits["gpu"], self._slots["gpu"]
        if whole <= limit * slots:
            slots = max(-(-whole // limit), min(slots, max(slots // 2, FEW_GPU_SLOTS)), 1)
        size = max(_balanced(whole, limit, slots), min(SMALLEST_GPU_CHUNK_ROWS, limit))
        return remaining if SMALLEST_CHUNK_ROWS <= remaining <= size * LARGEST_LAST_CHUNK else size

    def _chunk_rows(self, kind: Kind) -> int:
        """Return the most rows of a kind's chunk: c0 for the GPU, c0 * p for the CPU, within bounds."""
        ratio = self.cost_ratio
        if kind == "gpu" or ratio is None:
            return self._limits[kind]
        return max(min(int(self._limits["gpu"] * ratio), self._limits["cpu"]), SMALLEST_CHUNK_ROWS)

    def _speed(self, kind: Kind) -> float:
        """Return rows a second of all working slots of a kind."""
        return self.working(kind) / self._rates[kind].seconds_per_row


def _balanced(remaining: int, largest: int, slots: int, smallest: int = SMALLEST_CHUNK_ROWS) -> int:
    """Return a chunk size not above ``largest`` that divides what remains evenly among slots.

    >>> _balanced(6_000_000, 2_000_000, 2)
    1500000
    """
    rounds = -(-remaining // max(largest * slots, 1))
    return max(-(-remaining // max(rounds * slots, 1)), min(largest, smallest))
