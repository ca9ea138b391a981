from __future__ import annotations

from .sql_page import DIFFERENCES, PAGE, SECTIONS, make_page


def test_the_page_is_fresh():
    assert PAGE.read_text() == make_page(), "run  python -m tests.sql.sql_page"


def test_nothing_is_said_twice():
    examples = [sql for rows in SECTIONS.values() for _, sql in rows] + [sql for _, sql in DIFFERENCES]
    assert len(set(examples)) == len(examples)
