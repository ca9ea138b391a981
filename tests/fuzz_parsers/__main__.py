"""Fuzzes one parser: ``python -m tests.fuzz_parsers --parser sql --minutes 30 --seed 1``.

The inputs are tried in a process of its own, so that a crash or a hang is seen, and named by its seed and number:
``--start N --count 1`` repeats one.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .parsers import PARSERS, Place, try_one

HANG_SECONDS = 20.0
"""Seconds that one input may take."""


def inside(name: str, seed: int, start: int, count: int, seconds: float, folder: Path, show: bool) -> None:
    """Try inputs in this process; tell about them in lines of JSON."""
    parser = PARSERS[name](Place(folder))
    end = time.monotonic() + seconds
    number = start
    while time.monotonic() < end and number < start + count:
        given = parser.make(random.Random(f"{seed} {number}"))
        if show:
            print(f"{given!r}", file=sys.stderr)
        (folder / "current").write_text(str(number))
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        wrong = try_one(parser, given)
        faulthandler.cancel_dump_traceback_later()
        if wrong is not None:
            print(json.dumps({"number": number, "wrong": wrong}), flush=True)
        number += 1
    print(json.dumps({"tried": number - start}), flush=True)


def fuzz(
    name: str, seed: int, start: int, count: int, minutes: float, show: bool = False
) -> tuple[int, dict[str, int]]:
    """Fuzz a parser; return the inputs tried, and what was found, with the first input's number."""
    tried, found = 0, {}
    end = time.monotonic() + minutes * 60
    while (left := end - time.monotonic()) > 0 and tried < count:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            arguments = ["--inside", folder, "--parser", name, "--seed", str(seed), "--start", str(start + tried)]
            arguments += ["--count", str(count - tried), "--minutes", str(left / 60), *(["--show"] if show else [])]
            done = subprocess.run(
                [sys.executable, "-m", "tests.fuzz_parsers", *arguments], stdout=subprocess.PIPE,
                stderr=None if show else subprocess.PIPE, text=True,
            )  # fmt: skip
            answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            for answer in answers:
                if "wrong" in answer:
                    found.setdefault(answer["wrong"], answer["number"])
            if done.returncode == 0:
                tried += answers[-1]["tried"]
                continue
            current = Path(folder) / "current"
            if not current.exists():
                raise RuntimeError(f"the fuzzer does not start: {done.stderr}")
            last = int(current.read_text())
            tried = last + 1 - start
            what = "hang" if "Timeout" in (done.stderr or "") else f"crash (exit status {done.returncode})"
            detail = [line for line in (done.stderr or "").splitlines() if "File" in line][:1]
            found.setdefault(f"{what} {detail}", last)
    return tried, found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_parsers", description=__doc__)
    parser.add_argument("--parser", choices=[*PARSERS, "all"], default="all")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--show", action="store_true", help="print every input")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        seconds = arguments.minutes * 60
        inside(
            arguments.parser,
            arguments.seed,
            arguments.start,
            arguments.count,
            seconds,
            arguments.inside,
            arguments.show,
        )
        return 0
    wrong = 0
    for name in PARSERS if arguments.parser == "all" else [arguments.parser]:
        start = time.monotonic()
        tried, found = fuzz(name, arguments.seed, arguments.start, arguments.count, arguments.minutes, arguments.show)
        seconds = time.monotonic() - start
        print(f"{name}: {tried} inputs in {seconds:.0f} s, {len(found)} faults", flush=True)
        for what, number in found.items():
            print(f"  --parser {name} --seed {arguments.seed} --start {number} --count 1: {what}", flush=True)
        wrong += len(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
