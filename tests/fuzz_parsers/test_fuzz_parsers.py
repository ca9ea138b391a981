"""A few hostile inputs to every parser; ``python -m tests.fuzz_parsers`` has more."""

from __future__ import annotations

import random

import pytest

from fuzz_parsers.parsers import PARSERS, Place, try_one

COUNT = {"profile-json": 15, "cli": 40, "parquet-footer": 40, "parquet-pages": 40}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("name", PARSERS)
def test_only_our_errors_come_out(name, place, monkeypatch):
    from hybridq.dispatch import reading

    monkeypatch.setattr(reading, "READ_PAUSES", reading.READ_PAUSES)  # put back afterwards
    parser = PARSERS[name](place)
    for number in range(COUNT.get(name, 80)):
        given = parser.make(random.Random(f"suite {number}"))
        wrong = try_one(parser, given)
        assert wrong is None, f"{given!r}: {wrong}"


def test_a_column_name_that_is_no_text(place, tmp_path):
    """pyarrow raises UnicodeDecodeError, which is none of its own."""
    content = (place.folder / "none.parquet").read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    at = content.index(b"\x01s", start) + 1
    wrong = content[:at] + b"\x80" + content[at + 1 :]
    path = tmp_path / "u.parquet"
    path.write_bytes(wrong)
    from hybridq.errors import DataError

    with pytest.raises(DataError, match=r"u\.parquet"):
        place.session.register("w", path)


def test_a_long_text_is_planned_or_refused_in_little_time(place):
    """Looking for one word once more for every word took minutes."""
    import time

    from hybridq.errors import HybridqError

    text = "select " + "'a' or x = " * 30_000 + "'b' from u"
    start = time.thread_time()
    with pytest.raises(HybridqError):
        place.session.sql(text)
    assert time.thread_time() - start < 20


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "tpch/\0", "../plans/tpch/q01.sql\0", "é\ud800"])
def test_names_of_plans_that_no_file_can_have(name):
    from hybridq.errors import RequestError
    from hybridq.shipped import find_plan

    with pytest.raises(RequestError):
        find_plan(name)
