from __future__ import annotations

import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")
