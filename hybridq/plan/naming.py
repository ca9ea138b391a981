"""Names of columns in plans.

A column of a table is ``table.column``; a computed column is named by the text of its expression. Where that would
repeat, ``#2``, ``#3`` and so on follow. So one query gives the same names however it was written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from hybridq.plan.expressions import Expression

LONGEST_NAME = 1000

_NUMBER = re.compile(r"""'(?:[^']|'')*'|(?<=[\w"])#\d+(?=\.)|(?<=\))#\d+""")


def expression_name(expression: Expression) -> str:
    """Return the name of a computed column: its text, digested where it is very long.

    Names nest (a column computed from computed columns), so without a bound a small plan could have huge names.
    """
    return bounded(str(expression))


def bounded(text: str) -> str:
    """Return ``text``, or its beginning and a digest of it when it is longer than a name may be."""
    if len(text) <= LONGEST_NAME:
        return text
    return f"{text[:100]}...{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def unique_name(name: str, taken: Collection[str]) -> str:
    """Return ``name``, or the first of ``name#2``, ``name#3``, ... that is not taken.

    >>> unique_name("count(*)", {"count(*)"})
    'count(*)#2'
    """
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"


def as_written(message: str) -> str:
    """Return a message without the numbers that tell equal names apart, which nobody has written.

    >>> as_written("cannot cast 'a#2.b' to int32 in cast(t#2.b as int32) + count(*)#3")
    "cannot cast 'a#2.b' to int32 in cast(t.b as int32) + count(*)"
    """
    return _NUMBER.sub(lambda found: found[0] if found[0].startswith("'") else "", message)
