"""The scalar functions of a plan: names, names in Substrait, types of results, and which engines have them.

Nothing else says so: ``docs/functions.md`` is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.plan import list_rules
from hybridq.plan import type_rules as rules
from hybridq.plan.type_rules import TypeRule, decimal
from hybridq.types import is_decimal, is_floating, is_integer, is_time

DATE_PARTS = frozenset(
    {"year", "quarter", "month", "week", "day", "doy", "dow", "hour", "minute", "second", "epoch"}
    | {"isodow", "isoyear", "decade", "century", "millennium", "millisecond", "microsecond", "nanosecond"}
)
"""Components that ``extract`` knows. ``dow`` is 0 on Sundays, ``isodow`` 7; ``week`` is the ISO week; those
below a second include the seconds."""

TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
"""Units that ``date_trunc`` knows; weeks begin on Mondays."""

TIME_FORMATS = ("Y", "y", "m", "d", "j", "H", "M", "S", "b", "B", "a", "A", "%")
"""What may follow a percent sign in the format of ``to_char``."""

EXACT_DIGITS = MappingProxyType(
    {
        pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20,
        pa.uint8(): 3, pa.uint16(): 5, pa.uint32(): 10, pa.uint64(): 20,
    }
)  # fmt: skip
"""Decimal digits that DataFusion gives an integer type where it meets a decimal."""


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    Attributes
    ----------
    name : str
        Name in plans.
    aliases : tuple of str
        Names in Substrait plans, without a signature (``lte`` of ``lte:any_any``).
    minimum, maximum : int
        Number of arguments.
    rule : callable
        Type of the result from the types of the arguments; ``None`` when it does not take such arguments.
    cpu, gpu : bool
        Which engines have it. A stage that calls a function which an engine lacks runs on the other one.
    raises : bool
        It is an error for some values (never where the last of several arguments is a constant above zero), besides
        results that are too large for their type.
    always_raises : bool
        It is an error for some values of any argument, whatever the last one is.
    note : str
        What a user should know, for the documentation.
    """

    name: str
    aliases: tuple[str, ...]
    minimum: int
    maximum: int
    rule: TypeRule
    cpu: bool = True
    gpu: bool = True
    raises: bool = False
    always_raises: bool = False
    note: str = ""


_MANY = 1 << 20

_ARITHMETIC = (
    Function("add", ("add", "plus"), 2, 2, rules.sum_of),
    Function("subtract", ("subtract", "minus"), 2, 2, rules.sum_of),
    Function("multiply", ("multiply",), 2, 2, rules.product),
    Function("divide", ("divide",), 2, 2, rules.quotient),
    Function("modulus", ("modulus", "modulo", "mod"), 2, 2, rules.remainder),
    Function("negate", ("negate", "negative"), 1, 1, rules.negated),
    Function("abs", ("abs",), 1, 1, rules.number),
    Function("average", (), 2, 2, rules.average),
    Function("list_length", (), 1, 1, rules.list_length),
)  # fmt: skip
_LOGIC = (
    Function("equal", ("equal", "eq"), 2, 2, rules.comparison),
    Function("not_equal", ("not_equal", "ne", "neq"), 2, 2, rules.comparison),
    Function("less", ("lt",), 2, 2, rules.comparison),
    Function("less_equal", ("lte",), 2, 2, rules.comparison),
    Function("greater", ("gt",), 2, 2, rules.comparison),
    Function("greater_equal", ("gte",), 2, 2, rules.comparison),
    Function("is_distinct_from", ("is_distinct_from",), 2, 2, rules.comparison),
    Function("is_not_distinct_from", ("is_not_distinct_from",), 2, 2, rules.comparison),
    Function("and", ("and",), 1, _MANY, rules.logical),
    Function("or", ("or",), 1, _MANY, rules.logical),
    Function("not", ("not",), 1, 1, rules.logical),
    Function("is_null", ("is_null", "is_unknown"), 1, 1, rules.truth),
    Function("is_not_null", ("is_not_null", "is_not_unknown"), 1, 1, rules.truth),
    Function("is_true", ("is_true",), 1, 1, rules.logical),
    Function("is_false", ("is_false",), 1, 1, rules.logical),
    Function("is_not_true", ("is_not_true",), 1, 1, rules.logical),
    Function("is_not_false", ("is_not_false",), 1, 1, rules.logical),
    Function("is_nan", ("is_nan", "isnan"), 1, 1, rules.nan_test),
    Function("coalesce", ("coalesce",), 1, _MANY, rules.common),
    Function("greatest", ("greatest",), 1, _MANY, rules.common, gpu=False, note="of those that are not NULL"),
    Function("least", ("least",), 1, _MANY, rules.common, gpu=False, note="of those that are not NULL"),
)  # fmt: skip
_STRINGS = (
    Function("like", ("like",), 2, 2, rules.match),
    Function("ilike", ("ilike",), 2, 2, rules.match),
    Function("starts_with", ("starts_with",), 2, 2, rules.match),
    Function("ends_with", ("ends_with",), 2, 2, rules.match),
    Function("contains", ("contains",), 2, 2, rules.match),
    Function("substring", ("substring", "substr"), 2, 3, rules.substring, raises=True),
    Function("left", ("left",), 2, 2, rules.substring, note="a negative count leaves out that many"),
    Function("right", ("right",), 2, 2, rules.substring, gpu=False, note="a negative count leaves out that many"),
    Function("upper", ("upper",), 1, 1, rules.text),
    Function("lower", ("lower",), 1, 1, rules.text),
    Function("initcap", ("initcap",), 1, 1, rules.text, gpu=False),
    Function("length", ("char_length", "character_length", "length"), 1, 1, rules.length, note="in characters"),
    Function("octet_length", ("octet_length",), 1, 1, rules.length),
    Function("bit_length", ("bit_length",), 1, 1, rules.length, gpu=False),
    Function("concat", ("concat", "str_concat"), 1, _MANY, rules.text, note="`concat` skips NULL, `||` does not"),
    Function("concat_ws", ("concat_ws",), 1, _MANY, rules.text, gpu=False),
    Function("trim", ("trim", "btrim"), 1, 2, rules.text, note="spaces, or the characters given"),
    Function("ltrim", ("ltrim",), 1, 2, rules.text),
    Function("rtrim", ("rtrim",), 1, 2, rules.text),
    Function("lpad", ("lpad",), 2, 3, rules.texts_and_numbers, gpu=False),
    Function("rpad", ("rpad",), 2, 3, rules.texts_and_numbers, gpu=False),
    Function("replace", ("replace",), 3, 3, rules.text),
    Function("translate", ("translate",), 3, 3, rules.text, gpu=False),
    Function("reverse", ("reverse",), 1, 1, rules.text),
    Function("repeat", ("repeat",), 2, 2, rules.substring, gpu=False),
    Function("split_part", ("split_part",), 3, 3, rules.texts_and_numbers, gpu=False, raises=True,
             note="a negative number counts from the end, 0 is an error"),
    Function("strpos", ("strpos", "position"), 2, 2, rules.position, gpu=False, note="0: not found"),
    Function("ascii", ("ascii",), 1, 1, rules.length, gpu=False, note="the first character's code point"),
    Function("chr", ("chr",), 1, 1, rules.character, gpu=False, raises=True),
    Function("to_hex", ("to_hex",), 1, 1, rules.character, gpu=False),
    Function("find_in_set", ("find_in_set",), 2, 2, rules.position, gpu=False,
             note="the place of a text among others with commas between them; 0: it is none of them"),
    Function("substr_index", ("substr_index",), 3, 3, rules.texts_and_numbers, gpu=False,
             note="up to the separator of that number; after it, counted from the end, if negative"),
    Function("levenshtein", ("levenshtein",), 2, 2, rules.position, gpu=False, note="in characters"),
    Function("md5", ("md5",), 1, 1, rules.coded, gpu=False, note="in base 16"),
    *(Function(name, (name,), 1, 1, rules.digest, gpu=False, note=f"bytes: `encode({name}(s), 'hex')` writes them")
      for name in ("sha224", "sha256", "sha384", "sha512")),
    Function("encode", (), 1, 1, rules.coded, gpu=False, note="`encode(x, 'hex')`, `encode(x, 'base64')`"),
    Function("decode", (), 1, 1, rules.digest, gpu=False, always_raises=True,
             note="`decode(s, 'hex')`, `decode(s, 'base64')`"),
    Function("regexp_like", ("regexp_like", "regex_match"), 2, 2, rules.match, gpu=False,
             note="and `~`, `~*`, `!~`, `!~*`; RE2's syntax"),
    Function("regexp_replace", ("regexp_replace",), 3, 3, rules.text, gpu=False,
             note="flags `g` and `i`; RE2's syntax"),
    Function("regexp_count", ("regexp_count",), 2, 2, rules.count, gpu=False),
    Function("regexp_match", ("regexp_match",), 2, 2, list_rules.parts, gpu=False,
             note="a list of what the groups matched, or of the match; NULL: none"),
)  # fmt: skip
_TIMES = (
    Function("extract", ("extract", "date_part"), 1, 1, rules.component),
    Function("date_trunc", ("date_trunc",), 1, 1, rules.truncated, gpu=False),
    Function("make_date", ("make_date",), 3, 3, rules.date_of, gpu=False, always_raises=True,
             note="of year, month and day"),
    Function("date_bin", ("date_bin",), 2, 3, rules.binned, gpu=False,
             note="`date_bin(interval '15 minutes', t, origin)`; no months"),
    Function("to_char", (), 1, 1, rules.written_time, gpu=False, note="`to_char(m, '%Y-%m-%d')`; English names"),
    Function("add_interval", (), 2, 2, rules.moved, gpu=False, note="`date + interval`, `date + 3`"),
    Function("subtract_interval", (), 2, 2, rules.moved, gpu=False, note="`date - interval`"),
    Function("time_difference", (), 2, 2, rules.difference, gpu=False, note="`date - date`"),
)  # fmt: skip
_LISTS = (
    Function("array_length", ("array_length", "cardinality"), 1, 1, list_rules.lengths, gpu=False),
    Function("array_element", ("array_element",), 2, 2, list_rules.element, gpu=False,
             note="`list[1]` is the first, -1 the last; NULL where there is none"),
    Function("array_has", ("array_has", "array_contains", "list_has", "list_contains"), 2, 2, list_rules.has,
             gpu=False, note="and `x = ANY(list)`"),
    Function("array_has_any", ("array_has_any", "arrays_overlap"), 2, 2, list_rules.has_several, gpu=False,
             note="NULL is no element that another list has"),
    Function("array_has_all", ("array_has_all",), 2, 2, list_rules.has_several, gpu=False),
    Function("array_position", ("array_position",), 2, 3, list_rules.position, gpu=False,
             note="from 1 on; NULL: nowhere"),
    Function("array_positions", ("array_positions",), 2, 2, list_rules.positions, gpu=False),
    Function("array_max", ("array_max",), 1, 1, list_rules.extreme, gpu=False, note="of those that are not NULL"),
    Function("array_min", ("array_min",), 1, 1, list_rules.extreme, gpu=False, note="of those that are not NULL"),
    Function("array_to_string", ("array_to_string",), 2, 3, list_rules.written, gpu=False,
             note="`array_to_string(list, ',', 'none')`: NULL is left out without a third argument"),
    Function("string_to_array", ("string_to_array",), 2, 3, list_rules.parts, gpu=False,
             note="an empty text has no part; NULL cuts at every character, `''` nowhere; parts equal to a third "
             "argument are NULL"),
    Function("make_array", ("make_array",), 0, _MANY, list_rules.of_values, gpu=False, note="`[a, b]`, `ARRAY[a, b]`"),
    Function("array_repeat", ("array_repeat",), 2, 2, list_rules.repeated, gpu=False),
    Function("generate_series", ("generate_series",), 2, 3, list_rules.series, gpu=False, raises=True,
             note="of whole numbers, also the last one"),
    Function("range", ("range",), 2, 3, list_rules.series, gpu=False, raises=True,
             note="of whole numbers, without the last one"),
    Function("array_concat", ("array_concat",), 1, _MANY, list_rules.joined, gpu=False,
             note="and `||`; also `array_append`, `array_prepend`. A list that is NULL is left out"),
    Function("array_sort", (), 1, 1, list_rules.flat, gpu=False,
             note="`array_sort(list, 'DESC', 'NULLS LAST')`; without them NULL is the largest, as in ORDER BY"),
    Function("array_distinct", ("array_distinct",), 1, 1, list_rules.flat, gpu=False,
             note="the first of equal elements; NULL is one"),
    Function("array_union", ("array_union",), 2, 2, list_rules.flat, gpu=False, note="distinct elements; NULL is one"),
    Function("array_intersect", ("array_intersect",), 2, 2, list_rules.flat, gpu=False,
             note="distinct elements; NULL is one"),
    Function("array_except", ("array_except",), 2, 2, list_rules.flat, gpu=False,
             note="distinct elements; NULL is one"),
    Function("array_slice", ("array_slice",), 3, 4, list_rules.cut, gpu=False, raises=True,
             note="`list[2:4]`, `list[-3:-1]`, `list[1:9:2]`; also `array_pop_back`, `array_pop_front`"),
    Function("array_reverse", ("array_reverse",), 1, 1, list_rules.same, gpu=False),
    Function("array_compact", ("array_compact",), 1, 1, list_rules.same, gpu=False,
             note="without NULL; its first element is `array_any_value`"),
    Function("array_remove", ("array_remove", "array_remove_n"), 2, 3, list_rules.changed(1), gpu=False,
             note="the first; `array_remove_n(list, x, 2)`, `array_remove_all`"),
    Function("array_replace", ("array_replace", "array_replace_n"), 3, 4, list_rules.changed(2), gpu=False,
             note="the first; `array_replace_n(list, x, y, 2)`, `array_replace_all`"),
    Function("array_resize", ("array_resize",), 2, 3, list_rules.resized, gpu=False, always_raises=True),
    Function("flatten", ("flatten",), 1, 1, list_rules.flattened, gpu=False, note="a list of lists"),
    Function("get_field", (), 1, 1, list_rules.field, gpu=False, note="of a struct: `s['field']`, `s.field`"),
    Function("map_element", (), 2, 2, list_rules.map_element, gpu=False, note="`m['key']`; NULL: there is no such key"),
    Function("map_keys", ("map_keys",), 1, 1, list_rules.map_keys, gpu=False),
    Function("map_values", ("map_values",), 1, 1, list_rules.map_values, gpu=False),
    Function("map_length", (), 1, 1, list_rules.map_length, gpu=False, note="`cardinality(m)`"),
)  # fmt: skip
_MATHEMATICS = (
    Function("round", ("round",), 1, 2, rules.rounded, gpu=False, note="half away from zero"),
    Function("trunc", ("trunc",), 1, 2, rules.cut_off, gpu=False, note="towards zero"),
    Function("floor", ("floor",), 1, 1, rules.rounded),
    Function("ceil", ("ceil", "ceiling"), 1, 1, rules.rounded),
    Function("sign", ("signum", "sign"), 1, 1, rules.real, gpu=False),
    Function("sqrt", ("sqrt",), 1, 1, rules.real, note="NaN below 0"),
    Function("cbrt", ("cbrt",), 1, 1, rules.real, gpu=False),
    Function("power", ("power", "pow"), 2, 2, rules.real, gpu=False),
    Function("exp", ("exp",), 1, 1, rules.real, gpu=False),
    Function("ln", ("ln",), 1, 1, rules.real, gpu=False, note="-infinity at 0, NaN below"),
    Function("log10", ("log10",), 1, 1, rules.real, gpu=False),
    Function("log2", ("log2",), 1, 1, rules.real, gpu=False),
    Function("log", ("logb",), 1, 2, rules.real, gpu=False, note="to base 10, or `log(base, x)`"),
    *(Function(name, (name,), 1, 1, rules.real, gpu=False) for name in
      ("sin", "cos", "tan", "asin", "acos", "atan", "cot", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
       "degrees", "radians")),
    Function("atan2", ("atan2",), 2, 2, rules.real, gpu=False),
    Function("factorial", ("factorial",), 1, 1, rules.whole, gpu=False, raises=True),
    Function("gcd", ("gcd",), 2, 2, rules.whole, gpu=False),
    Function("lcm", ("lcm",), 2, 2, rules.whole, gpu=False),
    Function("bitwise_and", ("bitwise_and",), 2, 2, rules.whole, gpu=False, note="`&`"),
    Function("bitwise_or", ("bitwise_or",), 2, 2, rules.whole, gpu=False, note="`|`"),
    Function("bitwise_xor", ("bitwise_xor",), 2, 2, rules.whole, gpu=False, note="`#`"),
    Function("shift_left", ("bitwise_shift_left",), 2, 2, rules.whole, gpu=False, raises=True, note="`<<`"),
    Function("shift_right", ("bitwise_shift_right",), 2, 2, rules.whole, gpu=False, raises=True, note="`>>`"),
)  # fmt: skip

GROUPS: Mapping[str, tuple[Function, ...]] = MappingProxyType(
    {
        "Arithmetic": _ARITHMETIC,
        "Comparison, logic and choice": _LOGIC,
        "Strings": _STRINGS,
        "Dates and times": _TIMES,
        "Lists, structs and maps": _LISTS,
        "Mathematics": _MATHEMATICS,
    }
)
"""The functions as the documentation groups them."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {function.name: function for group in GROUPS.values() for function in group}
)
"""Every scalar function that a plan may call, by its name in plans."""

BY_SUBSTRAIT_NAME: Mapping[str, str] = MappingProxyType(
    {alias: function.name for function in FUNCTIONS.values() for alias in function.aliases}
)
"""Names in plans by names in Substrait."""

COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) | frozenset(
    {"is_distinct_from", "is_not_distinct_from"}
)
ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "modulus"})


def result_type(name: str, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """Return the type of a call's result.

    Parameters
    ----------
    name : str
        A key of ``FUNCTIONS``.
    types : tuple of pyarrow.DataType
        Types of the arguments, already brought to a common type where the function needs one.

    Raises
    ------
    Unsupported
        If there is no such function, or it does not take such arguments.

    >>> result_type("multiply", (pa.decimal128(15, 2), pa.decimal128(15, 2)))
    Decimal128Type(decimal128(31, 4))
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise Unsupported(f"the function {name} is not supported")
    if not function.minimum <= len(types) <= function.maximum:
        raise Unsupported(f"{name} with {len(types)} arguments is not supported")
    result = function.rule(types)
    if result is None:
        raise Unsupported(f"{name}({', '.join(map(str, types))}) is not supported")
    return result


def arithmetic_types(left: pa.DataType, right: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """Return the types that the operands of an arithmetic operator are cast to, or ``None`` if there are none.

    >>> arithmetic_types(pa.int64(), pa.decimal128(15, 2))
    (Decimal128Type(decimal128(20, 0)), Decimal128Type(decimal128(15, 2)))
    """
    if is_decimal(left) and is_decimal(right):
        return left, right
    if is_decimal(left) and right in EXACT_DIGITS:
        return left, pa.decimal128(EXACT_DIGITS[right], 0)
    if is_decimal(right) and left in EXACT_DIGITS:
        return pa.decimal128(EXACT_DIGITS[left], 0), right
    common = _common_number(left, right)
    return None if common is None else (common, common)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which two values are compared or joined, or ``None`` if they cannot be.

    >>> common_type(pa.decimal128(15, 2), pa.int64())
    Decimal128Type(decimal128(22, 2))
    """
    if left == right:
        return left
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    if is_floating(left) and is_decimal(right):
        return left
    if is_decimal(left) and is_floating(right):
        return right
    if is_decimal(left) or is_decimal(right):
        left_digits, right_digits = _as_decimal(left), _as_decimal(right)
        if left_digits is None or right_digits is None:
            return None
        scale = max(left_digits[1], right_digits[1])
        return decimal(max(left_digits[0] - left_digits[1], right_digits[0] - right_digits[1]) + scale, scale)
    if is_time(left) and is_time(right):
        return _common_time(left, right)
    return _common_number(left, right)


def _as_decimal(data_type: pa.DataType) -> tuple[int, int] | None:
    """Return the digits and scale that DataFusion gives an exact number that is compared with a decimal."""
    if is_decimal(data_type):
        return data_type.precision, data_type.scale
    if data_type in EXACT_DIGITS:
        return EXACT_DIGITS[data_type], 0
    return None


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right:
        return left if is_integer(left) or is_floating(left) else None
    numbers = (is_integer(left) or is_floating(left) or is_decimal(left)) and (
        is_integer(right) or is_floating(right) or is_decimal(right)
    )
    if not numbers:
        return None
    if is_floating(left) or is_floating(right):
        return pa.float64() if pa.float64() in (left, right) else pa.float32()
    if pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right):
        return left if left.bit_width >= right.bit_width else right
    signed, unsigned = (left, right) if pa.types.is_signed_integer(left) else (right, left)
    if unsigned == pa.uint64():
        return pa.decimal128(20, 0)
    wide = {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}[unsigned.bit_width]
    return signed if signed.bit_width >= wide.bit_width else wide


def _common_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the finer timestamp; a date counts as its midnight."""
    if pa.types.is_date(left) or pa.types.is_date(right):
        return right if pa.types.is_date(left) else left
    if (left.tz is None) != (right.tz is None):
        return None
    order = ("s", "ms", "us", "ns")
    unit = max(left.unit, right.unit, key=order.index)
    return pa.timestamp(unit, left.tz)
