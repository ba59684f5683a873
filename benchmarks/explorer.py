"""Speed of the explorer in Chromium: from click to credit, and of a toggle in What if.

    python -m benchmarks.explorer [clicks]

Prints the median and the 95th percentile in milliseconds, measured by the page itself
(`performance.measure`): from the start of the view to the first credit on the screen, and from a
switch to the new prediction.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tests.views.html.browser import Browser

from graphsvx.explorer.server import start
from graphsvx.explorer.workspace import workspace_of
from graphsvx_lab import zoo

READ = "return performance.getEntriesByName(arguments[0]).map((entry) => entry.duration)"
VISIT = """history.pushState(null, '', arguments[0]);
    window.dispatchEvent(new PopStateEvent('popstate'))"""
SWITCH = """const dots = [...document.querySelectorAll('.dot')].filter(
        (dot) => Number(dot.dataset.id) >= 0 && !dot.querySelector('.mark'));
    const key = new KeyboardEvent('keydown', { key: 'Enter' });
    dots[arguments[0] % dots.length].dispatchEvent(key)"""
_PAUSE = 0.15  # seconds between switches: nobody switches faster


def measure(clicks: int = 60) -> dict[str, list[float]]:
    """Durations in milliseconds of random clicks on Cora."""
    trained = zoo.ensure("cora")
    graph, rng = trained.dataset.graph, random.Random(0)
    nodes = rng.sample(range(graph.num_nodes), clicks)
    browser = Browser(Path(tempfile.mkdtemp()))
    with start(workspace_of({"gcn": trained.model}, trained.dataset), browser=False) as server:
        try:
            browser.driver.get(server.url)
            time.sleep(6)  # the map is drawn, which is done once
            credit: list[float] = []
            for number, node in enumerate(nodes):
                browser.run(VISIT, f"?view=why&node={node}")
                credit = _durations(browser, "credit", number + 1)
            browser.driver.get(f"{server.address}/?view=what-if&node=1358")
            toggles = _durations(browser, "toggle", 1)
            while not browser.all(".dot"):
                time.sleep(0.05)
            for number in range(clicks):
                browser.run(SWITCH, number)
                toggles = _durations(browser, "toggle", number + 2)
                time.sleep(_PAUSE)
        finally:
            browser.driver.quit()
    return {"click to credit": credit, "toggle": toggles[1:]}


def _durations(browser: Browser, name: str, count: int) -> list[float]:
    """What the page has measured, as soon as there are `count` of them."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        durations = browser.run(READ, name)
        if len(durations) >= count:
            return [float(duration) for duration in durations]
        time.sleep(0.01)
    raise TimeoutError(f"{name} number {count} did not come")


if __name__ == "__main__":
    for what, durations in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 60).items():
        middle, high = np.quantile(durations, [0.5, 0.95])
        print(f"{what}: {len(durations)} times, median {middle:.0f} ms, p95 {high:.0f} ms")
