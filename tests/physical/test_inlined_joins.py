"""Very small tables are read by the chunks that join them, without a stage of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.frontend.sql import plan_sql
from hybridq.physical.pipeline import AlignedBuild
from hybridq.physical.stages import plan_stages
from hybridq.physical.units import ChunkSource
from hybridq.plan.rules import optimize
from hybridq.session import Session
from hybridq.testing.in_process import connect_in_process


@pytest.fixture(scope="module")
def catalog(tpch_folder: Path) -> Catalog:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    return catalog


SUPPLIERS = """
    select count(*) from supplier, nation, region
    where s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'EUROPE'
"""


def test_tables_within_tables_are_inlined(catalog: Catalog) -> None:
    (stage,) = plan_stages(optimize(plan_sql(SUPPLIERS, catalog.schemas()), catalog.table), catalog, Config()).stages
    assert stage.title == "scan supplier, inner join nation (inlined), aggregate"
    assert [type(build) for build in stage.builds] == [AlignedBuild, AlignedBuild]
    chunk = ChunkSource(stage, catalog, Config(chunk_units=1)).take(1)
    assert chunk is not None
    assert sorted(units.rows for _, units in chunk.aligned) == [5, 25]


def test_a_large_table_is_not_read_again(catalog: Catalog) -> None:
    sql = "select count(*) from lineitem, orders where l_orderkey = o_orderkey and l_quantity > o_totalprice / 10000"
    plan = optimize(plan_sql(sql, catalog.schemas()), catalog.table)
    first, _ = plan_stages(plan, catalog, Config(one_chunk_rows=0)).stages
    assert first.title == "scan orders, collect"


def test_tables_of_one_chunk_are_joined_in_one_task(catalog: Catalog) -> None:
    sql = """
        select c_mktsegment, count(*) from customer, orders, lineitem, supplier, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey and s_nationkey = n_nationkey
        group by 1
    """
    plan = optimize(plan_sql(sql, catalog.schemas()), catalog.table)
    assert len(plan_stages(plan, catalog, Config()).stages) == 1
    for several in ({"chunk_units": 1}, {"cpu_chunk_rows": 10_000}, {"gpu_chunk_rows": 10_000}, {"one_chunk_rows": 0}):
        assert len(plan_stages(plan, catalog, Config(**several)).stages) > 1


@pytest.mark.parametrize(("rows", "probing", "stages"), [(4000, 100_000, 1), (4100, 100_000, 2), (4000, 2**21 + 1, 2)])
def test_a_small_table_is_read_by_each_of_a_few_chunks(rows: int, probing: int, stages: int) -> None:
    catalog = Catalog()
    catalog.register("small", pa.table({"k": range(rows)}))
    catalog.register("large", pa.table({"k": pa.array(np.zeros(probing, np.int64))}))
    plan = optimize(plan_sql("select count(*) from large natural join small", catalog.schemas()), catalog.table)
    assert len(plan_stages(plan, catalog, Config(one_chunk_rows=2**16)).stages) == stages


@pytest.mark.parametrize("mode", ["cpu", "gpu", "cop"])
def test_the_answers(tpch_folder: Path, mode: str) -> None:
    with connect_in_process(chunk_units=1) as session:
        session.register_folder(tpch_folder)
        expected = answer(session, SUPPLIERS, "cpu", broadcast=True)
        assert answer(session, SUPPLIERS, mode, broadcast=False) == expected
        # A table in memory travels in the chunk; a filter may leave none of its rows.
        session.register("places", session.sql("select * from nation").collect(mode="cpu").to_arrow())
        for condition, count in (("n_nationkey >= 0", expected), ("n_nationkey < 0", [(0,)])):
            sql = SUPPLIERS.replace("nation,", "places,") + " and " + condition
            assert answer(session, sql, mode, broadcast=False) == count


def answer(session: Session, sql: str, mode: str, broadcast: bool) -> list[tuple[object, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        if broadcast:
            patch.setattr("hybridq.physical.stages.INLINED_ROWS", 0)  # with ``chunk_units`` nothing else is inlined
        columns = session.sql(sql).collect(mode=mode).to_arrow().to_pydict().values()
    return list(zip(*columns, strict=True))
