from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.errors import Unsupported
from hybridq.frontend.sql import plan_sql
from hybridq.physical.binding import bind, subqueries_of
from hybridq.physical.merges import AggregateMerge, SortMerge
from hybridq.physical.pipeline import (
    AlignedBuild,
    BroadcastBuild,
    PartitionedBuild,
    PartitionSource,
    ProbeStep,
    SplitSink,
    TableSource,
)
from hybridq.physical.stages import PhysicalPlan, plan_stages
from hybridq.plan.rules import optimize

PLANS = Path(__file__).parents[2] / "plans" / "tpch"


@pytest.fixture(scope="module")
def catalog(tpch_folder: Path) -> Catalog:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    return catalog


def stages(sql: str, catalog: Catalog, **options: int) -> PhysicalPlan:
    plan = optimize(plan_sql(sql, catalog.schemas()), catalog.table)
    return plan_stages(plan, catalog, Config(**{"one_chunk_rows": 0, **options}))


def test_q1_is_one_stage_that_reads_seven_columns(catalog: Catalog) -> None:
    plan = stages((PLANS / "q01.sql").read_text(), catalog)
    (stage,) = plan.stages
    assert stage.title == "scan lineitem, aggregate, sort"
    assert isinstance(stage.pipeline.source, TableSource)
    assert len(stage.pipeline.source.columns) == 7
    assert "lineitem.l_shipdate" not in stage.pipeline.source.output
    assert isinstance(stage.merge, AggregateMerge)
    assert len(stage.merge.aggregates) == 9  # five sums, three counts for AVG, COUNT(*)
    assert stage.schema == plan.schema


def test_q3_broadcasts_two_build_sides(catalog: Catalog) -> None:
    plan = stages((PLANS / "q03.sql").read_text(), catalog)
    tables = [s.pipeline.source.table for s in plan.stages if isinstance(s.pipeline.source, TableSource)]
    assert tables == ["customer", "orders", "lineitem"]
    assert [stage.dependencies for stage in plan.stages] == [(), (0,), (1,)]
    assert all(isinstance(build, BroadcastBuild) for stage in plan.stages for build in stage.builds)


def test_large_sides_clustered_alike_are_joined_aligned(catalog: Catalog) -> None:
    plan = stages((PLANS / "q04.sql").read_text(), catalog, broadcast_bytes=1)
    (stage,) = plan.stages
    (build,) = stage.builds
    assert isinstance(build, AlignedBuild)
    assert (build.probe_column, build.build_column) == ("o_orderkey", "l_orderkey")
    (probe,) = [step for step in stage.pipeline.steps if isinstance(step, ProbeStep)]
    assert probe.kind == "semi"
    assert "aligned on l_orderkey" in stage.title


@pytest.fixture
def shuffled(tmp_path: Path) -> Catalog:
    """Tables a, b and c of two keys each, which are nowhere clustered."""
    numbers = np.random.default_rng(5)
    for name in ("a", "b", "c"):
        keys = pa.table({"k": numbers.permutation(10_000), "l": numbers.permutation(10_000)})
        pq.write_table(keys, tmp_path / f"{name}.parquet", row_group_size=100)
    catalog = Catalog()
    catalog.register_folder(tmp_path)
    return catalog


SMALL = {"broadcast_bytes": 1, "cpu_chunk_rows": 1000}


def test_sides_that_are_too_large_and_not_clustered_are_split(shuffled: Catalog) -> None:
    sql = "select count(*) from a, b where a.k = b.k"
    *splits, join = stages(sql, shuffled, broadcast_limit_bytes=1, **SMALL).stages
    assert [stage.keeps_pieces for stage in splits] == [True, True]
    assert all(isinstance(stage.pipeline.sink, SplitSink) for stage in splits)
    (build,) = join.builds
    assert isinstance(build, PartitionedBuild)
    assert isinstance(join.pipeline.source, PartitionSource)
    assert {build.stage, join.pipeline.source.stage} == {0, 1} == set(join.dependencies) == set(join.split_inputs)
    assert join.inputs == ()
    assert "(partitioned)" in join.title
    (_, probe) = stages(sql, shuffled, **SMALL).stages
    assert isinstance(probe.builds[0], BroadcastBuild)


def test_a_build_side_that_turned_out_too_large_is_split_in_another_plan(shuffled: Catalog) -> None:
    sql = "select count(*) from a, b where a.k = b.k"
    plan = optimize(plan_sql(sql, shuffled.schemas()), shuffled.table)
    config = Config(one_chunk_rows=0)
    (_, probe) = plan_stages(plan, shuffled, config).stages
    (build,) = probe.builds
    assert isinstance(build, BroadcastBuild)
    *_, join = plan_stages(plan, shuffled, config, frozenset({build.id})).stages
    assert isinstance(join.builds[0], PartitionedBuild)
    assert join.builds[0].id == build.id


def test_joins_by_the_same_key_split_the_probing_side_once(shuffled: Catalog) -> None:
    sql = "select count(*) from a join b on a.k = b.k left join c on a.k = c.k and a.l = c.l"
    plan = stages(sql, shuffled, broadcast_limit_bytes=0)
    *splits, join = plan.stages
    assert len(splits) == 3
    assert [build.split_keys for build in join.builds if isinstance(build, PartitionedBuild)] == [("b.k",), ("c.k",)]
    other = stages(sql.replace("a.k = c.k and a.l", "a.l"), shuffled, broadcast_limit_bytes=0)
    assert len(other.stages) == 5


def test_not_in_is_split_by_its_other_keys_or_with_witnesses(shuffled: Catalog) -> None:
    alone = stages("select l from a where k not in (select k from b)", shuffled, broadcast_limit_bytes=0)
    (build,) = alone.stages[-1].builds
    assert isinstance(build, PartitionedBuild)
    assert build.further == (alone.stages[build.stage].pipeline.sink.partitions,)  # type: ignore[union-attr]
    sql = "select l from a where k not in (select k from b where a.l = b.l)"
    (build,) = stages(sql, shuffled, broadcast_limit_bytes=0).stages[-1].builds
    assert isinstance(build, PartitionedBuild)
    assert (build.split_keys, build.further) == (("b.l",), ())
    sql = "select l from a where k not in (select k from b where a.l > b.l)"
    (build,) = stages(sql, shuffled, broadcast_limit_bytes=0).stages[-1].builds
    assert isinstance(build, BroadcastBuild)


def test_a_join_without_keys_whose_side_is_too_large_is_refused_by_name(shuffled: Catalog) -> None:
    with pytest.raises(Unsupported, match=r"no keys.*a\.k < b\.k.*broadcast_limit_bytes"):
        stages("select count(*) from a, b where a.k < b.k", shuffled, broadcast_limit_bytes=1, **SMALL)


def test_limit_without_order_stops_early(catalog: Catalog) -> None:
    (stage,) = stages("select l_orderkey from lineitem limit 5 offset 2", catalog).stages
    assert stage.early_stop == 7


def test_order_by_with_limit_keeps_the_top_of_each_chunk(catalog: Catalog) -> None:
    (stage,) = stages("select l_orderkey from lineitem order by l_extendedprice limit 5", catalog).stages
    assert "top 5" in stage.title
    assert isinstance(stage.merge, SortMerge)
    assert [field.name for field in stage.schema] == ["lineitem.l_orderkey"]


def test_an_aggregate_of_an_aggregate_reads_the_first_ones_stage(catalog: Catalog) -> None:
    sql = "select n, count(*) from (select count(*) n from lineitem group by l_orderkey) t group by n"
    plan = stages(sql, catalog)
    assert [stage.title for stage in plan.stages] == ["scan lineitem, aggregate", "read stage 0, aggregate"]


def test_constants_need_no_table(catalog: Catalog) -> None:
    (stage,) = stages("select 1 as one, 'x' as x", catalog).stages
    assert stage.values is not None


def test_a_full_join_is_a_left_join_and_the_right_rows_without_a_match(catalog: Catalog) -> None:
    plan = stages("select count(*) from nation full join region on n_regionkey = r_regionkey", catalog)
    (last,) = (stage for stage in plan.stages if stage.more)
    kinds = [step.kind for branch in last.branches for step in branch.pipeline.steps if isinstance(step, ProbeStep)]
    assert kinds == ["left", "anti"]


def test_a_subquery_is_a_stage_whose_value_others_wait_for(catalog: Catalog) -> None:
    plan = stages("select count(*) from region where r_regionkey > (select min(n_nationkey) from nation)", catalog)
    subquery, last = plan.stages
    assert last.subqueries == ((0, subquery.id),)
    assert (last.inputs, last.dependencies) == ((), (subquery.id,))
    bound = bind(last, {0: 3})
    assert isinstance(bound.pipeline.source, TableSource)
    assert str(bound.pipeline.source.predicate) == "(region.r_regionkey > 3)"
    assert subqueries_of(last) == {0}
    assert subqueries_of(bound) == frozenset()
