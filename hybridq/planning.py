"""From a query to the stages that run: what a session does before its cluster is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hybridq.config import Config
from hybridq.errors import HybridqError, UnknownTable, Unsupported

if TYPE_CHECKING:
    from hybridq.catalog import Catalog
    from hybridq.frontend.builder import Frame
    from hybridq.physical.stages import PhysicalPlan
    from hybridq.plan.nodes import Plan


@contextmanager
def _own_errors() -> Iterator[None]:
    """Turn errors of libraries that nobody thought of into one of ours."""
    try:
        yield
    except (HybridqError, MemoryError, RecursionError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise Unsupported(f"the query cannot be planned: {type(error).__name__}: {reason}") from error


def logical_plan(
    source: str | bytes | Mapping[str, Any] | Frame, catalog: Catalog, moment: datetime | None = None
) -> Plan:
    """Plan a query over the catalog's tables.

    Parameters
    ----------
    source : str, bytes, mapping or Frame
        SQL, Substrait as a message or as JSON, or what the builder made.
    catalog : Catalog
    moment : datetime, optional
        What now() is in SQL; by default it is now.

    Raises
    ------
    SqlError, PlanFormatError, UnknownTable, UnknownColumn, AmbiguousColumn, Unsupported
        It cannot be planned.
    DataError
        A table cannot be read.
    """
    try:
        with _own_errors():
            if isinstance(source, str):
                from hybridq.frontend.sql import plan_sql

                return plan_sql(source, catalog.schemas(), moment)
            if isinstance(source, bytes | Mapping):
                from hybridq.frontend.substrait import plan_substrait

                return plan_substrait(source if isinstance(source, bytes) else dict(source), catalog.schemas())
            return source.to_plan(catalog.schemas())
    except UnknownTable as error:
        catalog.check_readable(error.table)
        raise


def physical_plan(
    plan: Plan, catalog: Catalog, config: Config, partitioned: frozenset[int] = frozenset()
) -> PhysicalPlan:
    """Optimise a plan and cut it into stages.

    Parameters
    ----------
    plan : Plan
    catalog : Catalog
    config : Config
    partitioned : frozenset of int
        See ``hybridq.physical.stages.plan_stages``.

    Raises
    ------
    Unsupported
        No engine has something that the plan needs, or there is no way to run it.
    """
    from hybridq.physical.stages import plan_stages
    from hybridq.placement.support import check_supported
    from hybridq.plan.rules import optimize

    with _own_errors():
        physical = plan_stages(optimize(plan, catalog.table), catalog, config, partitioned)
        check_supported(physical.stages)
    return physical


def check_query(source: str | bytes, catalog: Catalog) -> None:
    """Plan a query for its errors, so that they are known before a cluster starts.

    Raises
    ------
    RequestError
        It cannot be planned.
    """
    from hybridq.recursion import recursion_of

    recursion = recursion_of(source, catalog) if isinstance(source, str) else None
    if recursion is not None:
        source, catalog = recursion.parts.rest, recursion.catalog
    physical_plan(logical_plan(source, catalog), catalog, Config.load())
