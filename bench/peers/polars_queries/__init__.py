"""The shipped queries as Polars' lazy frames.

One form for Polars and for cudf-polars. Tables are joined in the order of the FROM clause (one that no condition ties
to those before it waits for the first that does), filters come after the joins, in the order of the WHERE clause: to
move them is the optimiser's work. Subqueries are joined as frames of their own: IN and EXISTS as semi joins, NOT IN and
NOT EXISTS as anti joins, correlated aggregates as groups, single values as a cross join. Columns are taken as the files
have them; only where Polars would round a quotient of decimals to two digits are they made floats first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.peers.polars_queries import ssb, tpch_1_to_11, tpch_12_to_22

if TYPE_CHECKING:
    from polars import LazyFrame

QUERIES: dict[str, Callable[..., LazyFrame]] = {
    **{f"tpch/{name}": query for name, query in {**tpch_1_to_11.QUERIES, **tpch_12_to_22.QUERIES}.items()},
    **{f"ssb/{name}": query for name, query in ssb.QUERIES.items()},
}
"""Makes a lazy frame of the tables, given by name, and of ``scale_factor``."""
