"""Writes ``docs/functions.md`` from the table of functions: ``python -m hybridq.plan.function_table``."""

from __future__ import annotations

from pathlib import Path

from hybridq.plan.aggregates import AGGREGATES, PARTIALS
from hybridq.plan.functions import DATE_PARTS, GROUPS, TRUNCATIONS

PAGE = Path(__file__).parent.parent.parent / "docs" / "functions.md"

_INTRODUCTION = """# Functions

Which functions a query may call, and which engines have them. A stage that calls one that an engine lacks runs on the
other engine; its report says why, and `strict=True` makes it an error. Made from the table in
`hybridq/plan/functions.py` by `python -m hybridq.plan.function_table`.

SQL is planned by DataFusion, in PostgreSQL's dialect, and functions have its names. Where PostgreSQL and DuckDB give
the same answer, it is this one; where they differ, PostgreSQL's, unless a note says otherwise. All but those of NULL
(`coalesce`, `concat`, `concat_ws`, `greatest`, `least`, IS tests) are NULL if an argument is. CASE, CAST, TRY_CAST, IN,
BETWEEN and NULLIF run on both engines. Functions of lists also have names that begin with `list_` (`list_sort`).
"""


def markdown() -> str:
    """Return the page's text."""
    lines = [_INTRODUCTION]
    for title, functions in GROUPS.items():
        lines += [f"## {title}\n", "| function | also written | CPU | GPU | note |", "|---|---|---|---|---|"]
        for function in sorted(functions, key=lambda each: each.name):
            others = ", ".join(f"`{alias}`" for alias in function.aliases if alias != function.name)
            engines = " | ".join("yes" if there else "no" for there in (function.cpu, function.gpu))
            note = function.note.replace("|", "\\|")
            lines.append(f"| `{function.name}` | {others} | {engines} | {note} |")
        lines.append("")
    lines += [f"`extract` knows {', '.join(sorted(DATE_PARTS))}.\n", f"`date_trunc` knows {', '.join(TRUNCATIONS)}.\n"]
    names = ", ".join(f"`{name}`" for name in sorted(AGGREGATES))
    on_gpu = ", ".join(f"`{each.name}`" for each in sorted(PARTIALS.values(), key=lambda each: each.name) if each.gpu)
    lines += ["## Aggregates\n", f"The CPU engine has all: {names}.\n"]
    lines += [
        f"Engines compute them in partial forms, of which the GPU engine has {on_gpu}; those made of others run on"
    ]
    lines += ["the CPU (`hybridq/physical/decompose.py` says what each is made of)."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(markdown())
