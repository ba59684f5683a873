"""The explorer in a real browser: what is shown is what the model and the library say."""

from __future__ import annotations

from importlib.resources import files
from urllib.parse import parse_qs, urlparse

import pytest
import torch
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import graphsvx
from graphsvx import GraphSVX, runs
from graphsvx.explorer.questions import Limits
from graphsvx.explorer.server import start
from graphsvx.explorer.workspace import make_workspace, workspace_of_run
from tests.explorer.conftest import Client, Page

AXE = files("selenium_axe_python") / "axe-core" / "axe.min.js"
VIEWS = ("graph", "why&node=4", "what-if&node=4&nodes_off=9", "compare&node=4", "overview")


def probabilities(model, x, edges, node):
    with torch.no_grad():
        return model(x, edges)[node].softmax(-1).tolist()


def without(edges, *, nodes=(), pairs=()):
    gone = {frozenset(pair) for pair in pairs}
    keep = [
        i for i, (u, v) in enumerate(edges.t().tolist())
        if not {u, v} & set(nodes) and frozenset((u, v)) not in gone
    ]  # fmt: skip
    return edges[:, keep]


def parameters(page) -> dict[str, str]:
    query = urlparse(page.browser.driver.current_url).query
    return {name: values[0] for name, values in parse_qs(query).items()}


def settle(page, view):
    """Open a view and wait until all of it is shown."""
    page.open(f"view={view}")
    page.shows({"graph": "#map", "compare&node=4": "#curves .curve"}.get(view, "#main .card"))
    if view.startswith("why"):
        page.is_explained()
        page.shows("#classes .row")


def violations(page, options):
    """What axe-core objects to on the page as it is."""
    if not page.browser.run("return 'axe' in window"):
        page.browser.run(AXE.read_text(encoding="utf-8"))
    return page.browser.driver.execute_async_script(
        "const [options, done] = arguments;"
        "axe.run(options).then((result) => done(result.violations"
        ".map((rule) => [rule.id, rule.nodes.map((node) => node.html.slice(0, 160))])))",
        options,
    )


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_accessible_fits_400_pixels_and_asks_nobody_else(page, view):
    settle(page, view)
    assert page.browser.complaints() == []
    assert all(url.startswith(page.client.server.address) for url in page.browser.requests())
    assert page.browser.run("return window.pwned") is None
    assert "token" not in page.browser.driver.current_url
    assert violations(page, {}) == []
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert page.browser.run("return document.documentElement.scrollWidth") <= 400
    page.browser.one("#theme").click()
    settle(page, view)  # the choice is remembered
    assert page.browser.run("return document.documentElement.dataset.theme") == "dark"
    assert violations(page, {"runOnly": ["color-contrast"]}) == []
    assert page.browser.run("return document.documentElement.scrollWidth") <= 400


def test_nodes_are_filtered_and_picked_from_the_list(page):
    page.open("view=graph")
    page.shows(".line")
    wrong = page.client.answer("nodes", answer="wrong")
    Select(page.browser.all(".filters select")[2]).select_by_value("wrong")
    page.says("#count", f"{wrong['total']} node")
    assert parameters(page)["answer"] == "wrong"
    page.browser.one(".line").click()
    page.is_explained()
    assert parameters(page) == {"view": "why", "node": str(wrong["rows"][0]["id"])}
    page.browser.driver.back()
    page.says("#count", f"{wrong['total']} node")


def test_a_node_is_picked_on_the_map(page):
    page.open("view=graph")
    canvas = page.shows("#map")
    where = page.client.answer("map")
    unit = min(canvas.size["width"], canvas.size["height"]) - 24
    dx, dy = ((where[axis][7] / 10_000 - 0.5) * unit for axis in "xy")
    page.until("return document.querySelector('#map').width > 300")
    ActionChains(page.browser.driver).move_to_element_with_offset(
        canvas, round(dx), round(-dy)
    ).click().perform()
    page.until("return new URLSearchParams(location.search).get('node') === '7'")


def test_the_why_view_shows_the_explanation_and_the_model_s_classes(page, graph, models):
    page.open("view=why&node=4&samples=300")
    page.is_explained()
    page.shows("#classes .row")
    explanation = graphsvx.explain(
        models["gcn"], graph, node=4, method=GraphSVX(samples=300), targets="all"
    )
    shown = {
        int(row.get_attribute("data-key")): float(
            row.find_element("css selector", "[class*=-text]")
            .get_attribute("textContent")
            .replace("−", "-")
        )
        for row in page.browser.all('[data-table="node"] tbody tr[data-key]')
    }
    assert shown == pytest.approx(explanation.nodes, abs=5.1e-5)
    other = next(c for c in range(3) if c != explanation.target)
    page.browser.one(f'[data-class="{other}"]').click()
    page.says("#said", ("a", "b", "<b>c</b>")[other])
    page.is_explained()
    page.shows(f'[data-against="{explanation.target}"]').click()
    page.says("#said", "rather than")
    assert parameters(page)["rather_than"] == str(explanation.target)
    bars = page.browser.one("#groups").text
    assert "By distance" in bars
    assert "By branch" in bars
    Select(page.browser.all(".settings select")[3]).select_by_value("2")
    page.says("#groups", "Together")
    assert parameters(page)["order"] == "2"


def test_estimates_are_refined_while_the_page_is_open_and_can_be_stopped(page, graph):
    hub = int(torch.bincount(graph.edge_index[1]).argmax())
    page.open("view=graph")
    page.shows(".line")
    page.browser.run("""window.seen = [];
        new MutationObserver(() => {
            const error = document.querySelector('#error-says')?.dataset.error;
            if (error && window.seen.at(-1) !== Number(error)) window.seen.push(Number(error));
        }).observe(document.querySelector('#main'), { subtree: true, childList: true });
        document.querySelector(`.line[data-id="${arguments[0]}"]`).click()""", hub)  # fmt: skip
    page.is_explained()
    errors = page.browser.run("return window.seen")
    assert errors[-1] <= errors[0]  # each is an estimate, which may rise for once
    assert len(errors) > 1 or "exact" in page.browser.text("#progress")


def test_what_if_shows_the_model_s_own_scores_and_undo_takes_back(page, graph, models):
    model, edges = models["gcn"], graph.edge_index
    page.open("view=what-if&node=4")
    page.shows(".dot")
    full = probabilities(model, graph.x, edges, 4)
    page.scores(full)
    near = int(edges[0, (edges[1] == 4) & (edges[0] != 4)][0])
    page.browser.one(f'.dot[data-id="{near}"] .base').click()
    off = probabilities(model, graph.x, without(edges, nodes=[near]), 4)
    page.scores(off)
    assert "off" in page.browser.one(f'.dot[data-id="{near}"]').get_attribute("class")
    assert parameters(page)["nodes_off"] == str(near)
    page.browser.driver.refresh()  # the address holds what is changed
    page.shows(".dot.off")
    page.scores(off)
    page.browser.driver.back()
    page.scores(full)
    page.browser.driver.forward()
    page.scores(off)
    target = page.browser.one(".line-target")
    u, v = map(int, target.get_attribute("data-line").split("-"))
    page.browser.run("arguments[0].dispatchEvent(new MouseEvent('click'))", target)
    both = without(without(edges, nodes=[near]), pairs=[(u, v)])
    page.scores(probabilities(model, graph.x, both, 4))
    page.browser.one("body").send_keys("u")
    page.scores(off)
    page.browser.one("#reset").click()
    page.scores(full)
    assert page.browser.complaints() == []


def test_features_are_switched_off_and_set(page, graph, models):
    page.open("view=what-if&node=4")
    page.shows('[data-feature="1"]').click()
    x = graph.x.clone()
    x[4, 1] = graph.x[:, 1].mean()
    page.scores(probabilities(models["gcn"], x, graph.edge_index, 4))
    field = page.browser.one('[aria-label="Value of width"]')
    field.clear()
    field.send_keys("2.5", Keys.TAB)
    x[4, 0] = 2.5
    page.scores(probabilities(models["gcn"], x, graph.edge_index, 4))
    page.says("#changes", "width of node 4 = 2.5")


def test_the_keyboard_searches_and_goes_to_the_next_wrong_prediction(page):
    page.open("view=graph")
    page.shows(".line")
    page.browser.one("body").send_keys("/")
    page.browser.driver.switch_to.active_element.send_keys("script")
    page.shows("#hits li[id]")
    assert page.browser.text("#hits .name") == "<script>window.pwned=1</script>"
    page.browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.until("return new URLSearchParams(location.search).get('node') === '39'")
    page.is_explained()
    wrong = [row["id"] for row in page.client.answer("nodes", answer="wrong")["rows"]]
    page.browser.one("body").send_keys("n")
    page.until(f"return new URLSearchParams(location.search).get('node') === '{wrong[0]}'")
    page.browser.one("body").send_keys("p")
    page.until(f"return new URLSearchParams(location.search).get('node') === '{wrong[-1]}'")
    assert page.browser.run("return window.pwned") is None


def test_comparing_two_models(page):
    page.open("view=compare&node=4&b_model=gat&b_method=graphsvx")
    page.shows("#agreement .chart")
    page.shows("#curves .curve")
    answer = page.client.answer("agreement", a="node=4&samples=1000",
                                b="node=4&model=gat&method=graphsvx&samples=1000")  # fmt: skip
    text = f"{answer['cosine']:.4f}".replace("-", "−")
    assert text in page.browser.text("#agreement")
    assert len(page.browser.all("svg.graph .dot")) > 10


def test_empty_and_wrong_states_say_what_to_do(page):
    for view in ("why", "what-if", "compare"):
        page.open(f"view={view}")
        page.says("main", "Choose a node")
    page.open("view=overview")
    page.says("main", "graphsvx serve runs/")
    page.open("view=why&node=4000")
    page.says("[role=alert]", "node must be from 0 to 39")
    page.open("view=nonsense")
    page.shows(".line")


def test_the_displayed_explanation_can_be_saved(page):
    page.open("view=why&node=4&samples=100")
    page.is_explained()
    page.browser.run("""window.saved = [];
        const make = URL.createObjectURL.bind(URL);
        URL.createObjectURL = (blob) => {
            window.saved.push([blob.type, blob.size]);
            return make(blob);
        };
        HTMLAnchorElement.prototype.click = () => {};
        document.querySelectorAll('.menu button').forEach((button) => button.click())""")
    page.until("return window.saved.some(([type, size]) => type === 'image/png' && size > 2000)")
    assert page.browser.run("return window.saved.some(([type]) => type === 'image/svg+xml')")
    links = [link.get_attribute("href") for link in page.browser.all(".menu a")]
    for link in links:
        path = link.removeprefix(page.client.server.address)
        assert page.client.request(path)[0] == 200


def test_a_gallery_of_graphs(window, graphs_client, small_graphs, graph_model):
    page = Page(window, graphs_client)
    page.until(
        "const images = [...document.querySelectorAll('.tile img')];"
        "return images.length === 5 && images.every((image) => image.naturalWidth)"
    )
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert page.browser.run("return document.documentElement.scrollWidth") <= 400
    on_one_line = """return [...document.querySelectorAll('.tile .what, #tabs')].every((line) => {
        const middle = [...line.children].map((part) => part.getBoundingClientRect())
            .map((box) => (box.top + box.bottom) / 2);
        return Math.max(...middle) - Math.min(...middle) < 8;
    })"""
    assert page.browser.run(on_one_line)
    assert violations(page, {}) == []
    page.browser.one('.tile[data-id="3"]').click()
    page.is_explained()
    assert len(page.browser.all(".dot")) == small_graphs[3].num_nodes
    page.open("view=what-if&graph=3")
    page.shows('.dot[data-id="1"]').send_keys(Keys.ENTER)
    data = small_graphs[3]
    with torch.no_grad():
        out = graph_model(
            data.x, without(data.edge_index, nodes=[1]), torch.zeros(10, dtype=torch.long)
        )
    page.scores(out[0].softmax(-1).tolist())
    assert page.browser.complaints() == []


def test_a_link_is_picked_by_its_two_ends(window, links_client):
    page = Page(window, links_client)
    page.shows('.line[data-id="3"]').click()
    page.says(".pick-two", "From node 3")
    page.shows('.line[data-id="8"]').click()
    page.is_explained()
    assert parameters(page)["link"] == "3,8"
    assert page.browser.complaints() == []


@pytest.fixture(scope="module")
def run(tmp_path_factory, graph, models):
    folder = tmp_path_factory.mktemp("runs") / "six"
    return runs.start(models["gcn"], graph, nodes=range(6), out=folder, progress=False,
                      method=GraphSVX(samples=60), backend=runs.Local(workers=1))  # fmt: skip


@pytest.mark.parametrize("live", [True, False])
def test_the_overview_of_a_run_leads_to_its_explanations(window, graph, models, run, live):
    workspace = (
        make_workspace(models["gcn"], graph, run=run) if live else workspace_of_run(run)
    )  # fmt: skip
    with start(workspace, browser=False, limits=Limits(samples=300)) as server:
        page = Page(window, Client(server))
        page.open("view=overview")
        page.says("main", "6 of 6")
        wrong = page.client.answer("run")["wrong"]
        expected = [n for n in range(6) if run[n].target != int(graph.y[n])]
        assert sorted(row["id"] for row in wrong) == expected
        page.shows("tr.link-row").click()
        page.is_explained()
        node = int(parameters(page)["node"])
        credit = run[node].nodes
        strongest = max(credit, key=lambda player: abs(credit[player]))
        row = page.browser.one(f'[data-table="node"] tbody tr[data-key="{strongest}"]')
        shown = f"{credit[strongest]:+.4f}".replace("-", "−")
        assert shown in row.get_attribute("textContent")
        assert page.browser.complaints() == []
