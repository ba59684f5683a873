"""The surroundings of all tests: no data but for tests that ask for them, an empty cache."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
LONGEST_FIRST = (
    "studies/test_quick.py", "test_docs.py", "test_site.py", "runs/test_resume.py",
    "test_odd_arguments.py", "zoo/test_training.py", "runs/test_large.py",
    "engine/test_structure.py", "laws", "views/plot", "methods", "cli", "studies", "runs",
)  # fmt: skip
"""Files and folders; in this order, before all others, so that both processes end together."""
DATA = os.environ.pop("GRAPHSVX_DATA", None)
"""Folder with raw files of real data sets: set only while a test marked `data` runs."""
NEEDS = "needs data: "
LAST = ROOT / "runs/test_ray.py"
"""Workers are not forked in a process that has used Ray."""


def pytest_configure(config: pytest.Config) -> None:
    # xdist would begin with the files that have the most tests.
    config.option.loadscopereorder = False
    if not hasattr(config, "workerinput"):
        # Processes of xdist inherit it: what the user has in the cache is neither read nor changed.
        cache_folder = tempfile.TemporaryDirectory(prefix="graphsvx-tests-")
        config.add_cleanup(cache_folder.cleanup)
        os.environ["XDG_CACHE_HOME"] = cache_folder.name
        os.environ["MPLCONFIGDIR"] = f"{cache_folder.name}/matplotlib"
        if DATA:
            os.environ["GRAPHSVX_TEST_DATA"] = str(Path(DATA).resolve())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place(item.path))
    for item in items:
        absent = [name for name in _folders(item) if not _has(name)]
        if absent:
            item.add_marker(pytest.mark.skip(reason=f"{NEEDS}{', '.join(absent)}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(NEEDS in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(
            f"{count} tests need data sets that are not here; to run them: "
            f"GRAPHSVX_DATA=FOLDER ./scripts/test -m data (docs/datasets.md names the files)"
        )


@pytest.fixture(autouse=True)
def _data_where_asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """GRAPHSVX_DATA is seen by tests marked `data` alone."""
    if _folders(request.node):
        monkeypatch.setenv("GRAPHSVX_DATA", os.environ["GRAPHSVX_TEST_DATA"])


def _folders(item: pytest.Item) -> tuple[str, ...]:
    """Folders of GRAPHSVX_DATA that a test needs: the arguments of its mark `data`."""
    return tuple(name for mark in item.iter_markers("data") for name in mark.args)


@cache
def _has(folder: str) -> bool:
    data = os.environ.get("GRAPHSVX_TEST_DATA")
    return data is not None and (Path(data) / folder).is_dir()


@cache
def _place(path: Path) -> int:
    if path == LAST:
        return len(LONGEST_FIRST) + 1
    for place, name in enumerate(LONGEST_FIRST):
        if path.is_relative_to(ROOT / name):
            return place
    return len(LONGEST_FIRST)
