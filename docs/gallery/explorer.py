"""Makes the pictures of the explorer: every view in a real browser, from the zoo's models.

Run `python docs/gallery/explorer.py FOLDER [WIDTH] [light|dark]`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from graphsvx import GraphSVX, runs
from graphsvx.explorer.server import Server, start
from graphsvx.explorer.workspace import Workspace, make_workspace, workspace_of
from graphsvx_lab import zoo

NODE = 5
DIGITS = {
    "graph": "view=graph",
    "why": f"view=why&node={NODE}&samples=1000",
    "pairs": f"view=why&node={NODE}&samples=1000&order=2",
    "contrast": f"view=why&node={NODE}&samples=1000&target=9&rather_than=5",
    "what-if": f"view=what-if&node={NODE}&nodes_off=1729",
    "compare": f"view=compare&node={NODE}",
    "overview": "view=overview",
    "empty": "view=why",
    "error": "view=why&node=99999",
}
SETTLED = """return document.querySelector('#main .card') !== null
    && !document.querySelector('.loading')
    && !['refining'].includes(document.querySelector('.why')?.dataset.state)
    && [...document.images].every((image) => image.complete)"""


@contextmanager
def browser(width: int, height: int) -> Iterator[webdriver.Chrome]:
    """A headless Chromium with a window of this size."""
    options = Options()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.binary_location = str(shutil.which("chromium"))
    service = Service(str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield driver
    finally:
        driver.quit()


def photograph(
    driver: webdriver.Chrome, server: Server, views: dict[str, str], to: Path, theme: str
) -> None:
    """One picture of each view, as tall as its content."""
    driver.get(server.url)
    driver.execute_script("localStorage.setItem('graphsvx-theme', arguments[0])", theme)
    metrics = "return [innerWidth, innerHeight]"
    width, height = driver.execute_script(metrics)
    for name, query in views.items():
        driver.get(f"{server.address}/?{query}")
        end = time.monotonic() + 60
        while not driver.execute_script(SETTLED) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.5)
        tall = driver.execute_script("return document.documentElement.scrollHeight")
        size = {"width": width, "height": max(height, min(tall, 2600)), "deviceScaleFactor": 1}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "mobile": False})
        time.sleep(0.3)
        driver.save_screenshot(str(to / f"{name}.png"))
        size["height"] = height
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "mobile": False})


def workspaces(folder: Path) -> Iterator[tuple[Workspace, dict[str, str]]]:
    """What is shown, with the views of each."""
    digits = zoo.ensure("digits")
    graph = digits.dataset.graph
    run = runs.start(
        digits.model, graph, nodes=digits.dataset.split.test.tolist()[:60], out=folder / "digits",
        method=GraphSVX(samples=300), progress=False, backend=runs.Local(workers=1),
    )  # fmt: skip
    yield workspace_of({"gcn": digits.model}, digits.dataset, run), DIGITS
    molecules = zoo.ensure("molecules-carbonyl")
    yield (
        workspace_of({"graphconv": molecules.model}, molecules.dataset),
        {"graphs": "view=graph", "molecule": "view=why&graph=0"},
    )
    links = make_workspace(digits.model, graph, task="link", title="links of digits")
    yield links, {"links": "view=graph&first=5", "link": "view=why&link=5,1729"}


def main(to: Path, width: int = 1280, theme: str = "light") -> None:
    """Make all pictures."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser(width, 860) as driver:
        for workspace, views in workspaces(Path(folder)):
            with start(workspace, browser=False) as server:
                photograph(driver, server, views, to, theme)


if __name__ == "__main__":
    folder, width, theme = (*sys.argv[1:], *("", "1280", "light")[len(sys.argv) - 1 :])
    main(Path(folder or "out/explorer"), int(width), theme)
