"""The GPU engine: libcudf, through pylibcudf. Importing ``hybridq.engines.gpu.engine`` needs it to be installed."""

from __future__ import annotations
