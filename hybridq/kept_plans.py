"""Plans of a session's last texts, so that a query which is asked again need not be planned again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridq.catalog import Catalog
    from hybridq.physical.stages import PhysicalPlan
    from hybridq.plan.nodes import Plan

LONGEST_TEXT = 64 * 1024
"""Characters of a text whose plan is kept: that of a list of thousands of values is large, and rarely wanted twice."""


class KeptPlans:
    """The plans of some texts over one catalog: whatever is registered anew there, all of them are forgotten.

    A plan depends on the text, the tables and the settings alone, which are those of one session. One that has the time
    of its making in it is not kept. What depends on the cluster, or on earlier runs, is no part of a plan: where its
    stages run is decided anew each time.

    Parameters
    ----------
    most : int
        Plans that are kept; those asked for longest ago go first. 0: none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._version = -1
        self._plans: OrderedDict[str, tuple[Plan, PhysicalPlan]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plans)

    def find(self, text: str, catalog: Catalog) -> tuple[Plan, PhysicalPlan] | None:
        """Return what was kept for a text, if the catalog is still what it was made for."""
        with self._lock:
            if self._version != catalog.version or text not in self._plans:
                return None
            self._plans.move_to_end(text)
            return self._plans[text]

    def keep(self, text: str, version: int, plan: Plan, physical: PhysicalPlan) -> None:
        """Keep a text's plan.

        Parameters
        ----------
        text : str
        version : int
            The catalog's, from before it was planned.
        plan : Plan
            As the front end made it.
        physical : PhysicalPlan
            As nothing is known of its run.
        """
        if plan.of_the_moment or len(text) > LONGEST_TEXT:
            return
        with self._lock:
            if self._version != version:
                self._plans.clear()
                self._version = version
            self._plans[text] = plan, physical
            while len(self._plans) > self._most:
                self._plans.popitem(last=False)
