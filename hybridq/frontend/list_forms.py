"""Functions of lists whose calls in Substrait have another form than in plans."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.frontend.coercion import cast_to
from hybridq.plan.expressions import Call, Expression, Literal
from hybridq.plan.functions import BY_SUBSTRAIT_NAME, GROUPS, result_type

_NAMES = frozenset(function.name for function in GROUPS["Lists, structs and maps"])

_FORMS = frozenset(
    {"array_append", "array_prepend", "array_pop_back", "array_pop_front", "array_any_value", "empty", "array_sort"}
    | {"array_remove_all", "array_replace_all", "array_length", "generate_series", "range"}
)


def is_of_lists(name: str) -> bool:
    """Tell whether a function, by its name in Substrait, is one of lists."""
    return name in _FORMS or BY_SUBSTRAIT_NAME.get(name) in _NAMES


def list_form(name: str, arguments: Sequence[Expression]) -> Expression | None:
    """Return a call of a function of lists that needs more than a new name; ``None``: it does not.

    Raises
    ------
    Unsupported
        Arguments are not as they must be.
    """
    if name == "make_array" and not arguments:
        return call_of(name, ())  # DataFusion gives it no type
    if name not in _FORMS:
        return None
    if name == "array_sort":
        return _sorted(*arguments)
    if name in ("generate_series", "range"):
        return call_of(name, arguments if len(arguments) > 1 else [Literal(pa.int64(), 0), *arguments])
    if name == "array_length" and len(arguments) == 2:
        dimension = arguments[1]
        if not isinstance(dimension, Literal) or dimension.value != 1:
            raise Unsupported("array_length of other dimensions than the first is not supported")
        return call_of(name, arguments[:1])
    if name in ("array_append", "array_prepend") and len(arguments) == 2:
        values, value = arguments if name == "array_append" else reversed(arguments)
        if not pa.types.is_list(values.type):
            raise Unsupported(f"{name} to a {values.type} is not supported: to a list")
        single = call_of("make_array", [cast_to(value, values.type.value_type)])
        return call_of("array_concat", [values, single] if name == "array_append" else [single, values])
    if name in ("array_remove_all", "array_replace_all"):
        return call_of(name.removesuffix("_all"), arguments, ("all",))
    if len(arguments) != 1:
        return None
    (values,) = arguments
    if name in ("array_pop_back", "array_pop_front"):
        first, last = (1, -2) if name == "array_pop_back" else (2, -1)
        return call_of("array_slice", [values, Literal(pa.int64(), first), Literal(pa.int64(), last)])
    if name == "array_any_value":
        return call_of("array_element", [call_of("array_compact", [values]), Literal(pa.int64(), 1)])
    if name == "empty":
        return Call(pa.bool_(), "equal", (call_of("array_length", [values]), Literal(pa.uint64(), 0)))
    return None


def call_of(name: str, arguments: Sequence[Expression], options: tuple[str, ...] = ()) -> Call:
    """Return a call of a function whose result's type its arguments tell."""
    data_type = result_type(name, tuple(argument.type for argument in arguments))
    return Call(data_type, name, tuple(arguments), options)


def _sorted(values: Expression, *words: Expression) -> Expression:
    found = [word.value.upper() if isinstance(word, Literal) and isinstance(word.value, str) else "" for word in words]
    direction, nulls = [*found, *("ASC", "")[len(found) :]][:2]
    if len(words) > 2 or direction not in ("ASC", "DESC") or nulls not in ("", "NULLS FIRST", "NULLS LAST"):
        raise Unsupported(
            "array_sort takes a list, and the constants 'ASC' or 'DESC' and 'NULLS FIRST' or 'NULLS LAST'"
        )
    nulls_first = nulls == "NULLS FIRST" or (not nulls and direction == "DESC")
    return call_of("array_sort", [values], ("desc",) * (direction == "DESC") + ("nulls_first",) * nulls_first)
