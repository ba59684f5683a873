"""A small model and graph behind a running server."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphsvx.explorer.questions import Limits
from graphsvx.explorer.server import Server, start
from graphsvx.explorer.workspace import make_workspace
from tests.views.html import browser as chromium
from tests.worlds import pooled, random_graph, random_model

NODE_NAMES = (*(f"paper {i}" for i in range(39)), "<script>window.pwned=1</script>")


class Client:
    """Requests with the token, and without help: what is sent is what is written."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def request(self, path: str, *, method="GET", headers=None, body=None, token=True):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        sent = {"Authorization": f"Bearer {self.server.token}"} if token else {}
        connection.request(method, path, body=body, headers={**sent, **(headers or {})})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, dict(response.getheaders()), content

    def get(self, name: str, **parameters):
        query = f"?{urlencode(parameters)}" if parameters else ""
        status, _, content = self.request(f"/api/v1/{name}{query}")
        return status, json.loads(content)

    def answer(self, name: str, **parameters):
        status, value = self.get(name, **parameters)
        assert status == 200, value
        return value

    def events(self, **parameters) -> list[dict]:
        _, _, content = self.request(f"/api/v1/explain/stream?{urlencode(parameters)}")
        lines = content.decode().split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


@pytest.fixture(scope="session")
def graph() -> Data:
    data = random_graph(3, nodes=40, chance=0.09)
    data.y = torch.arange(40) % 3
    return data


@pytest.fixture(scope="session")
def models() -> dict[str, nn.Module]:
    return {"gcn": random_model("gcn", 1), "gat": random_model("gat", 2)}


@pytest.fixture(scope="session")
def client(graph, models) -> Iterator[Client]:
    workspace = make_workspace(
        models, graph, title="random", class_names=("a", "b", "<b>c</b>"),
        feature_names=("width", "height", "<img src=x onerror=window.pwned=1>"),
        node_names=NODE_NAMES,
    )  # fmt: skip
    with start(workspace, browser=False, limits=Limits(samples=2000)) as server:
        yield Client(server)


@pytest.fixture(scope="session")
def small_graphs() -> list[Data]:
    return [random_graph(seed, nodes=7 + seed) for seed in range(5)]


@pytest.fixture(scope="session")
def graph_model() -> nn.Module:
    return pooled("gcn", "mean", 0)


@pytest.fixture(scope="session")
def graphs_client(small_graphs, graph_model) -> Iterator[Client]:
    for i, data in enumerate(small_graphs):
        data.y = torch.tensor([i % 2])
    names = ("of the first kind", "of the second kind")  # long enough to need two lines
    workspace = make_workspace(graph_model, small_graphs, class_names=names)
    with start(workspace, browser=False, limits=Limits(samples=300)) as server:
        yield Client(server)


@pytest.fixture(scope="session")
def links_client(graph, models) -> Iterator[Client]:
    workspace = make_workspace(models["gcn"], graph, task="link")
    with start(workspace, browser=False, limits=Limits(samples=300)) as server:
        yield Client(server)


@pytest.fixture(scope="session")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    reason = chromium.missing()
    if reason is not None:
        pytest.skip(reason)
    browser = chromium.Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.driver.quit()


class Page:
    """A browser window on the explorer."""

    def __init__(self, browser: chromium.Browser, client: Client) -> None:
        self.browser, self.client = browser, client
        browser.driver.get(client.server.url)
        self.until("return document.querySelector('#tabs button') !== null")
        browser.complaints()
        browser.requests()

    def open(self, query: str) -> None:
        self.browser.driver.get(f"{self.client.server.address}/?{query}")

    def until(self, script: str, *arguments):
        end = time.monotonic() + 40
        while True:
            value = self.browser.run(script, *arguments)
            if value:
                return value
            assert time.monotonic() < end, f"{script}: {self.browser.text('main')[:500]}"
            time.sleep(0.02)

    def shows(self, selector: str):
        self.until("return document.querySelector(arguments[0]) !== null", selector)
        return self.browser.one(selector)

    def says(self, selector: str, words: str) -> None:
        text = "(document.querySelector(arguments[0])?.textContent ?? '')"
        script = f"return {text}.includes(arguments[1])"
        self.until(script, selector, words)

    def is_explained(self) -> None:
        self.until(
            "return ['done', 'stopped'].includes(document.querySelector('.why')?.dataset.state)"
        )

    def scores(self, expected: list[float]) -> None:
        """Wait until the shown scores are these."""
        close = """const text = document.querySelector('#scores')?.dataset.scores;
            const shown = JSON.parse(text ?? '[]');
            return shown.length === arguments[0].length
                && shown.every((score, i) => Math.abs(score - arguments[0][i]) < 1e-9)"""
        self.until(close, expected)


@pytest.fixture
def window(shared_browser: chromium.Browser) -> Iterator[chromium.Browser]:
    yield shared_browser
    shared_browser.run("try { localStorage.clear() } catch {}")
    shared_browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    shared_browser.complaints()
    shared_browser.requests()


@pytest.fixture(scope="session")
def opened(shared_browser, client) -> Page:
    """The explorer with its cookie: later pages need no token."""
    return Page(shared_browser, client)


@pytest.fixture
def page(window, opened) -> Page:
    return opened
