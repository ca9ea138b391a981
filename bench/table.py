"""The Markdown table of a run."""

from __future__ import annotations

from typing import Any

BASELINE = "duckdb"


def markdown(lines: list[dict[str, Any]]) -> str:
    """Return a page with one row a query and one column a peer: median seconds, and the ratio to DuckDB's."""
    first = lines[0]
    config, info = first["config"], first["machine"]
    peers = list(config["peers"])
    queries = list(dict.fromkeys(line["query"] for line in lines))
    by_place = {(line["query"], line["peer"]): line for line in lines}
    workers = [peer for peer in peers if any(by_place[query, peer]["peak_worker_bytes"] for query in queries)]
    header = ["query", *peers, *(f"peak worker MiB, {peer}" for peer in workers), "same answers"]
    rows = []
    for query in queries:
        base = by_place.get((query, BASELINE), {}).get("median_s")
        cells = [query]
        cells += [_seconds(by_place[query, peer], None if peer == BASELINE else base) for peer in peers]
        for peer in workers:
            peak = by_place[query, peer]["peak_worker_bytes"]
            cells.append(f"{peak / 2**20:.0f}" if peak else "-")
        wrong = [peer for peer in peers if not by_place[query, peer]["same_answer"]]
        cells.append("yes" if not wrong else f"**no**: {', '.join(wrong)}")
        rows.append(cells)
    versions = ", ".join(f"{name} {value}" for name, value in info["versions"].items())
    text = [
        f"# TPC-H queries at scale factor {config['scale_factor']:g}",
        "",
        f"{first['time']}, commit {info['commit']}, {info['cores']} cores of {info['cpu']}, "
        f"{info['memory_bytes'] / 2**30:.0f} GiB, load before {info['load_before']}; Python {info['python']}, "
        f"{versions}.",
        "",
        f"Seconds, medians of {config['repeats']} warm runs ({config['slow_repeats']} for dask.dataframe), the peers"
        " taking turns; in brackets the ratio to DuckDB; after the slash the first run in the process. From the query's"
        f" text to an Arrow table. {_disk(lines)} FAIL: an error or a wrong answer.",
        "",
        *(f"- {name}: {note}" for name, note in config["peers"].items()),
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(cells) + " |" for cells in rows),
        "",
        "Derived from TPC-H; not comparable with published TPC-H results.",
        "",
    ]
    return "\n".join(text)


def _disk(lines: list[dict[str, Any]]) -> str:
    reads = [count for line in lines for count in line.get("disk_read_bytes", ())]
    if not reads:
        return "The files had been read just before; whether they stayed in the page cache was not recorded."
    return f"Read from disk during a warm run, by the whole machine: {max(reads) / 2**20:.0f} MiB at most."


def _seconds(line: dict[str, Any], base: float | None) -> str:
    if line["error"] or line["median_s"] is None:
        return "FAIL"
    ratio = f" ({line['median_s'] / base:.2f}x)" if base else ""
    return f"{line['median_s']:.3f}{ratio} / {line['first_s']:.2f}"
