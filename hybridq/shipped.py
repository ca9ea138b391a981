"""Files that come with hybridq: plans by name (``tpch/q03``), from the installed package or from a checkout."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from hybridq.errors import RequestError

PLAN_SUFFIXES = (".sql", ".json", ".bin")


def plans_folder() -> Path:
    """Return the folder with the shipped plans."""
    package = Path(__file__).parent
    inside = package / "plans"  # in a wheel
    return inside if inside.is_dir() else package.parent / "plans"  # in a checkout


def plan_names() -> tuple[str, ...]:
    """Return the names of all shipped plans, such as ``tpch/q03``."""
    folder = plans_folder()
    found = {
        path.relative_to(folder).with_suffix("").as_posix()
        for path in folder.rglob("*")
        if path.suffix in PLAN_SUFFIXES
    }
    return tuple(sorted(found))


def find_plan(name: str) -> Path:
    """Return the file that a plan argument means: a path that exists, else a shipped plan's name.

    A shipped name may have its suffix (``tpch/q03.json``); without one, SQL is preferred.

    Raises
    ------
    RequestError
        It is neither; the message offers the nearest shipped names.
    """
    path = Path(name)
    if path.suffix in PLAN_SUFFIXES and _is_file(path):
        return path
    folder = plans_folder()
    candidates = [folder / f"{name}{suffix}" for suffix in ("", *PLAN_SUFFIXES)]
    for candidate in candidates:
        found = candidate.suffix in PLAN_SUFFIXES and _is_file(candidate)
        if found and candidate.resolve().is_relative_to(folder.resolve()):
            return candidate
    if _is_file(path):
        raise RequestError(f"plan {name} must be a .sql file or a Substrait .json or .bin file")
    if name and _is_folder(path):
        raise RequestError(f"plan {name} is a folder: give a .sql file, or a Substrait .json or .bin file")
    short = re.fullmatch(r"(?:tpch/)?q?([1-9])", name)
    if short is not None:
        raise RequestError(f"no plan {name!r}: no such file; the shipped plan is tpch/q{short[1]:0>2}")
    near = difflib.get_close_matches(name, plan_names(), n=3)
    some = f"nearest: {', '.join(near)}" if near else f"there are {', '.join(plan_names()[:2])} and others"
    raise RequestError(f"no plan {name!r}: no such file, and no shipped plan of that name ({some})")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _is_file(path: Path) -> bool:
    """Tell whether a path is a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False
