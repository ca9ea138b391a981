"""What tasks read of earlier stages is made again when its worker dies, whether one task reads it or all."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

import hybridq.dispatch.driver
from hybridq.session import connect

QUERY = (
    "select o_orderpriority, count(*) as n, sum(l_quantity) as q from lineitem, orders where l_orderkey = o_orderkey"
    " group by o_orderpriority order by o_orderpriority"
)


@pytest.mark.parametrize("when", ["before it is read", "while it is read"])
def test_a_worker_that_dies_with_a_part_of_a_build_side(tpch_folder, monkeypatch, when):
    workers = [{"kind": "cpu", "processes": 2, "threads": 1, "memory": "2GiB"}]
    in_parts, stay = [], hybridq.dispatch.driver.StageRun.stay_in_parts
    with connect({"workers": workers}, cpu_chunk_rows=4000) as session:
        session.register_folder(tpch_folder)
        query = session.sql(QUERY)
        expected = query.collect(mode="cpu").to_arrow()
        pids = {device.address: device.pid for device in session.devices()}

        def kill(run):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[run.parts[-1].address], signal.SIGKILL)

        def stay_in_parts(run):
            stay(run)
            in_parts.append(len({part.address for part in run.parts}))
            if when == "before it is read":
                kill(run)

        monkeypatch.setattr(hybridq.dispatch.driver.StageRun, "stay_in_parts", stay_in_parts)
        handle = query.submit(mode="cpu")
        if when == "while it is read":
            while (progress := handle.progress()).stages_done < 1 and not progress.finished:
                time.sleep(0.001)
            time.sleep(0.02)
            kill(next(iter(handle._driver._runs.values())))
        assert handle.result(timeout=120).to_arrow().equals(expected)
        assert in_parts
        assert in_parts[0] == 2
