"""Chunks that take far longer than was expected, and could be done by the other kind of device."""

from __future__ import annotations

from hybridq.dispatch.chunk_states import ChunkState, source_rows
from hybridq.dispatch.stage_run import StageRun
from hybridq.report import GIVEN_UP, MOST_SPANS, Span


def may_move(run: StageRun) -> bool:
    """Tell whether a chunk that is out may go to another kind of device, as nobody asked for this one."""
    if run.status != "running" or run.decision.forced:
        return False
    return any(count and run.policy.replacement(kind) is not None for kind, count in run.running.count.items())


def late_chunk(run: StageRun, now: float) -> ChunkState | None:
    """Return a chunk that should rather be done by the other kind of device (``PullPolicy.is_late``), if there is one.

    Of several it is the one that was begun last, if at all. One that only tries a kind is late once all have waited for
    it for longer than it would take to do it again.

    Parameters
    ----------
    run : StageRun
    now : float
        On ``time.perf_counter``.
    """
    busy = run.running.rows_left(run.policy)
    for item in run.waiting:
        busy[item.kind] = busy.get(item.kind, 0) + source_rows(item.chunk)
    prediction = run.decision.prediction
    seconds = {} if prediction is None or not prediction.confident else prediction.seconds_alone
    for state in reversed(run.running.values()):
        if run.moved_from not in (None, state.kind) or run.policy.replacement(state.kind) is None:
            continue
        rows, elapsed = source_rows(state.chunk), now - state.began if state.began else 0.0
        before = run.untaken_rows + sum(size for kind, size in busy.items() if kind != state.kind)
        if run.policy.is_late(state.kind, rows, elapsed, before, seconds):
            return state
        waited = now - max(run.last_done, state.began)
        # While an answer is handed over in order, no more is begun until the first chunk is back.
        alone = (run.exhausted or run.delivering) and len(busy) == 1 and state.began
        if alone and run.policy.holds_up(state.kind, rows, waited):
            return state
    return None


def note_given_up(run: StageRun, state: ChunkState, elapsed: float) -> None:
    """Take note that a chunk goes to the other kind of device after it has been out for so long, in seconds."""
    rows = source_rows(state.chunk)
    run.moved_from = state.kind
    slow = run.policy.give_up(state.kind, rows, elapsed)
    if slow and elapsed and len(run.report.spans) < MOST_SPANS:
        begun = max(state.began - run.origin, 0.0)
        worker = f"{GIVEN_UP} ({state.kind})"
        run.report.spans.append(Span(GIVEN_UP, state.chunk.id, worker, state.kind, rows, begun, elapsed))
