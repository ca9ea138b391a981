"""Check that pip's report of a dry run has the versions that RAPIDS pins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WANTED = {
    "dask": "2026.7.1",
    "distributed": "2026.7.1",
    "pandas": "3.0.",
    "cudf-cu13": "26.10.",
    "dask-cuda": "26.10.",
}


def main() -> None:
    """Exit with a message when a version is not the one wanted."""
    report = json.loads(Path(sys.argv[1]).read_text())
    found = {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in report["install"]}
    wrong = {name: found.get(name) for name, version in WANTED.items() if not str(found.get(name)).startswith(version)}
    if wrong:
        sys.exit(f"the gpu extra resolves to {wrong}, wanted {WANTED}")
    print("the gpu extra resolves to", ", ".join(f"{name} {found[name]}" for name in WANTED))


if __name__ == "__main__":
    main()
