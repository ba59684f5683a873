"""The start page: several data sets at one address, loaded when they are opened."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from graphsvx.errors import DataError
from graphsvx.explorer.app import OfferedSet
from graphsvx.explorer.server import start
from graphsvx.explorer.workspace import make_workspace
from tests.explorer.conftest import Client
from tests.explorer.test_page import violations
from tests.worlds import random_graph, random_model

loaded: list[str] = []


def _load(name: str, seed: int):
    def load():
        loaded.append(name)
        return make_workspace(random_model("gcn", seed), random_graph(seed), title=name)

    return load


def _fail():
    raise DataError("the files of this set are not here")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    sets = {
        "first": OfferedSet("Nine <b>nodes</b>.", _load("first", 1)),
        "second": OfferedSet("Nine others.", _load("second", 2)),
        "absent": OfferedSet("Not here.", _fail),
    }
    with start(sets, browser=False) as server:
        yield Client(server)


def test_the_page_lists_the_sets_and_loads_none(client):
    status, _, content = client.request("/")
    assert status == 200
    page = content.decode()
    assert all(f'href="sets/{name}/"' in page for name in ("first", "second", "absent"))
    assert "<b>" not in page
    assert loaded == []


def test_each_set_has_an_explorer_of_its_own_and_is_loaded_once(client):
    for name in ("first", "second", "first"):
        status, _, content = client.request(f"/sets/{name}/")
        assert (status, b"static/app.js" in content) == (200, True)
        assert client.request(f"/sets/{name}/static/app.js")[0] == 200
        status, _, content = client.request(f"/sets/{name}/api/v1/workspace")
        assert (status, f'"title":"{name}"'.encode() in content) == (200, True)
    assert sorted(loaded) == ["first", "second"]
    paths = (f"/sets/{name}/api/v1/explain?node=1" for name in ("first", "second"))
    first, second = (client.request(path)[2] for path in paths)
    assert first != second


def test_what_cannot_be_loaded_or_is_not_there_says_so(client):
    status, _, content = client.request("/sets/absent/api/v1/workspace")
    assert (status, b"not here" in content) == (400, True)
    assert client.request("/sets/third/api/v1/workspace")[0] == 404
    assert client.request("/sets/first/api/v1/nothing")[0] == 404
    assert client.request("/sets/first/api/v1/workspace", token=False)[0] == 401


def test_the_start_page_is_accessible_and_leads_into_a_set_and_back(client, shared_browser):
    browser = shared_browser
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.driver.get(client.server.url)
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    assert violations(SimpleNamespace(browser=browser), {}) == []
    browser.one('a[href="sets/second/"]').click()
    WebDriverWait(browser.driver, 40).until(
        lambda driver: driver.execute_script("return document.querySelector('#tabs button')")
    )
    assert browser.text("#title") == "second"
    assert violations(SimpleNamespace(browser=browser), {}) == []
    browser.one("#all-sets").click()
    assert browser.run("return document.querySelectorAll('.sets li').length") == 3
    assert browser.complaints() == []
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
