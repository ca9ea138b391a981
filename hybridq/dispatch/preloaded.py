"""What the process imports that CPU workers are forked from (``hybridq.deploy``): all that they need, once.

It is named to Python's fork server and imported there. Nothing here may start a thread.
"""

from __future__ import annotations

import gc

gc.disable()  # what is imported stays: to look through it again and again takes a tenth of a second

import distributed  # noqa: E402, F401

import hybridq.dispatch.tasks  # noqa: E402
import hybridq.dispatch.worker  # noqa: E402
import hybridq.engines.cpu  # noqa: E402
import hybridq.merge.aggregate  # noqa: E402
import hybridq.merge.finish  # noqa: E402
import hybridq.merge.join  # noqa: E402
import hybridq.merge.sort  # noqa: E402, F401
from hybridq.pandas_later import leave_pandas_for_later  # noqa: E402

leave_pandas_for_later()
gc.freeze()  # else a collection would look through all of it, and have each worker copy the pages that it is in
gc.enable()
