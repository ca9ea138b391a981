"""JSON lines that are written as they come, and the table of a file of them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from bench import machine


class Lines:
    """Appends lines to a file and prints them in short.

    Parameters
    ----------
    path : Path or None
        ``None``: print only.
    step : str
        Goes into each line.
    config : dict
        The same.
    """

    def __init__(self, path: Path | None, step: str, config: dict[str, Any]) -> None:
        self._path, self._step, self._config = path, step, config
        self._machine = machine.describe()
        self.all: list[dict[str, Any]] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, **values: Any) -> None:
        """Append one line."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"step": self._step, **values, "time": now, "config": self._config, "machine": self._machine}
        self.all.append(line)
        print(json.dumps({"step": self._step, **values}), flush=True)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")


COLUMNS = {
    "step": "step",
    "configuration": "configuration",
    "query": "query",
    "peer": "peer",
    "median_s": "median s",
    "first_s": "first s",
    "answer": "answer",
    "peak_device_bytes": "peak device MiB",
    "device_limit_bytes": "limit MiB",
    "decoded_bytes": "decoded MiB",
    "chunks": "chunks",
    "fallbacks": "fallbacks",
    "efficiency": "efficiency",
    "against_uncapped": "time against uncapped",
    "runs": "runs",
    "same_answers": "same answers",
    "host_growth_bytes": "host growth MiB",
    "device_growth_bytes": "device growth MiB",
}


def markdown(lines: list[dict[str, Any]]) -> str:
    """Return a table of the lines that sum something up, with the columns that any of them fills."""
    rows = [line for line in lines if not line.get("detail")]
    used = [key for key in COLUMNS if any(_cell(line, key) != "-" for line in rows)]
    text = ["| " + " | ".join(COLUMNS[key] for key in used) + " |", "|" + "---|" * len(used)]
    text += ["| " + " | ".join(_cell(line, key) for key in used) + " |" for line in rows]
    text += [f"\nFAIL {line['query']}, {line['peer']}: {line['error']}" for line in rows if line.get("error")]
    return "\n".join(text) + "\n"


def _cell(line: dict[str, Any], key: str) -> str:
    value = line.get(key)
    if key == "median_s" and line.get("error"):
        return "FAIL"
    if value is None or value == {}:
        return "-"
    if key.endswith("_bytes"):
        return f"{value / 2**20:.0f}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items())
    return str(value)
