"""What the process imports that CPU workers are forked from (``hybridq.deploy``): all that they need, once.

It is named to Python's fork server and imported there. Nothing here may start a thread.
"""

from __future__ import annotations

import distributed  # noqa: F401

import hybridq.dispatch.tasks
import hybridq.dispatch.worker
import hybridq.engines.cpu
import hybridq.merge.aggregate
import hybridq.merge.finish
import hybridq.merge.join
import hybridq.merge.sort  # noqa: F401
from hybridq.pandas_later import leave_pandas_for_later

leave_pandas_for_later()
