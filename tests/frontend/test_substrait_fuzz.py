"""Broken and hostile plans: only errors of hybridq come out, and what is planned makes sense."""

from __future__ import annotations

import copy
import json
from contextlib import suppress

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from substrait.proto import Plan as SubstraitPlan

from hybridq.errors import HybridqError
from hybridq.frontend.sql import export_substrait
from hybridq.frontend.substrait import load_substrait, plan_substrait
from hybridq.plan.expressions import columns_of
from hybridq.plan.nodes import Filter, walk

SEEDS = [
    "select l_returnflag, sum(l_tax), count(*) from lineitem where l_shipmode in ('a', 'b', 'c', 'd') "
    "group by 1 order by 1 limit 3 offset 1",
    "select * from nation a full join nation b on a.n_nationkey = b.n_regionkey and a.n_name < b.n_name",
    "values (1, 2.5, 'a', date '2020-01-01'), (2, null, null, null)",
    "select case n_name when 'a' then 1 else 2 end, extract(year from o_orderdate), n_name like 'a%' "
    "from nation, orders where not exists (select 1 from part where p_partkey = o_orderkey)",
]


@pytest.fixture(scope="module")
def seeds(tables):
    return [json_format.ParseDict(json.loads(export_substrait(text, tables)), SubstraitPlan()) for text in SEEDS]


def check(content, tables):
    """Only errors of hybridq come out; and a plan that comes out makes sense."""
    made = None
    with suppress(HybridqError):
        made = plan_substrait(content, tables)
    if made is None:
        return
    assert len(made.names) == len(made.root.schema)
    for node in walk(made.root):
        names = [item.name for item in node.schema]
        assert len(set(names)) == len(names)
        if isinstance(node, Filter):
            assert columns_of(node.predicate) <= {item.name for item in node.input.schema}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_bytes(data, seeds, tables):
    content = bytearray(data.draw(st.sampled_from(seeds)).SerializeToString())
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.binary(max_size=6))
        if data.draw(st.booleans()):
            content[position : position + len(piece)] = piece
        else:
            content[position:position] = piece
    check(bytes(content), tables)


def messages_in(message):
    found, pending = [], [message]
    while pending:
        current = pending.pop()
        found.append(current)
        for descriptor, value in current.ListFields():
            if descriptor.message_type is not None:
                pending.extend(value if descriptor.is_repeated else [value])
    return [item for item in found if item.DESCRIPTOR.fields]


def mutate(message, data):
    """Change, clear or copy one field somewhere in a plan."""
    everything = messages_in(message)
    target = data.draw(st.sampled_from(everything))
    descriptor = data.draw(st.sampled_from(list(target.DESCRIPTOR.fields)))
    value = getattr(target, descriptor.name)
    if descriptor.message_type is not None:
        alike = [item for item in everything if item.DESCRIPTOR is descriptor.message_type]
        donor = copy.deepcopy(data.draw(st.sampled_from(alike))) if alike else None
        if descriptor.is_repeated:
            if len(value) and data.draw(st.booleans()):
                del value[data.draw(st.integers(0, len(value) - 1))]
            elif donor is not None:
                value.add().CopyFrom(donor)
        elif donor is not None and data.draw(st.booleans()):
            value.CopyFrom(donor)
        else:
            target.ClearField(descriptor.name)
        return
    numbers = [-(2**63), -1, 0, 1, 2, 3, 7, 99, 2**31 - 1, 2**63 - 1]
    texts = ["", "and", "like", "extract", "nation", b"", b"\xff" * 16]
    flag = descriptor.type == descriptor.TYPE_BOOL
    new = data.draw(st.booleans() if flag else st.sampled_from([*numbers, *texts]))
    try:
        if descriptor.is_repeated:
            value.append(new)
        else:
            setattr(target, descriptor.name, new)
    except (TypeError, ValueError):
        target.ClearField(descriptor.name)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_fields(data, seeds, tables):
    message = copy.deepcopy(data.draw(st.sampled_from(seeds)))
    for _ in range(data.draw(st.integers(1, 4))):
        mutate(message, data)
    check(message.SerializeToString(), tables)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_and_files(content, tables, tmp_path_factory):
    check(content, tables)
    path = tmp_path_factory.getbasetemp() / "any.plan"
    path.write_bytes(content)
    with suppress(HybridqError):
        check(load_substrait(path), tables)
