from __future__ import annotations

import base64
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import json_format
from substrait.proto import Plan as SubstraitPlan

from hybridq.errors import DataError, HybridqError, PlanFormatError, UnknownColumn, UnknownTable, Unsupported
from hybridq.frontend.sql import plan_sql
from hybridq.frontend.substrait import load_substrait, plan_substrait
from hybridq.frontend.substrait_messages import nesting
from hybridq.plan.nodes import Aggregate, Filter, Join, Limit, Project, Scan, Sort, walk
from hybridq.shipped import plans_folder
from hybridq.types import Field

NULLABLE = {"nullability": "NULLABILITY_NULLABLE"}
I64, STRING, BOOL = {"i64": NULLABLE}, {"string": NULLABLE}, {"bool": NULLABLE}
MONEY = {"decimal": {"precision": 15, "scale": 2, **NULLABLE}}
DATE = {"date": NULLABLE}
COLUMNS = {"k": I64, "price": MONEY, "day": DATE, "name": STRING}


@pytest.fixture
def sales():
    columns = {"k": pa.int64(), "price": pa.decimal128(15, 2), "day": pa.date32(), "name": pa.string()}
    schema = tuple(Field(name, data_type) for name, data_type in columns.items())
    return {"sales": schema, "other": schema}


def field(ordinal):
    return {"selection": {"directReference": {"structField": {"field": ordinal}}, "rootReference": {}}}


def call(function, *arguments, output=None):
    body = {"functionReference": function, "arguments": [{"value": argument} for argument in arguments]}
    return {"scalarFunction": body | ({"outputType": output} if output else {})}


def number(value):
    return {"literal": {"i64": str(value)}}


def read(table="sales", columns=COLUMNS, **more):
    schema = {"names": list(columns), "struct": {"types": list(columns.values())}}
    return {"read": {"baseSchema": schema, "namedTable": {"names": [table]}, **more}}


def plan(relation, names, functions=()):
    return {
        "extensionUrns": [{"extensionUrnAnchor": 1, "urn": "extension:io.substrait:functions_arithmetic"}],
        "extensions": [
            {"extensionFunction": {"functionAnchor": anchor, "name": name}} for anchor, name in enumerate(functions)
        ],
        "relations": [{"root": {"input": relation, "names": list(names)}}],
    }


def nodes(plan, kind):
    return [node for node in walk(plan.root) if isinstance(node, kind)]


def test_functions_with_signatures_and_direct_fields(sales):
    product = call(1, field(1), field(1), output={"decimal": {"precision": 30, "scale": 4, **NULLABLE}})
    relation = {
        "project": {
            "common": {"direct": {}},
            "input": {
                "filter": {
                    "input": read(bestEffortFilter=call(0, field(0), number(3), output=BOOL)),
                    "condition": call(0, field(0), number(3), output=BOOL),
                }
            },
            "expressions": [product],
        }
    }
    made = plan_substrait(plan(relation, [*COLUMNS, "square"], ["gte:any_any", "multiply:dec_dec"]), sales)
    assert made.names == ("k", "price", "day", "name", "square")
    (node,) = nodes(made, Filter)
    assert str(node.predicate) == "(sales.k >= 3)"
    # The plan's own type holds, although ours would have one digit more.
    assert made.root.schema[-1].type == pa.decimal128(30, 4)


def test_aggregates_of_other_producers(sales):
    wide = {"decimal": {"precision": 38, "scale": 2, **NULLABLE}}
    relation = {
        "aggregate": {
            "input": read(),
            "groupingExpressions": [field(3)],
            "groupings": [{"expressionReferences": [0]}],
            "measures": [
                {
                    "measure": {
                        "functionReference": 0,
                        "outputType": wide,
                        "phase": "AGGREGATION_PHASE_INITIAL_TO_RESULT",
                        "arguments": [{"value": field(1)}],
                    }
                },
                {"measure": {"functionReference": 1, "outputType": I64}},
                {"measure": {"functionReference": 2, "outputType": wide, "arguments": [{"value": field(1)}]}},
            ],
        }
    }
    made = plan_substrait(plan(relation, ["name", "s", "c", "a"], ["sum:dec", "count:", "avg:dec"]), sales)
    (node,) = nodes(made, Aggregate)
    assert [str(item) for item in node.aggregates] == ["sum(sales.price)", "count(*)", "avg(sales.price)"]
    assert [item.type for item in node.aggregates] == [pa.decimal128(38, 2), pa.int64(), pa.decimal128(38, 2)]


def test_a_partial_aggregate_is_refused(sales):
    measure = {"functionReference": 0, "phase": "AGGREGATION_PHASE_INITIAL_TO_INTERMEDIATE"}
    relation = {"aggregate": {"input": read(), "groupings": [{}], "measures": [{"measure": measure}]}}
    with pytest.raises(Unsupported, match="partial aggregates"):
        plan_substrait(plan(relation, ["c"], ["count"]), sales)


def test_a_filter_repeated_above_its_read_is_applied_once(sales):
    condition = call(0, field(0), number(3), output=BOOL)
    above = call(0, field(1), number(3), output=BOOL)
    inner = read(filter=condition, projection={"select": {"structItems": [{"field": 1}, {"field": 0}]}})
    relation = {"filter": {"input": inner, "condition": above}}
    made = plan_substrait(plan(relation, ["price", "k"], ["lt"]), sales)
    (node,) = nodes(made, Filter)
    assert str(node.predicate) == "(sales.k < 3)"
    assert [column.source for column in nodes(made, Scan)[0].columns] == ["price", "k"]


def test_a_filter_of_a_read_may_use_columns_that_it_does_not_give(sales):
    inner = read(
        filter=call(0, field(0), number(3), output=BOOL), projection={"select": {"structItems": [{"field": 3}]}}
    )
    made = plan_substrait(plan(inner, ["name"], ["lt"]), sales)
    assert [item.name for item in made.root.schema] == ["sales.name"]
    assert {column.source for column in nodes(made, Scan)[0].columns} == {"k", "name"}


@pytest.mark.parametrize(
    ("kind", "expected", "names"),
    [
        ("INNER", "inner", ["sales.name", "other.name"]),
        ("LEFT", "left", ["sales.name", "other.name"]),
        ("RIGHT", "left", ["sales.name", "other.name"]),
        ("OUTER", "full", ["sales.name", "other.name"]),
        ("LEFT_SEMI", "semi", ["sales.name"]),
        ("RIGHT_ANTI", "anti", ["other.name"]),
    ],
)
def test_joins(kind, expected, names, sales):
    only = {"select": {"structItems": [{"field": 3}, {"field": 0}]}}
    condition = call(
        1,
        call(0, field(3), field(1), output=BOOL),
        call(2, field(0), field(2), output=BOOL),
        call(0, field(1), field(3), output=BOOL),
        output=BOOL,
    )
    two_sided = len(names) == 2
    emitted = [0, 2] if two_sided else [0]
    relation = {
        "join": {
            "common": {"emit": {"outputMapping": emitted}},
            "left": read("sales", projection=only),
            "right": read("other", projection=only),
            "expression": condition,
            "type": f"JOIN_TYPE_{kind}",
        }
    }
    made = plan_substrait(plan(relation, names, ["equal:any_any", "and:bool", "lt"]), sales)
    (join,) = nodes(made, Join)
    assert join.kind == expected
    assert join.null_aware is False
    swapped = kind.startswith("RIGHT")
    assert {str(key) for key in join.left_keys} == {"other.k" if swapped else "sales.k"}
    assert str(join.residual) == "(sales.name < other.name)"
    assert [item.name for item in made.root.schema] == names


def test_a_post_join_filter_applies_after_padding(sales):
    relation = {
        "join": {
            "left": read("sales"),
            "right": read("other"),
            "expression": call(0, field(0), field(4), output=BOOL),
            "postJoinFilter": call(1, field(4), output=BOOL),
            "type": "JOIN_TYPE_LEFT",
        }
    }
    made = plan_substrait(plan(relation, [*COLUMNS, *COLUMNS], ["equal", "is_null:any"]), sales)
    assert isinstance(made.root, Filter)
    assert isinstance(made.root.input, Join)


def test_names_of_other_cases_and_catalogs(sales):
    upper = {name.upper(): data_type for name, data_type in COLUMNS.items()}
    relation = read(columns=upper)
    relation["read"]["namedTable"]["names"] = ["CATALOG", "PUBLIC", "SALES"]
    made = plan_substrait(plan(relation, upper), sales)
    assert [item.name for item in made.root.schema] == ["sales.k", "sales.price", "sales.day", "sales.name"]
    assert made.names == ("K", "PRICE", "DAY", "NAME")


def test_a_column_given_twice_gets_a_second_name(sales):
    relation = {
        "project": {"common": {"emit": {"outputMapping": [0, 4, 0]}}, "input": read(), "expressions": [field(0)]}
    }
    made = plan_substrait(plan(relation, ["a", "b", "c"]), sales)
    assert [item.name for item in made.root.schema] == ["sales.k", "sales.k#2", "sales.k#3"]


def test_casts_case_and_extract_of_the_specification(sales):
    expressions = [
        {"cast": {"type": STRING, "input": field(0), "failureBehavior": "FAILURE_BEHAVIOR_RETURN_NULL"}},
        {"ifThen": {"ifs": [{"if": call(0, field(0), output=BOOL), "then": field(0)}], "else": number(0)}},
        {
            "scalarFunction": {
                "functionReference": 1,
                "outputType": I64,
                "arguments": [{"enum": "YEAR"}, {"value": field(2)}],
            }
        },
        {"singularOrList": {"value": field(0), "options": [number(1), field(0)]}},
        {"switchExpression": {"match": field(0), "ifs": [{"if": {"i64": "1"}, "then": number(2)}]}},
    ]
    emit = {"emit": {"outputMapping": [4, 5, 6, 7, 8]}}
    relation = {"project": {"common": emit, "input": read(), "expressions": expressions}}
    made = plan_substrait(plan(relation, "abcde", ["is_null:any", "extract:req_date"]), sales)
    (node,) = nodes(made, Project)
    assert [str(item.expression) for item in node.expressions] == [
        "try_cast(sales.k as string)",
        "CASE WHEN is_null(sales.k) THEN sales.k ELSE 0 END",
        "extract(year, sales.day)",
        "((sales.k = 1) OR (sales.k = sales.k))",
        "CASE WHEN (sales.k = 1) THEN 2 ELSE NULL END",
    ]
    assert node.expressions[2].expression.type == pa.int64()


def test_order_and_limit_in_the_old_form_too(sales):
    sort = {"sort": {"input": read(), "sorts": [{"expr": field(0), "direction": "SORT_DIRECTION_DESC_NULLS_LAST"}]}}
    old = plan({"fetch": {"input": sort, "offset": "3", "count": "5"}}, COLUMNS)
    new = plan({"fetch": {"input": sort, "offsetExpr": number(3), "countExpr": number(5)}}, COLUMNS)
    made = plan_substrait(old, sales)
    assert made == plan_substrait(new, sales)
    assert (made.root.offset, made.root.count) == (3, 5)
    (key,) = nodes(made, Sort)[0].keys
    assert (key.descending, key.nulls_first) == (True, False)
    everything = plan({"fetch": {"input": sort, "offset": "3", "count": "-1"}}, COLUMNS)
    assert plan_substrait(everything, sales).root.count is None


def test_the_old_binary_form_of_a_limit_is_not_lost(sales):
    message = json_format.ParseDict(plan({"fetch": {"input": read()}}, COLUMNS), SubstraitPlan())
    # Fields 3 and 4 of FetchRel were plain numbers: offset 2, count 7.
    fetch = message.relations[0].root.input.fetch
    fetch.MergeFromString(b"\x18\x02\x20\x07")
    (limit,) = nodes(plan_substrait(message.SerializeToString(), sales), Limit)
    assert (limit.offset, limit.count) == (2, 7)


def test_fields_that_are_not_known_are_refused(sales):
    message = json_format.ParseDict(plan({"fetch": {"input": read()}}, COLUMNS), SubstraitPlan())
    message.relations[0].root.input.fetch.MergeFromString(b"\xf8\x06\x02")  # field 111
    with pytest.raises(Unsupported, match=r"field 111 of substrait\.FetchRel"):
        plan_substrait(message.SerializeToString(), sales)


def test_json_and_binary_files_are_the_same_plan(tables, tmp_path):
    source = plans_folder() / "tpch" / "q03.json"
    binary = tmp_path / "q03.bin"
    binary.write_bytes(load_substrait(source))
    expected = plan_substrait(json.loads(source.read_text()), tables)
    assert plan_substrait(load_substrait(source), tables) == expected
    assert plan_substrait(load_substrait(binary), tables) == expected
    assert plan_sql((plans_folder() / "tpch" / "q03.sql").read_text(), tables) == expected


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"a": 1}', b"select 1", b"PAR1", bytes(range(256))])
def test_a_file_that_is_no_plan(content, tables, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(PlanFormatError):
        plan_substrait(load_substrait(path), tables)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(PlanFormatError, match="cannot read the plan"):
        load_substrait(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda schema: schema[1:], UnknownColumn, r"sales\.k, which does not exist"),
        (lambda schema: (Field("k", pa.int32()), *schema[1:]), DataError, "int32, but the plan was made for int64"),
        (lambda schema: (Field("k", pa.time64("us")), *schema[1:]), Unsupported, "time64"),
        (lambda schema: None, UnknownTable, "no table sales; did you mean"),
    ],
)
def test_tables_must_be_what_the_plan_was_made_for(change, error, words, sales):
    changed = change(sales["sales"])
    given = {"sale": sales["sales"]} if changed is None else {"sales": changed}
    with pytest.raises(error, match=words):
        plan_substrait(plan(read(), COLUMNS), given)


def test_columns_that_the_plan_does_not_use_may_differ(sales):
    relation = read(projection={"select": {"structItems": [{"field": 3}]}})
    changed = {"sales": (Field("name", pa.string()), Field("price", pa.float64()), Field("new", pa.int8()))}
    assert plan_substrait(plan(relation, ["name"]), changed).root.schema == (Field("sales.name", pa.string()),)


def test_names_of_nested_columns_are_skipped(sales):
    nested = {"struct": {"types": [I64, {"list": {"type": {"struct": {"types": [I64], **NULLABLE}}}}], **NULLABLE}}
    relation = read(projection={"select": {"structItems": [{"field": 1}]}})
    relation["read"]["baseSchema"] = {
        "names": ["both", "one", "many", "inner", "name"],
        "struct": {"types": [nested, STRING]},
    }
    assert plan_substrait(plan(relation, ["name"]), sales).root.schema == (Field("sales.name", pa.string()),)


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ({"set": {"inputs": [], "op": "SET_OP_UNSPECIFIED"}}, "a set operation of no kind"),
        ({"topN": {}}, "top-n"),
        ({"reference": {}}, "reference"),
        ({"read": {"localFiles": {"items": [{"uriFile": "file:///etc/passwd"}]}}}, "names files"),
        ({"join": {"left": read(), "right": read("other"), "type": "JOIN_TYPE_LEFT_MARK"}}, "mark join"),
        ({"join": {"left": read(), "right": read("other"), "type": "JOIN_TYPE_LEFT_SINGLE"}}, "single"),
        ({"filter": {"input": read(), "condition": {"subquery": {}}}}, "a subquery"),
        ({"filter": {"input": read(), "condition": call(0, field(0))}}, "fancy"),
        ({"sort": {"input": read(), "sorts": [{"expr": field(0), "direction": 5}]}}, "clusters"),
    ],
)
def test_what_is_not_supported_is_named(relation, words, sales):
    with pytest.raises(Unsupported, match=words):
        plan_substrait(plan(relation, COLUMNS, ["fancy:any"]), sales)


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        (read(), "names 1 columns and has 4"),
        ({"project": {"input": read(), "expressions": [field(9)]}}, "column 9 of an input that has 4"),
        ({"project": {"input": read(), "expressions": [call(7)]}}, "calls function 7"),
        ({"filter": {"input": read(), "condition": field(0)}}, "filters by a value of type int64"),
        ({}, "empty relation"),
        ({"fetch": {"input": read(), "countExpr": number(-4)}}, "negative"),
    ],
)
def test_plans_that_contradict_themselves(relation, words, sales):
    with pytest.raises(PlanFormatError, match=words):
        plan_substrait(plan(relation, ["one"], ["add"]), sales)


def test_literals(sales):
    unscaled = base64.b64encode((-225).to_bytes(16, "little", signed=True)).decode()
    literals = [
        {"i8": -3},
        {"i64": "-1", "typeVariationReference": 1},
        {
            "decimal": {
                "value": unscaled,
                "precision": 5,
                "scale": 2,
            }
        },
        {"precisionTimestamp": {"precision": 6, "value": "1500000"}},
        {"varChar": {"value": "text", "length": 9}},
        {"null": DATE},
    ]
    emit = {"emit": {"outputMapping": list(range(4, 10))}}
    relation = {"project": {"common": emit, "input": read(), "expressions": [{"literal": item} for item in literals]}}
    made = plan_substrait(plan(relation, "abcdef"), sales)
    values = [item.expression.value for item in nodes(made, Project)[0].expressions]
    assert values[:3] == [-3, 2**64 - 1, Decimal("-2.25")]
    assert (values[3].second, values[3].microsecond, values[4:]) == (1, 500000, ["text", None])
    types = [item.type for item in made.root.schema]
    assert types == [pa.int8(), pa.uint64(), pa.decimal128(5, 2), pa.timestamp("us"), pa.string(), pa.date32()]


def doubled(levels, sales):
    """A chain of projections, each adding the one below to itself."""
    relation = {"project": {"common": {"emit": {"outputMapping": [4]}}, "input": read(), "expressions": [field(0)]}}
    for _ in range(levels):
        sum_ = call(0, field(0), field(0), output=I64)
        relation = {"project": {"common": {"emit": {"outputMapping": [1]}}, "input": relation, "expressions": [sum_]}}
    return plan_substrait(plan(relation, ["x"], ["add"]), sales)


def test_names_stay_short_however_columns_are_nested(sales):
    made = doubled(100, sales)
    assert all(len(item.name) < 2000 for node in walk(made.root) for item in node.schema)
    with pytest.raises(Unsupported, match="deeper than 150"):
        doubled(200, sales)


def nested_sum(levels):
    expression = field(0)
    for _ in range(levels):
        expression = call(0, expression, field(0), output=I64)
    return plan({"project": {"input": read(), "expressions": [expression]}}, [*COLUMNS, "x"], ["add"])


def test_deep_expressions(sales):
    message = json_format.ParseDict(nested_sum(90), SubstraitPlan(), max_recursion_depth=1000)
    content = message.SerializeToString()
    assert nesting(content) > 200  # protobuf itself gives up at 100
    assert plan_substrait(content, sales).names[-1] == "x"
    message = json_format.ParseDict(nested_sum(120), SubstraitPlan(), max_recursion_depth=1000)
    with pytest.raises(Unsupported, match="deeper than 100"):
        plan_substrait(message.SerializeToString(), sales)
    with pytest.raises(Unsupported, match="nested"):
        plan_substrait(json_nested(3000), sales)


def json_nested(levels):
    relation = read()
    for _ in range(levels):
        relation = {"filter": {"input": relation}}
    return plan(relation, COLUMNS)


def varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


@pytest.mark.parametrize("levels", [300, 5000, 50000])
def test_hostile_nesting_is_no_stack_overflow(levels, sales):
    # Plan.relations.root.input, then one FilterRel.input in another, written from the inside out.
    headers, size = [], 0
    for tag in [b"\x12", b"\x12"] * levels + [b"\x0a", b"\x12", b"\x1a"]:
        header = tag + varint(size)
        headers.append(header)
        size += len(header)
    content = b"".join(reversed(headers))
    with pytest.raises(HybridqError):
        plan_substrait(content, sales)
    with pytest.raises(HybridqError):
        plan_substrait(b"\x0b" * levels, sales)  # groups that never end
