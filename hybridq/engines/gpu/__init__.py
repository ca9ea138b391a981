"""The GPU engine: libcudf, through pylibcudf. Importing ``hybridq.engines.gpu.engine`` needs it to be installed.

Each thread gets a CUDA stream of its own, so that what one computes overlaps with what another reads, unless the
environment says otherwise. pylibcudf looks at the variable when it is first imported.
"""

from __future__ import annotations

import os

os.environ.setdefault("CUDF_PER_THREAD_STREAM", "1")
