"""What the server answers is what the library and the model themselves say."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import graphsvx
from graphsvx import Explanation, GraphSVX
from graphsvx.errors import InputError
from graphsvx.explorer.questions import Limits
from graphsvx.explorer.server import start
from graphsvx.explorer.workspace import make_workspace
from tests.explorer.conftest import NODE_NAMES, Client
from tests.worlds import random_model


def probabilities(model, x, edges, node):
    with torch.no_grad():
        return model(x, edges)[node].softmax(-1).tolist()


def test_a_prediction_without_changes_is_the_model_s(client, graph, models):
    for name, model in models.items():
        answer = client.answer("predict", node=4, model=name)
        expected = probabilities(model, graph.x, graph.edge_index, 4)
        assert answer["scores"] == pytest.approx(expected, abs=1e-12)
        assert answer["before"] == answer["scores"]


def test_nodes_and_edges_that_are_off_are_gone_from_the_graph(client, graph, models):
    off = {7, 9, 30}
    u, v = next((u, v) for u, v in graph.edge_index.t().tolist() if u != v and not {u, v} & off)
    answer = client.answer("predict", node=4, nodes_off="7,9,30", edges_off=f"{u}-{v}")
    keep = [
        i for i, (a, b) in enumerate(graph.edge_index.t().tolist())
        if not {a, b} & off and {a, b} != {u, v}
    ]  # fmt: skip
    expected = probabilities(models["gcn"], graph.x, graph.edge_index[:, keep], 4)
    assert answer["scores"] == pytest.approx(expected, abs=1e-12)
    assert answer["changes"] == 4


def test_features_can_be_averaged_and_set(client, graph, models):
    answer = client.answer("predict", node=4, features_off="1", set="4:0:2.5,11:2:-1e-1")
    x = graph.x.clone()
    x[4, 1], x[4, 0], x[11, 2] = graph.x[:, 1].mean(), 2.5, -0.1
    expected = probabilities(models["gcn"], x, graph.edge_index, 4)
    assert answer["scores"] == pytest.approx(expected, abs=1e-12)


def test_a_graph_with_an_atom_off(graphs_client, small_graphs, graph_model):
    data = small_graphs[2]
    answer = graphs_client.answer("predict", graph=2, nodes_off="1")
    keep, _ = subgraph([i for i in range(data.num_nodes) if i != 1], data.edge_index)
    with torch.no_grad():
        out = graph_model(data.x, keep, torch.zeros(data.num_nodes, dtype=torch.long))
    assert answer["scores"] == pytest.approx(out[0].softmax(-1).tolist(), abs=1e-12)


def test_a_link_is_the_inner_product_of_its_ends(links_client, graph, models):
    answer = links_client.answer("predict", link="3,8")
    with torch.no_grad():
        out = models["gcn"](graph.x, graph.edge_index)
    expected = torch.sigmoid(out[3] @ out[8]).item()
    assert answer["scores"][1] == pytest.approx(expected, abs=1e-12)
    record = links_client.answer("explain/page", link="3,8")
    assert record["outputs"][record["target_row"]]["name"] in ("link", "no link")


def test_explanations_are_the_library_s_bit_for_bit(client, graph, models):
    record = client.answer("explain", node=4, samples=300, seed=5)
    served = Explanation.from_dict(record)
    expected = graphsvx.explain(
        models["gcn"], graph, node=4, method=GraphSVX(samples=300), targets="all", seed=5
    )
    assert torch.equal(served.node_credit.values, expected.node_credit.values)
    assert torch.equal(served.feature_credit.errors, expected.feature_credit.errors)
    names = ("width", "height", "<img src=x onerror=window.pwned=1>")
    assert served.feature_credit.names == tuple(names[i] for i in served.feature_ids.tolist())


def test_a_contrast_is_the_difference_of_two_targets(client):
    record = Explanation.from_dict(client.answer("explain", node=4, target=0, rather_than=2))
    a, b = (Explanation.from_dict(client.answer("explain", node=4, target=t)).nodes for t in (0, 2))
    assert record.nodes == pytest.approx({node: a[node] - b[node] for node in a}, abs=1e-12)


def test_other_methods_answer_and_methods_without_steps_are_not_streamed(client):
    record = client.answer("explain/page", node=4, method="saliency")
    assert record["graph"]["dots"]
    assert Explanation.from_dict(client.answer("explain", node=4, method="saliency")).nodes
    _, error = client.get("explain/stream", node=4, method="saliency")
    assert "explain/page" in error["error"]


def test_a_stream_narrows_until_it_is_exact_or_the_budget_is_spent(client, graph):
    degree = torch.bincount(graph.edge_index[1])
    events = client.events(node=int(degree.argmax()))
    assert [event["final"] for event in events] == [False] * (len(events) - 1) + [True]
    errors = [event["progress"]["relativeError"] for event in events]
    calls = [event["progress"]["calls"] for event in events]
    assert errors[-1] <= errors[0]
    assert calls == sorted(calls)
    assert events[-1]["progress"]["status"] != "estimated" or errors[-1] <= 0.01 or calls[-1] > 1000
    places = [[(dot["x"], dot["y"]) for dot in event["graph"]["dots"]] for event in events]
    assert all(place == places[0] for place in places)


def test_nodes_are_found_by_id_name_class_and_answer(client):
    rows = client.answer("nodes", q="17")["rows"]
    assert [row["id"] for row in rows] == [17]
    assert client.answer("nodes", q="SCRIPT")["rows"][0]["id"] == 39
    wrong = client.answer("nodes", answer="wrong", limit=200)
    right = client.answer("nodes", answer="right", limit=200)
    assert wrong["total"] + right["total"] == 40
    assert all(row["class"] != row["predicted"] for row in wrong["rows"])
    scores = [row["score"] for row in client.answer("nodes", sort="-confidence")["rows"]]
    assert scores == sorted(scores, reverse=True)
    sure = client.answer("nodes", min_score=scores[3])
    assert sure["total"] == 4
    assert {row["class"] for row in client.answer("nodes", **{"class": 2})["rows"]} == {2}


def test_groups_are_the_sums_of_the_library(client, graph, models):
    record = client.answer("explain/page", node=4, samples=300)
    explanation = graphsvx.explain(
        models["gcn"], graph, node=4, method=GraphSVX(samples=300), targets="all"
    )
    hops = [(region.value, region.error) for region in explanation.by_hop()]
    assert [(entry["value"], entry["error"]) for entry in record["groups"]["hops"]] == hops
    branches = record["groups"]["branches"]
    assert [entry["value"] for entry in branches] == [r.value for r in explanation.branches()]
    near = {int(u) for u, v in graph.edge_index.t().tolist() if v == 4 and u != 4}
    named = {entry["name"] for entry in branches} - {"several ways"}
    assert named == {f"via {NODE_NAMES[node]}" for node in near}


def test_pairs_are_the_interactions_of_the_library(client, graph, models):
    record = client.answer("explain/page", node=4, samples=300, order=2)
    explanation = graphsvx.explain(
        models["gcn"], graph, node=4, method=GraphSVX(samples=300, order=2), targets="all"
    )
    expected = [pair.value for pair in explanation.together(12)]
    assert [pair["value"] for pair in record["together"]] == expected
    assert client.answer("explain/page", node=4, samples=300)["together"] == []


def test_nodes_of_a_link_task_have_no_predicted_class(links_client):
    about = links_client.answer("workspace")
    assert (about["wrong"], about["outputs"]) == (0, ["no link", "link"])
    assert not any(row["wrong"] for row in links_client.answer("nodes")["rows"])


def test_the_map_has_a_place_for_every_node(client, graph):
    answer = client.answer("map")
    assert len(answer["x"]) == len(answer["y"]) == len(answer["predicted"]) == 40
    pairs = {tuple(sorted(pair)) for pair in graph.edge_index.t().tolist() if pair[0] != pair[1]}
    drawn = list(zip(answer["edges"][::2], answer["edges"][1::2], strict=True))
    assert sorted(drawn) == sorted(pairs)
    assert len(set(zip(answer["x"], answer["y"], strict=True))) == 40


def test_agreement_of_an_explanation_with_itself_is_perfect(client):
    answer = client.answer("agreement", a="node=4", b="node=4")
    assert answer["spearman"] == pytest.approx(1)
    assert answer["cosine"] == pytest.approx(1)
    assert answer["overlap"] == answer["top"]
    other = client.answer("agreement", a="node=4", b="node=4&model=gat")
    assert other["cosine"] < 0.999


def test_fidelity_is_the_metric_s(client, graph, models):
    answer = client.answer("fidelity", node=4, samples=300)
    explanation = graphsvx.explain(models["gcn"], graph, node=4, method=GraphSVX(samples=300))
    plus, minus = graphsvx.metrics.fidelity(explanation, models["gcn"], graph, top=2)
    assert answer["plus"][1] == pytest.approx(plus, abs=1e-9)
    assert answer["minus"][1] == pytest.approx(minus, abs=1e-9)


def test_the_one_file_page_is_the_report(client):
    status, headers, content = client.request("/api/v1/explain/html?node=4")
    assert status == 200
    assert headers["content-disposition"] == 'attachment; filename="node-4.html"'
    data = content.decode().partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["explanations"][0]["kind"] == "node"


def test_graphs_have_thumbnails(graphs_client):
    status, headers, content = graphs_client.request("/api/v1/graphs/3.svg")
    assert (status, headers["content-type"]) == (200, "image/svg+xml")
    assert content.count(b"<circle") == 10


def test_features_of_a_node_by_name(client, graph):
    features = client.answer("features", node=4, at=9, q="width")["features"]
    assert [feature["id"] for feature in features] == [0]
    assert features[0]["value"] == pytest.approx(float(graph.x[9, 0]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"node_names": ["a"]}, "node_names must have 40 names, got 1"),
        ({"task": "graphs"}, "task must be"),
        ({"feature_names": "abc"}, "feature_names must be a list"),
    ],
)
def test_a_workspace_refuses_what_does_not_fit(graph, models, options, words):
    with pytest.raises(InputError, match=words):
        graphsvx.serve(models["gcn"], graph, browser=False, **options)


class Embedded(nn.Module):
    """Categories, or no features at all, looked up in a table."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, 3).double()
        self.inner = random_model("gcn", 1)

    def forward(self, x, edge_index):
        rows = self.table.weight if x is None else self.table(x)
        return self.inner(rows, edge_index)


class WithPositions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = random_model("gcn", 1)

    def forward(self, x, edge_index, pos):
        return self.inner(x + pos, edge_index)


def served(model, data, node=4, **options):
    """Scores of the page and of the explanation, the workspace, and what the list says."""
    workspace = make_workspace(model, data, **options)
    with start(workspace, browser=False, limits=Limits(samples=300)) as server:
        client = Client(server)
        record = client.answer("explain/page", node=node)
        scores = client.answer("predict", node=node)["scores"]
        output = record["outputs"][record["target_row"]]
        assert output["prediction"] == pytest.approx(scores[output["id"]], abs=1e-7)
        return scores, client.answer("workspace")


@pytest.mark.parametrize("kind", ["categories", "no features", "positions", "labels"])
def test_models_as_their_users_have_them(graph, models, kind):
    edges = graph.edge_index
    x, data, read = graph.x, graph.clone(), softmax
    if kind == "categories":
        x = data.x = torch.arange(40) % 5
        model = Embedded(5).eval()
    elif kind == "no features":
        x, model = None, Embedded(40).eval()
        data = Data(edge_index=edges, num_nodes=40)
    elif kind == "positions":
        data.pos = torch.ones(40, 3, dtype=torch.float64)
        model = WithPositions().eval()
    else:
        model, read = Labels(models["gcn"]), lambda out: out
    with torch.no_grad():
        out = model(x, edges, data.pos) if kind == "positions" else model(x, edges)
    scores, _ = served(model, data)
    assert scores == pytest.approx(read(out[4]).tolist(), abs=1e-12)


def softmax(out):
    return out.softmax(-1)


class Labels(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index):
        return self.inner(x, edge_index).sigmoid()


@pytest.mark.filterwarnings("ignore:data.y holds numbers")
def test_numbers_are_outputs_and_not_classes(graph, models):
    data = graph.clone()
    data.y = torch.randn(40, 3)
    scores, about = served(models["gcn"], data)
    with torch.no_grad():
        out = models["gcn"](graph.x, graph.edge_index)[4]
    assert scores == pytest.approx(out.tolist(), abs=1e-12)
    assert about["scale"] == "value"
    assert about["classes"][0]["name"] == "output 0"
    assert about["accuracy"] is None
