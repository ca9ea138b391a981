"""Fixtures that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hybridq.testing import tpch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def tpch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H at scale factor 0.01, all eight tables as ``<table>.parquet``, several row groups in the larger ones."""
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch") / "sf0.01", row_group_bytes=256 * 1024)
