"""The Markdown page of a run: seconds, and ratios pair by pair.

    python -m bench.table RESULT.jsonl

prints the page of a result that was written before.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from bench.suites import SUITES

BASELINE = "duckdb"

Line = dict[str, Any]


def markdown(lines: list[Line]) -> str:
    """Return a page: medians with the ratio to DuckDB's, what failed, ratios of hybridq's modes to all others."""
    first = lines[0]
    suite = SUITES[first["config"].get("suite", "tpch")]
    config, info = first["config"], first["machine"]
    peers = list(dict.fromkeys(line["peer"] for line in lines))
    queries = list(dict.fromkeys(line["query"] for line in lines))
    by_place = {(line["query"], line["peer"]): line for line in lines}
    versions = ", ".join(f"{name} {value}" for name, value in info["versions"].items())
    slow = config.get("slow", ["dask.dataframe"])
    fewer = f" ({config['slow_repeats']} for {', '.join(slow)})" if slow else ""
    text = [
        f"# {suite.title} queries at scale factor {config['scale_factor']:g}",
        "",
        f"{first['time']}, commit {info['commit']}, {info['cores']} cores of {info['cpu']}, "
        f"{info['memory_bytes'] / 2**30:.0f} GiB{_gpus(info)}, load before {info['load_before']}; "
        f"Python {info['python']}, {versions}.",
        "",
        f"Seconds, medians of {config['repeats']} warm runs{fewer} in {config.get('rounds', 1)} round(s); in brackets "
        "the ratio to DuckDB; after the slash the first run of the query in its process"
        f"{', the files dropped from the page cache' if config.get('cold') else ''}. Planning, "
        f"reading and collecting included. {_disk(lines)}",
        "",
        *(f"- {name}: {note}" for name, note in config["peers"].items()),
        "",
        *_table(["query", *peers], [[query, *_seconds(query, peers, by_place)] for query in queries]),
        "",
        *_answers(lines, queries, peers, by_place),
        *_pairs(queries, peers, by_place),
        *_stages(queries, peers, by_place),
        *_memory(queries, peers, by_place),
        suite.note,
        "",
    ]
    return "\n".join(text)


def ratios(lines: list[Line], of: str, to: str) -> dict[str, float]:
    """Return, for each query that both peers answered, how many times as long ``to`` took as ``of``."""
    medians = {(line["query"], line["peer"]): line["median_s"] for line in lines}
    queries = dict.fromkeys(line["query"] for line in lines)
    pairs = {query: (medians.get((query, of)), medians.get((query, to))) for query in queries}
    return {query: theirs / ours for query, (ours, theirs) in pairs.items() if ours and theirs}


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean.

    >>> geometric_mean([2.0, 8.0])
    4.0
    """
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]


def _gpus(info: dict[str, Any]) -> str:
    found = info.get("gpus") or []
    return "".join(f", {gpu['name']} of {gpu['memory_bytes'] / 2**30:.0f} GiB" for gpu in found)


def _disk(lines: list[Line]) -> str:
    reads = [count for line in lines for count in line.get("disk_read_bytes") or ()]
    if not reads:
        return "What was read from disk was not recorded."
    return f"Read from disk during a warm run, by the whole machine: {max(reads) / 2**20:.0f} MiB at most."


def _seconds(query: str, peers: list[str], by_place: dict[tuple[str, str], Line]) -> list[str]:
    base = by_place.get((query, BASELINE), {}).get("median_s")
    cells = []
    for peer in peers:
        line = by_place.get((query, peer))
        if line is None:
            cells.append("-")
        elif line["error"] or line["median_s"] is None:
            cells.append("FAIL")
        else:
            ratio = f" ({line['median_s'] / base:.2f}x)" if base and peer != BASELINE else ""
            cells.append(f"{line['median_s']:.3f}{ratio} / {line['first_s']:.2f}")
    return cells


def _answers(
    lines: list[Line], queries: list[str], peers: list[str], by_place: dict[tuple[str, str], Line]
) -> list[str]:
    rows = [
        [query, *(str(by_place.get((query, peer), {}).get("answer") or "-") for peer in peers)] for query in queries
    ]
    text = [
        "Answers against DuckDB's exact ones (quotients of decimals computed from their two parts). Exact: all types"
        " and digits; rounded: the largest relative difference of a number.",
        "",
        *_table(["query", *peers], rows),
        "",
    ]
    failed: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        if line["error"]:
            failed.setdefault((line["peer"], line["error"]), []).append(line["query"])
    found = [f"- FAIL {', '.join(names)}, {peer}: {error}" for (peer, error), names in failed.items()]
    return text + found + [""] * bool(found)


def _pairs(queries: list[str], peers: list[str], by_place: dict[tuple[str, str], Line]) -> list[str]:
    ours = [peer for peer in peers if peer.startswith("hybridq")]
    if not ours or len(peers) < 2:
        return []
    lines = list(by_place.values())
    rows = []
    for mode in ours:
        found = {peer: ratios(lines, mode, peer) for peer in peers}
        for query in queries:
            cells = [f"{found[peer][query]:.2f}" if query in found[peer] and peer != mode else "-" for peer in peers]
            rows.append([query, mode, *cells])
        means = [_mean(found[peer]) if peer != mode else "-" for peer in peers]
        rows.append(["geometric mean", mode, *means])
    text = "Pair by pair: the other's median over that of hybridq's mode; above 1 hybridq is faster. Means over the "
    text += "queries that both answered, with their number where it is not all."
    return [text, "", *_table(["query", "hybridq's mode", *peers], _with_counts(rows, queries)), ""]


def _mean(found: dict[str, float]) -> str:
    return f"{geometric_mean(list(found.values())):.2f} of {len(found)}" if found else "-"


def _with_counts(rows: list[list[str]], queries: list[str]) -> list[list[str]]:
    return [[cell.removesuffix(f" of {len(queries)}") for cell in row] for row in rows]


def _stages(queries: list[str], peers: list[str], by_place: dict[tuple[str, str], Line]) -> list[str]:
    """Tell where each of hybridq's queries ran, from its last report."""
    rows = []
    for query, peer in ((query, peer) for query in queries for peer in peers):
        line = by_place.get((query, peer), {})
        modes, number, retries = line.get("modes"), line.get("fallbacks") or 0, line.get("retries") or 0
        if not modes or (peer == "hybridq cpu" and set(modes) == {"EXEC_CPU"} and not number and not retries):
            continue
        found = line.get("stage_chunks") or [{}] * len(modes)
        stages = " ".join(stage_text(mode, chunks) for mode, chunks in zip(modes, found, strict=True))
        chunks = ", ".join(f"{engine} {count}" for engine, count in sorted((line.get("chunks") or {}).items()))
        causes = "; ".join(line.get("fallback_causes") or ()).replace("|", "\\|")
        fallbacks = f"{number}: {causes}" if number else "-"
        rows.append([query, peer.removeprefix("hybridq "), stages, chunks, str(retries), fallbacks])
    if not rows:
        return []
    text = "Where hybridq ran, in its last run of a query: the way of each stage with its chunks (where a stage was"
    text += (
        " shared, of CPU + GPU), all chunks by engine, chunks that were handed out again, and what did not run where it"
    )
    text += " was to, with the causes. Left out where mode cpu had nothing of that to tell."
    return [text, "", *_table(["query", "mode", "stages", "chunks", "retries", "fallbacks"], rows), ""]


def stage_text(mode: str, chunks: dict[str, int]) -> str:
    """Return a stage's way and its chunks.

    >>> stage_text("EXEC_GPU", {"gpu": 3}), stage_text("EXEC_COP", {"cpu": 1, "gpu": 9}), stage_text("EXEC_CPU", {})
    ('gpu:3', 'cop:1+9', 'cpu')
    """
    way = mode.removeprefix("EXEC_").lower()
    if not chunks:
        return way
    if way == "cop" or set(chunks) != {way}:
        return f"{way}:{chunks.get('cpu', 0)}+{chunks.get('gpu', 0)}"
    return f"{way}:{chunks[way]}"


def _memory(queries: list[str], peers: list[str], by_place: dict[tuple[str, str], Line]) -> list[str]:
    rows = []
    for query in queries:
        cells = [query]
        for peer in peers:
            line = by_place.get((query, peer), {})
            host, device = line.get("peak_process_bytes"), line.get("peak_device_bytes")
            shown = f"{host / 2**20:.0f}" if host else "-"
            cells.append(shown + (f" / {device / 2**20:.0f}" if device else ""))
        rows.append(cells)
    text = "Peak memory in MiB: resident, of the peer's largest process; after the slash device memory by its report."
    return [text, "", *_table(["query", *peers], rows), ""]


if __name__ == "__main__":
    print(markdown([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]))
