"""Which tests come first: files that take long, so that both processes end at the same time."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
LONGEST_FIRST = (
    "studies/test_quick.py", "test_docs.py", "test_site.py", "runs/test_ray.py",
    "runs/test_resume.py", "test_odd_arguments.py", "zoo/test_training.py", "runs/test_large.py",
    "engine/test_structure.py", "laws", "views/plot", "methods", "cli", "studies", "runs",
)  # fmt: skip
"""Files and folders; in this order, before all others."""


def pytest_configure(config: pytest.Config) -> None:
    # xdist would begin with the files that have the most tests.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place(item.path))


@cache
def _place(path: Path) -> int:
    for place, name in enumerate(LONGEST_FIRST):
        if path.is_relative_to(ROOT / name):
            return place
    return len(LONGEST_FIRST)
