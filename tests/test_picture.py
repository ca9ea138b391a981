"""The HTML page of an explanation."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from hybridq.shipped import find_plan
from hybridq.testing.in_process import connect_in_process


@pytest.fixture(scope="module")
def session(tpch_folder):
    with connect_in_process(broadcast_bytes=8_000, chunk_units=4) as found:
        found.register_folder(tpch_folder)
        yield found


def parse(page):
    """The page is well-formed, so that a strict reader takes it."""
    assert page.startswith("<!doctype html>")
    text = page.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', "").replace("<br>", "<br/>")
    return ElementTree.fromstring(text)


def test_a_page_stands_alone_and_has_every_stage_and_chunk(session):
    query = session.sql(find_plan("tpch/q03").read_text())
    explanation = query.explain(mode="cop", analyze=True)
    page = explanation.to_html()
    assert "http" not in page
    assert "<script" not in page
    stages, timeline = parse(page).iter("svg")
    assert len(list(stages.iter("rect"))) == len(explanation.stages)
    chunks = sum(len(stage.actual["spans"]) for stage in explanation.stages)
    assert len(list(timeline.iter("g"))) == chunks > len(explanation.stages)
    labels = [text.text for text in timeline.iter("text") if text.text.endswith("busy")]
    assert {label.split(",")[0] for label in labels} == {"client", "cpu", "gpu (simulated gpu)"}


def test_without_a_run_there_is_no_timeline(session):
    page = session.sql("select count(*) as n, '<&>' as t from region where r_name < 'B&<'").explain().to_html()
    assert len(list(parse(page).iter("svg"))) == 1


def test_the_text_shows_every_mode_with_its_seconds(session):
    text = str(session.sql(find_plan("tpch/q01").read_text()).explain(analyze=True))
    for mode in ("EXEC_CPU", "EXEC_GPU"):
        assert f" {mode} 0." in text
    assert "from assumptions" in text
    assert "times what was expected" in text
    plain = session.sql(find_plan("tpch/q01").read_text()).explain(mode="gpu").to_dict()["stages"][0]
    assert {each["mode"] for each in plain["predictions"]} >= {"EXEC_CPU", "EXEC_GPU"}
    assert all(each["sections"]["read"] > 0 for each in plain["predictions"])
