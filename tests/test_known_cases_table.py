"""Cases that users of other engines have filed as faults, and the tests that show how it is here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "t01": (
        "NULL is a group, also among two keys",
        ("sql/test_nulls.py::test_null_is_a_group", "sql/test_nulls.py::test_null_is_a_group_among_two_keys"),
    ),
    "t02": ("NULL keys do not join", ("sql/test_nulls.py::test_null_keys_do_not_join",)),
    "t03": (
        "aggregates of NULL and of nothing",
        (
            "sql/test_nulls.py::test_aggregates_of_nothing_but_null",
            "sql/test_nulls.py::test_aggregates_of_an_empty_table",
        ),
    ),
    "t04": (
        "NaN is a value, and not NULL",
        (
            "sql/test_nulls.py::test_nan_is_a_value",
            "sql/test_nulls.py::test_nan_is_one_group_and_null_another",
            "sql/test_nulls.py::test_nan_is_above_all_numbers_in_order",
        ),
    ),
    "t05": (
        "counts of distinct values are not added up",
        (
            "sql/test_nulls.py::test_count_distinct_merges_values_not_counts",
            "sql/test_known_cases.py::test_pairs_with_a_null_are_not_counted_as_distinct",
        ),
    ),
    "t06": (
        "products of decimals are exact",
        ("sql/test_numbers.py::test_products_of_decimals", "sql/test_numbers.py::test_sums_of_products_over_chunks"),
    ),
    "t07": ("decimal sums past the column's digits", ("sql/test_numbers.py::test_a_sum_past_the_columns_precision",)),
    "t08": (
        "averages of decimals are exact, and merged from sums",
        (
            "sql/test_numbers.py::test_averages_of_decimals_are_exact_quotients",
            "sql/test_numbers.py::test_averages_merge_sums_and_counts",
            "merge/test_merge.py::test_averages_are_not_averaged",
        ),
    ),
    "t09": (
        "integer sums never wrap",
        (
            "sql/test_numbers.py::test_small_integers_add_up_to_large_ones",
            "sql/test_numbers.py::test_an_integer_sum_never_wraps",
        ),
    ),
    "t10": (
        "wide decimal sums are the same every time",
        ("sql/test_known_cases.py::test_sums_of_wide_decimals_are_the_same_every_time",),
    ),
    "t11": (
        "dates stay dates on every device",
        ("sql/test_numbers.py::test_dates_keep_their_type", "sql/test_numbers.py::test_parts_of_dates"),
    ),
    "t12": (
        "strings of any storage form",
        (
            "sql/test_strings.py::test_files_with_other_storage_forms_are_one_table",
            "sql/test_strings.py::test_an_empty_string_is_not_null",
            "sql/test_strings.py::test_like_with_wildcards_and_escapes",
            "sql/test_strings.py::test_strings_are_ordered_by_code_point",
        ),
    ),
    "t13": (
        "dictionaries that differ between chunks",
        ("sql/test_strings.py::test_dictionaries_that_differ_between_chunks",),
    ),
    "t14": (
        "empty chunks and tables keep the types",
        (
            "sql/test_relations.py::test_a_chunk_that_a_filter_empties",
            "sql/test_relations.py::test_no_rows_left_keeps_the_types",
            "sql/test_relations.py::test_an_empty_build_side",
        ),
    ),
    "t15": ("large integers beside NULL", ("sql/test_numbers.py::test_large_integers_survive_beside_null",)),
    "t16": ("a key with most of the rows", ("sql/test_known_cases.py::test_a_key_with_most_of_the_rows_joins_right",)),
    "t17": (
        "a chunk that does not fit the device",
        (
            "dispatch/test_driver.py::test_out_of_memory_halves_then_moves_to_the_cpu",
            "dispatch/test_driver.py::test_strict_forbids_moving_but_not_halving",
            "test_session.py::test_chunks_that_do_not_fit_are_halved_and_moved",
        ),
    ),
    "t18": (
        "a worker that dies in mid-query",
        (
            "test_session.py::test_workers_killed_in_mid_query",
            "dispatch/test_driver.py::test_last_gpu_lost_redoes_its_chunks_on_the_cpu",
            "dispatch/test_driver.py::test_forced_gpu_waits_for_the_gpu_then_gives_up",
        ),
    ),
    "t19": (
        "no GPU at all",
        (
            "cli/test_cli_mistakes.py::test_a_forced_gpu_where_there_is_none",
            "test_imports.py::test_importing_hybridq_is_light",
        ),
    ),
    "t20": (
        "placement is reported",
        (
            "sql/test_tpch.py::test_what_ran_where_is_reported",
            "test_session.py::test_every_mode_gives_the_same_answer_and_says_where",
        ),
    ),
    "t21": ("NOT IN with NULL", ("sql/test_nulls.py::test_not_in_with_null_is_right_or_refused",)),
    "t22": (
        "EXISTS with <>, and semi joins that multiply nothing",
        (
            "sql/test_known_cases.py::test_exists_with_another_key",
            "sql/test_relations.py::test_a_semi_join_does_not_multiply",
        ),
    ),
    "t23": ("correlated aggregates", ("sql/test_relations.py::test_correlated_aggregates",)),
    "t24": (
        "HAVING",
        (
            "sql/test_relations.py::test_having_applies_after_the_merge",
            "sql/test_relations.py::test_having_without_group_by",
        ),
    ),
    "t25": (
        "CASE",
        (
            "sql/test_relations.py::test_case_without_a_branch_that_holds_is_null",
            "sql/test_relations.py::test_case_guards_a_division",
            "sql/test_relations.py::test_case_takes_the_common_type",
            "sql/test_relations.py::test_sums_of_case_over_chunks_and_nothing",
        ),
    ),
    "t26": (
        "names that repeat",
        (
            "sql/test_relations.py::test_both_sides_have_the_same_names",
            "sql/test_relations.py::test_a_table_joined_with_itself_twice",
            "frontend/test_sql_errors.py::test_an_ambiguous_column_names_both_tables",
        ),
    ),
    "t27": (
        "order and limits over merged runs",
        (
            "sql/test_relations.py::test_nulls_are_ordered_as_asked",
            "sql/test_relations.py::test_limit_and_offset_after_the_merge",
            "sql/test_relations.py::test_ties_are_cut_anywhere_but_not_invented",
        ),
    ),
    "t28": (
        "the split keeps all rows, and equal keys of other types meet",
        (
            "engines/test_split.py::test_no_row_is_lost_and_equal_keys_meet",
            "engines/test_split.py::test_integers_of_any_width_meet",
            "sql/test_relations.py::test_keys_of_other_widths_meet",
        ),
    ),
    "t29": ("counts over a left join", ("sql/test_relations.py::test_a_left_join_counts_matches_not_rows",)),
    "t30": ("row groups of any size", ("sql/test_known_cases.py::test_row_groups_of_any_size",)),
    "t31": (
        "two users of one memory",
        ("dispatch/test_main_memory.py::test_two_queries_wait_for_each_other_and_both_come_out",),
    ),
    "t32": (
        "other placements, the same rows",
        ("sql/test_known_cases.py::test_the_same_query_many_times_with_other_placements",),
    ),
    "t33": (
        "interrupts leave nothing behind",
        (
            "test_session.py::test_interrupt_cancels_and_the_session_remains_usable",
            "test_session.py::test_cancel_frees_everything_and_the_session_goes_on",
        ),
    ),
}
"""What the case is about, and the tests that show it, by the case's number."""


@cache
def names_in(name: str) -> frozenset[str]:
    """Return the names of a file's tests."""
    nodes = ast.walk(ast.parse((TESTS / name).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_all_are_there():
    assert list(CASES) == [f"t{number:02}" for number in range(1, 34)]


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_its_tests(case):
    _, places = CASES[case]
    assert places
    for place in places:
        name, _, test = place.partition("::")
        assert test in names_in(name), f"{place} is gone: which test shows {case} now?"
