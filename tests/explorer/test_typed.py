"""Typed graphs in the explorer: what is served and shown is what the model itself says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from selenium.webdriver.support.ui import Select
from torch import nn
from torch_geometric.data import HeteroData

import graphsvx
from graphsvx import GraphSVX, runs
from graphsvx.errors import InputError
from graphsvx.explorer.questions import Limits
from graphsvx.explorer.server import start
from graphsvx.explorer.workspace import make_workspace, workspace_of_run
from graphsvx.testing.oracle import call, cut, probability_of
from tests.explorer.conftest import Client, Page
from tests.explorer.test_page import parameters, settle, violations
from tests.typed_worlds import hetero_model, relational_graph, relational_model, typed_graph

AUTHORS = ("Ada", "Bob <b>", "Cleo", "Dan", "Eve", "Fay", "Gus")
VIEWS = (
    "graph", "why&node=paper:4", "why&node=paper:4&players=relations", "why&node=author:1",
    "what-if&node=paper:4&nodes_off=author:2", "compare&node=paper:4", "overview",
)  # fmt: skip


@pytest.fixture(scope="module")
def data() -> HeteroData:
    graph = typed_graph(3, counts=(9, 7, 3), chance=0.3)
    graph["author"].names = list(AUTHORS)
    graph["paper"].y = torch.arange(9) % 3
    return graph


@pytest.fixture(scope="module")
def model(data: HeteroData) -> nn.Module:
    return hetero_model("sage", data, 1)


@pytest.fixture(scope="module")
def typed_client(data, model) -> Iterator[Client]:
    workspace = make_workspace(model, data, title="typed", class_names=("a", "b", "c"))
    with start(workspace, browser=False, limits=Limits(samples=2000)) as server:
        yield Client(server)


@pytest.fixture(scope="module")
def typed_page(shared_browser, typed_client) -> Page:
    return Page(shared_browser, typed_client)


@pytest.fixture
def page(window, typed_page) -> Page:
    return typed_page


def scores(model: nn.Module, graph: HeteroData, paper: int) -> list[float]:
    return probability_of(model, ("paper", paper))(graph).tolist()


# --- the interface ---------------------------------------------------------------------------


def test_predictions_are_the_model_s_for_exactly_that_graph(typed_client, data, model):
    answer = typed_client.answer("predict", node="paper:4")
    assert answer["scores"] == pytest.approx(scores(model, data, 4), abs=1e-12)
    answer = typed_client.answer("predict", node="paper:4", nodes_off="author:2,paper:1,17")
    absent = {("author", 2), ("paper", 1), ("subject", 1)}
    expected = scores(model, cut(data, absent), 4)
    assert answer["scores"] == pytest.approx(expected, abs=1e-12)
    assert answer["scores"] != pytest.approx(answer["before"], abs=1e-6)


def test_an_edge_that_is_off_is_gone_in_all_relations_and_both_ways(typed_client, data, model):
    u, v = data["paper", "cites", "paper"].edge_index[:, 0].tolist()
    off = {
        (name, i) for name in data.edge_types if name[0] == name[2] == "paper"
        for i, pair in enumerate(data[name].edge_index.t().tolist()) if set(pair) == {u, v}
    }  # fmt: skip
    answer = typed_client.answer("predict", node=f"paper:{v}", edges_off=f"{u}-{v}")
    expected = scores(model, cut(data, edges=off), v)
    assert answer["scores"] == pytest.approx(expected, abs=1e-12)


def test_features_are_those_of_the_node_s_type(typed_client, data, model):
    features = typed_client.answer("features", node="paper:4", at="author:2")["features"]
    values = {feature["name"]: feature["value"] for feature in features}
    expected = {
        f"author feature {i}": value for i, value in enumerate(data["author"].x[2].tolist())
    }
    assert values == pytest.approx(expected)
    column = next(f["id"] for f in features if f["name"] == "author feature 1")
    answer = typed_client.answer(
        "predict", node="paper:4", features_off="3", set=f"author:2:{column}:2.5"
    )
    changed = data.clone()
    changed["paper"].x[4, 3] = data["paper"].x[:, 3].mean()
    changed["author"].x[2, 1] = 2.5
    assert answer["scores"] == pytest.approx(scores(model, changed, 4), abs=1e-12)


def test_nodes_are_found_by_type_name_and_id(typed_client):
    def found(**filters: str) -> list[str]:
        return [row["name"] for row in typed_client.answer("nodes", limit=200, **filters)["rows"]]

    assert found(q="paper:4") == ["paper 4"]
    assert found(q="cleo") == ["Cleo"]
    assert found(type="subject") == ["subject 0", "subject 1", "subject 2"]
    assert found(type="author") == [*AUTHORS]
    assert found()[:9] == [f"paper {i}" for i in range(9)]
    wrong = typed_client.answer("nodes", answer="wrong")
    assert {row["type"] for row in wrong["rows"]} == {"paper"}
    assert wrong["total"] == typed_client.answer("workspace")["wrong"]


def test_explanations_are_the_library_s_with_groups_by_type_and_relation(typed_client, data, model):
    record = typed_client.answer("explain/page", node="paper:4", samples=300)
    explanation = graphsvx.explain(
        model, data, node=("paper", 4), method=GraphSVX(samples=300), targets="all"
    )
    by_type = {group["name"]: group["value"] for group in record["groups"]["types"]}
    assert by_type == pytest.approx(explanation.by_type())
    assert {dot["shape"] for dot in record["graph"]["dots"]} == {0, 1, 2}
    record = typed_client.answer("explain/page", node="paper:4", players="relations")
    explanation = graphsvx.explain(
        model, data, node=("paper", 4), method=GraphSVX(players="relations"), targets="all"
    )
    credit = sorted(group["value"] for group in record["groups"]["relations"])
    assert credit == pytest.approx(sorted(explanation.by_relation().values()))


def test_fidelity_is_the_change_of_the_model_s_score(typed_client, data, model):
    answer = typed_client.answer("fidelity", node="paper:4", players="nodes")
    explanation = graphsvx.explain(model, data, node=("paper", 4), method=GraphSVX(players="nodes"))
    ranked = sorted(
        ((name, i, value) for name, part in explanation.nodes.items()
         for i, value in part.by_id().items()), key=lambda node: -node[2],
    )  # fmt: skip
    top = {(name, i) for name, i, _ in ranked[:2]}
    rest = {(name, i) for name, i, _ in ranked[2:]}
    full = scores(model, data, 4)[explanation.target]
    assert answer["plus"][1] == pytest.approx(
        full - scores(model, cut(data, top), 4)[explanation.target]
    )
    assert answer["minus"][1] == pytest.approx(
        full - scores(model, cut(data, rest), 4)[explanation.target]
    )


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"node": "book:1"}, "of the types paper, author, subject, got 'book:1'"),
        ({"node": "paper:9"}, "paper must be from 0 to 8, got 9"),
        ({"node": "paper:x"}, "such as paper:0"),
        ({}, "say which node: node=paper:0"),
        ({"node": "paper:1", "features_off": "5"}, "not of the explained node"),
        ({"node": "paper:1", "set": "paper:1:5:1"}, "one of 'author', not of paper 1"),
        ({"node": "paper:1", "method": "gnnexplainer"}, "method must be one of graphsvx"),
    ],
)
def test_bad_questions_say_what_was_expected(typed_client, question, words):
    status, answer = typed_client.get("predict", **question)
    assert status == 400
    assert words in answer["error"]


def test_names_by_argument_are_refused_with_where_they_go(data, model):
    with pytest.raises(InputError, match=r'data\["author"\]\.names'):
        graphsvx.serve(model, data, node_names=["a"], browser=False)


def test_the_type_of_outputs_is_the_one_with_labels():
    graph = typed_graph(5, counts=(4, 4, 4))
    workspace = make_workspace(hetero_model("sage", graph, 0), graph)
    assert (workspace.table().predicted[:4] >= 0).all()
    assert (workspace.table().predicted[4:] == -1).all()


def test_links_of_a_typed_graph(data):
    model = hetero_model("encoder", data, 2)
    workspace = make_workspace(model, data, task="link")
    with start(workspace, browser=False, limits=Limits(samples=300)) as server:
        client = Client(server)
        answer = client.answer("predict", link="author:2,paper:4")
        out = call(model, data)
        expected = torch.sigmoid(out["author"][2] @ out["paper"][4]).item()
        assert answer["scores"][1] == pytest.approx(expected, abs=1e-12)
        assert answer["name"] == "link Cleo – paper 4"


class Facts(nn.Module):
    """Entities with a table, and a decoder that takes the relation."""

    def __init__(self) -> None:
        super().__init__()
        self.entities = nn.Parameter(torch.randn(7, 4, dtype=torch.float64))
        self.relations = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
        self.inner = relational_model("rgcn", 1)
        self.inner.second = type(self.inner.first)(6, 4, 3).double()

    def forward(self, edge_index, edge_type):
        return self.inner(self.entities, edge_index, edge_type)

    def decoder(self, head, tail, relation):
        return (head * self.relations[relation] * tail).sum(-1)


def test_a_link_of_a_relation():
    graph = relational_graph(2)
    graph.relation_names = ["knows", "likes", "owes <i>"]
    model = Facts().eval()
    workspace = make_workspace(model, graph, task="link")
    with start(workspace, browser=False, limits=Limits(samples=300)) as server:
        client = Client(server)
        assert client.answer("workspace")["relations"] == graph.relation_names
        answer = client.answer("predict", link="1,4", relation=2, nodes_off="3")
        keep = (graph.edge_index != 3).all(0)
        with torch.no_grad():
            out = model(graph.edge_index[:, keep], graph.edge_type[keep])
            expected = model.decoder(out[1], out[4], 2).sigmoid().item()
        assert answer["scores"][1] == pytest.approx(expected, abs=1e-12)
        record = client.answer("explain/page", link="1,4", relation=2, players="edges")
        assert record["outputs"][0]["prediction"] == pytest.approx(
            client.answer("predict", link="1,4", relation=2)["scores"][0]
        )
        assert record["groups"]["relations"]
        assert "from 0 to 2, got 3" in client.get("predict", link="1,4", relation=3)[1]["error"]


def test_relational_graphs_and_whole_typed_graphs():
    graph, model = relational_graph(2), relational_model("rgcn", 1)
    with start(make_workspace(model, graph), browser=False, limits=Limits(samples=300)) as server:
        answer = Client(server).answer("predict", node=3, nodes_off="2")
        expected = probability_of(model, 3)(cut(graph, [2])).tolist()
        assert answer["scores"] == pytest.approx(expected, abs=1e-12)
    graphs = [typed_graph(seed) for seed in range(3)]
    pooled = hetero_model("pooled", graphs[0], 1)
    with start(make_workspace(pooled, graphs), browser=False, limits=Limits(samples=300)) as server:
        client = Client(server)
        answer = client.answer("predict", graph=1, nodes_off="0")
        expected = probability_of(pooled)(cut(graphs[1], [("paper", 0)])).tolist()
        assert answer["scores"] == pytest.approx(expected, abs=1e-12)
        assert client.request("/api/v1/graphs/1.svg")[2].count(b"<circle") == 9
        assert client.answer("explain/page", graph=1)["groups"]["types"]


# --- the page --------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_accessible_and_fits_400_pixels(page, view):
    settle(page, view) if "author:1" not in view else page.open(f"view={view}")
    page.shows("#curves .curve") if view.startswith("compare") else page.shows("#main .card")
    assert page.browser.complaints() == []
    assert page.browser.run("return window.pwned") is None
    assert violations(page, {}) == []
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert page.browser.run("return document.documentElement.scrollWidth") <= 400


def test_nodes_are_filtered_by_type_and_picked(page):
    page.open("view=graph")
    page.shows(".line")
    Select(page.shows("#type")).select_by_value("paper")
    page.says("#count", "9 nodes")
    page.browser.all(".line")[4].click()
    page.is_explained()
    assert parameters(page) == {"view": "why", "node": "paper:4"}
    assert "Why · paper 4" in page.browser.driver.title
    page.says("#legend", "author")
    page.says("#groups", "By type")
    page.says('[data-table="node"] thead', "Type")


def test_a_node_without_an_output_says_so(page):
    page.open("view=why&node=author:1")
    page.says("main", "The model does not predict author 1")
    page.says("main", "nodes of type paper")


def test_a_neighbour_is_switched_off_and_on(page, data, model):
    page.open("view=what-if&node=paper:4")
    page.shows(".dot")
    page.scores(scores(model, data, 4))
    ends = data["author", "writes", "paper"].edge_index
    author = int(ends[0, ends[1] == 4][0])
    number = 9 + author
    page.browser.one(f'.dot[data-id="{number}"] .base').click()
    page.scores(scores(model, cut(data, [("author", author)]), 4))
    page.says("#changes", f"{AUTHORS[author]} off")
    page.says("#features h2", f"Features of {AUTHORS[author]}")
    page.browser.one(f'.dot[data-id="{number}"] .base').click()
    page.scores(scores(model, data, 4))
    assert page.browser.complaints() == []


@pytest.mark.parametrize("live", [True, False])
def test_the_overview_of_a_typed_run_leads_to_its_explanations(window, tmp_path, data, model, live):
    run = runs.start(model, data, nodes=("paper", [2, 4, 5]), out=tmp_path / "run",
                     progress=False, method=GraphSVX(samples=60),
                     backend=runs.Local(workers=1))  # fmt: skip
    workspace = make_workspace(model, data, run=run) if live else workspace_of_run(run)
    with start(workspace, browser=False, limits=Limits(samples=300)) as server:
        page = Page(window, Client(server))
        overview = page.client.answer("run")
        means = {line["name"]: line["mean"] for line in overview["types"]}
        expected = sum(explanation.by_type()["author"] for explanation in run) / 3
        assert means["author"] == pytest.approx(expected)
        wrong = sorted(row["name"] for row in overview["wrong"])
        predicted = call(model, data).argmax(-1)
        known = [f"paper {n}" for n in (2, 4, 5) if predicted[n] != data["paper"].y[n]]
        assert wrong == (known if live else [])
        page.open("view=overview")
        page.says("main", "Credit by type")
        page.open("view=why&node=paper:4&source=run")
        page.is_explained()
        page.says("#said", "paper 4")
        assert page.browser.complaints() == []
