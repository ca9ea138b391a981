"""An explanation as one HTML page without outside parts: the stages as a picture, and a timeline of each worker."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybridq.explain import Explanation, StageExplanation

COLORS = {"EXEC_CPU": "#4c78a8", "EXEC_GPU": "#59a14f", "EXEC_COP": "#b279a2"}
OTHER_COLOR = "#9d9d9d"
SECTION_COLORS = {
    "wait": "#d9d9d9", "read": "#f2a541", "build": "#8c6d46", "probe": "#c8553d", "compute": "#4c78a8",
    "sink": "#59a14f", "merge": "#6b4c9a",
}  # fmt: skip
"""In the order in which a chunk goes through them."""

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y = 250, 78, 30, 46
CHART_WIDTH, LABEL_WIDTH, LANE_HEIGHT = 930, 220, 16

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 24px auto; max-width: 1220px; color: #222; background: #fff; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin-top: 28px; }
table { border-collapse: collapse; } td, th { padding: 3px 10px; border-bottom: 1px solid #ddd; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg text { font: 12px system-ui, sans-serif; } .key span { padding: 2px 8px; margin-right: 6px; color: #fff; }
.scroll { overflow-x: auto; }
"""


def page(explanation: Explanation) -> str:
    """Return the page.

    Parameters
    ----------
    explanation : Explanation
        With ``analyze`` it has a timeline as well.
    """
    seconds = ", ".join(f"{name} {value:.3f} s" for name, value in explanation.seconds.items())
    parts = [
        f"<h1>mode {_text(explanation.mode)}, {len(explanation.stages)} stages</h1>",
        f"<p>Answer: {_text(', '.join(explanation.columns))}{'<br>Took ' + _text(seconds) if seconds else ''}</p>",
        "<h2>Stages</h2>",
        _key(COLORS),
        f'<div class="scroll">{_graph(explanation.stages)}</div>',
        "<h2>What each mode is expected to take</h2>",
        _table(explanation.stages),
    ]
    spans = [(stage.id, span) for stage in explanation.stages for span in (stage.actual or {}).get("spans", ())]
    if spans:
        devices = [device for stage in explanation.stages for device in (stage.actual or {}).get("devices", ())]
        engines = {str(device["worker"]): str(device["engine"]) for device in devices}
        timeline = _timeline(spans, engines)
        parts += ["<h2>Workers over time</h2>", _key(SECTION_COLORS), f'<div class="scroll">{timeline}</div>']
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Query plan</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _key(colors: Mapping[str, str]) -> str:
    items = "".join(f'<span style="background:{color}">{name}</span>' for name, color in colors.items())
    return f'<p class="key">{items}</p>'


# --- stages --------------------------------------------------------------------------------------------------------


def _graph(stages: Sequence[StageExplanation]) -> str:
    """Draw the stages, inputs above those that read them."""
    level: dict[int, int] = {}
    for stage in stages:
        level[stage.id] = 1 + max((level[number] for number in stage.dependencies if number in level), default=-1)
    columns: dict[int, int] = {}
    place: dict[int, tuple[float, float]] = {}
    for stage in stages:
        row = level[stage.id]
        column = columns.get(row, 0)
        columns[row] = column + 1
        place[stage.id] = (column * (BOX_WIDTH + GAP_X), row * (BOX_HEIGHT + GAP_Y))
    width = max(columns.values(), default=1) * (BOX_WIDTH + GAP_X)
    height = (max(level.values(), default=0) + 1) * (BOX_HEIGHT + GAP_Y)
    drawn = [
        f'<line x1="{place[number][0] + BOX_WIDTH / 2}" y1="{place[number][1] + BOX_HEIGHT}" '
        f'x2="{place[stage.id][0] + BOX_WIDTH / 2}" y2="{place[stage.id][1]}" stroke="#888"/>'
        for stage in stages
        for number in stage.dependencies
        if number in place
    ]
    drawn += [_box(stage, *place[stage.id]) for stage in stages]
    return f'<svg width="{width}" height="{height}" role="img" aria-label="stages">{"".join(drawn)}</svg>'


def _box(stage: StageExplanation, x: float, y: float) -> str:
    color = COLORS.get(stage.mode, OTHER_COLOR)
    lines = [f"stage {stage.id}: {stage.mode}", *_wrapped(stage.title, 40)[:2]]
    if stage.actual is not None:
        expected = f" ({stage.predicted_s:.3f} expected)" if stage.predicted_s is not None else ""
        lines.append(f"{stage.actual['actual_s']:.3f} s{expected}")
    elif stage.predicted_s is not None:
        lines.append(f"{stage.predicted_s:.3f} s expected")
    words = "".join(
        f'<text x="{x + 8}" y="{y + 18 + 17 * number}" fill="#fff">{_text(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<g><title>{_text(stage.title)}\n{_text(stage.reason)}</title><rect x="{x}" y="{y}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="5" fill="{color}"/>{words}</g>'
    )


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _table(stages: Sequence[StageExplanation]) -> str:
    rows = []
    for stage in stages:
        expected = {each.mode: each.seconds for each in stage.predictions}
        cells = "".join(
            f'<td class="number">{f"{expected[mode]:.3f} s" if mode in expected else ""}</td>' for mode in COLORS
        )
        actual = f"{stage.actual['actual_s']:.3f} s" if stage.actual is not None else ""
        rows.append(
            f'<tr><td>{stage.id}</td>{cells}<td class="number">{actual}</td><td>{_text(stage.mode)}: '
            f"{_text(stage.reason)}</td></tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in ("stage", *COLORS, "actual", "why"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


# --- time ----------------------------------------------------------------------------------------------------------


def _timeline(spans: Sequence[tuple[int, Mapping[str, Any]]], engines: Mapping[str, str]) -> str:
    """Draw what each worker did when: a bar a task, its sections in colours, empty where it idled."""
    end = max(span["start_s"] + span["seconds"] for _, span in spans) or 1.0
    scale = CHART_WIDTH / end
    drawn: list[str] = []
    top = 0
    for worker in sorted({str(span["worker"]) for _, span in spans}):
        own = sorted(
            ((stage, span) for stage, span in spans if str(span["worker"]) == worker),
            key=lambda item: item[1]["start_s"],
        )
        lanes: list[float] = []  # when each lane's last task ends: a worker may have several threads
        for stage, span in own:
            lane = next((i for i, ends in enumerate(lanes) if ends <= span["start_s"] + 1e-3), len(lanes))
            if lane == len(lanes):
                lanes.append(0.0)
            lanes[lane] = span["start_s"] + span["seconds"]
            drawn.append(_bar(stage, span, scale, top + lane * LANE_HEIGHT))
        engine = engines.get(worker, "")
        name = f"{worker} ({engine})" if engine.startswith("simulated") else worker
        busy = sum(span["seconds"] for _, span in own) / (len(lanes) * end)
        drawn.append(f'<text x="0" y="{top + 12}">{_text(name)}, {busy:.0%} busy</text>')
        top += len(lanes) * LANE_HEIGHT + 8
    ticks = "".join(
        f'<text x="{LABEL_WIDTH + CHART_WIDTH * part / 4}" y="{top + 14}">{end * part / 4:.3f} s</text>'
        for part in range(5)
    )
    size = f'width="{LABEL_WIDTH + CHART_WIDTH + 70}" height="{top + 24}"'
    return f'<svg {size} role="img" aria-label="timeline">{"".join(drawn)}{ticks}</svg>'


def _bar(stage: int, span: Mapping[str, Any], scale: float, y: int) -> str:
    height = LANE_HEIGHT - 3
    sections = {"merge": span["seconds"]} if span["what"] == "merge" else span["sections"]
    x = LABEL_WIDTH + span["start_s"] * scale
    width = max(span["seconds"] * scale, 0.5)
    bars = [f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="#eee" stroke="#999"/>']
    at = x
    for name, color in SECTION_COLORS.items():
        part = sections.get(name, 0.0) * scale
        if part > 0:
            part = min(part, x + width - at)
            bars.append(f'<rect x="{at:.2f}" y="{y}" width="{max(part, 0):.2f}" height="{height}" fill="{color}"/>')
            at += part
    detail = ", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in sections.items() if value)
    label = f"stage {stage}, {span['what']} {span['number']}: {span['rows']:,} rows, {detail}"
    return f"<g><title>{_text(label)}</title>{''.join(bars)}</g>"
