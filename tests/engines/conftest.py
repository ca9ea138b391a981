from __future__ import annotations

import pytest
from engine_helpers import ENGINES


@pytest.fixture(params=sorted(ENGINES))
def engine(request):
    """Every engine that this machine has."""
    return ENGINES[request.param]()
