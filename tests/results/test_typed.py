"""Results on typed graphs: credit by type, saved forms, exports, views."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer

import graphsvx
from graphsvx import Explanation
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.integrations.pyg import GraphSVXAlgorithm
from graphsvx.methods import GNNExplainer, GraphSVX
from graphsvx.results import serialize
from graphsvx.runs import arrow_schema
from graphsvx.views import html
from graphsvx.views.drawing import drawing_of
from tests import typed_worlds as worlds
from tests.typed_worlds import EDGE_TYPES, typed_graph

DOCUMENT = Path(__file__).parents[2] / "docs" / "schema.json"


@pytest.fixture(scope="module")
def data() -> HeteroData:
    return typed_graph(2)


@pytest.fixture(scope="module")
def model(data: HeteroData) -> torch.nn.Module:
    return worlds.hetero_model("sage", data, 2)


@pytest.fixture(scope="module")
def nodes(model: torch.nn.Module, data: HeteroData) -> Explanation:
    return graphsvx.explain(model, data, node=("paper", 1), targets="all")


@pytest.fixture(scope="module")
def edges(model: torch.nn.Module, data: HeteroData) -> Explanation:
    method = GraphSVX(players="edges", samples=80)
    return graphsvx.explain(model, data, node=("paper", 1), method=method)


def test_edges_of_a_relation_with_a_line_break_in_its_name_have_its_credit(model, data) -> None:
    method = GraphSVX(players="relations")
    explanation = graphsvx.explain(model, data, node=("paper", 1), method=method)
    assert explanation.groups is not None
    edges = {f"{name}\nx": edges for name, edges in explanation.groups.edges.items()}
    broken = replace(
        explanation,
        edge_credit=replace(explanation.edge_credit, names=tuple(edges)),
        groups=replace(explanation.groups, edges=edges),
    )
    assert any(line.plays for line in drawing_of(broken).lines)
    assert drawing_of(broken) == drawing_of(explanation)


def test_types_and_labels_can_be_asked_for(nodes: Explanation) -> None:
    assert nodes.require_types() is nodes.types
    with pytest.raises(InputError, match="no types"):
        replace(nodes, types=None).require_types()
    ids = replace(nodes.node_credit, names=None)
    assert [ids.label(player) for player in range(ids.players)] == [*map(str, ids.ids.tolist())]


def test_credit_by_type_is_all_credit(nodes: Explanation) -> None:
    assert set(nodes.nodes) <= {"paper", "author", "subject"}
    authors = nodes.nodes["author"]
    assert authors.ids.tolist() == sorted(authors.ids.tolist())
    assert int(authors.ids.max()) < 3
    assert authors.values.shape == authors.errors.shape == authors.ids.shape
    assert sum(nodes.by_type().values()) == pytest.approx(float(nodes.node_values.sum()))
    assert list(nodes.features) == ["paper"]
    assert "author 0" in authors.names


def test_credit_by_relation_is_all_credit(edges: Explanation) -> None:
    assert set(edges.by_relation()) <= set(EDGE_TYPES)
    # Edges that are written in both directions count as the first type of the two.
    assert not {EDGE_TYPES[1], EDGE_TYPES[3]} & set(edges.by_relation())
    assert sum(edges.by_relation().values()) == pytest.approx(float(edges.edge_values.sum()))


def test_node_types_choose_who_plays(model: torch.nn.Module, data: HeteroData) -> None:
    method = GraphSVX(players="nodes", node_types=("author", "subject"))
    explanation = graphsvx.explain(model, data, node=("paper", 1), method=method)
    assert set(explanation.nodes) == {"author", "subject"}


@pytest.mark.parametrize("name", ["nodes", "edges"])
def test_a_typed_explanation_survives_json_and_arrow(
    name: str, request: pytest.FixtureRequest
) -> None:
    explanation: Explanation = request.getfixturevalue(name)
    record = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert serialize.same(Explanation.from_dict(record), explanation)
    validator = jsonschema.Draft202012Validator(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    assert [error.message for error in validator.iter_errors(record)] == []
    row = arrow_schema.read_row(arrow_schema.to_table([0], [explanation]), 0)
    assert serialize.same(row, explanation)


def test_pygs_explanation_has_a_mask_for_each_type(
    nodes: Explanation, edges: Explanation, data: HeteroData
) -> None:
    masks = nodes.to_pyg()
    assert masks["author"].node_mask.shape == (3, 1)
    for i, value in nodes.nodes["author"].by_id().items():
        assert float(masks["author"].node_credit[i]) == pytest.approx(value, abs=1e-6)
    assert masks.validate_masks()
    by_edge = edges.to_pyg()
    for name in data.edge_types:
        assert by_edge[name].edge_mask.shape == (data[name].edge_index.shape[1],)
    total = sum(float(by_edge[name].edge_credit.sum()) for name in data.edge_types)
    assert total == pytest.approx(float(edges.edge_values.sum()), abs=1e-5)


def test_pyg_draws_typed_explanations_of_nodes(
    nodes: Explanation, data: HeteroData, tmp_path: Path
) -> None:
    converted = nodes.to_pyg(data)
    assert converted.validate(raise_on_error=True)
    carried = sum(float(converted[name].edge_credit.sum()) for name in data.edge_types)
    assert carried == pytest.approx(float(nodes.node_values.sum()), abs=1e-5)
    converted.visualize_graph(str(tmp_path / "graph.png"))
    converted.visualize_feature_importance(str(tmp_path / "features.png"), top_k=2)
    assert (tmp_path / "graph.png").stat().st_size > 0
    assert (tmp_path / "features.png").stat().st_size > 0


def test_pygs_explainer_of_a_model_without_batch(data: HeteroData) -> None:
    class Mean(nn.Module):
        def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
            senders = edge_index_dict["author", "writes", "paper"][0]
            return x_dict["author"][senders].sum(0)[:1]

    explainer = Explainer(
        Mean(), algorithm=GraphSVXAlgorithm(), explanation_type="model", edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "graph"},
    )  # fmt: skip
    result = explainer(data.x_dict, data.edge_index_dict)
    assert result.graphsvx.kind == "graph"
    assert float(result["author", "writes", "paper"].edge_mask.max()) == 1


@pytest.mark.parametrize("mask", ["object", "common_attributes", "attributes", "edges"])
def test_inside_pygs_explainer(mask: str, model: torch.nn.Module, data: HeteroData) -> None:
    masks = {"edge_mask_type": "object"} if mask == "edges" else {"node_mask_type": mask}
    explainer = Explainer(
        model, algorithm=GraphSVXAlgorithm(GraphSVX(samples=60)), explanation_type="model",
        model_config={"mode": "multiclass_classification", "task_level": "node",
                      "return_type": "raw"},
        **masks,
    )  # fmt: skip
    result = explainer(data.x_dict, data.edge_index_dict, index=1)
    assert result.validate()
    record = result.graphsvx
    assert isinstance(record, Explanation)
    shapes = {"object": (4, 1), "common_attributes": (1, 4), "attributes": (4, 4)}
    if mask != "edges":
        assert result["paper"].node_mask.shape == shapes[mask]
        total = sum(float(part.sum()) for part in result.collect("node_credit").values())
    else:
        total = sum(float(part.sum()) for part in result.collect("edge_credit").values())
    assert total == pytest.approx(record.total, abs=1e-5)


class Scores(nn.Module):
    """Links between authors and papers, as in PyG's examples."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_label_index: Tensor) -> Tensor:
        out = self.encoder(x_dict, edge_index_dict)
        u, v = edge_label_index
        return (out["author"][u] * out["paper"][v]).sum(-1)


@pytest.mark.parametrize("mask", ["node_mask_type", "edge_mask_type"])
def test_links_inside_pygs_explainer(mask: str, data: HeteroData) -> None:
    model = Scores(worlds.hetero_model("encoder", data, 1)).eval()
    pairs = torch.tensor([[0, 1], [1, 2]])

    def explain(algorithm: GraphSVXAlgorithm) -> Any:
        explainer = Explainer(
            model, algorithm=algorithm, explanation_type="model", **{mask: "object"},
            model_config={"mode": "binary_classification", "task_level": "edge",
                          "return_type": "raw"},
        )  # fmt: skip
        return explainer(data.x_dict, data.edge_index_dict, edge_label_index=pairs, index=1)

    result = explain(GraphSVXAlgorithm(GraphSVX(samples=60), node_type=("author", "paper")))
    assert result.validate()
    assert result.graphsvx.title.startswith("link author 1 → paper 2")
    with pytest.raises(UnsupportedError, match="which node types the links join"):
        explain(GraphSVXAlgorithm())


def test_players_that_typed_graphs_do_not_have_are_refused(model, data) -> None:
    for players in ("cells", "edge_attr"):
        with pytest.raises(UnsupportedError, match="graphs without types"):
            graphsvx.explain(model, data, node=("paper", 1), method=GraphSVX(players=players))


def test_ids_in_a_data_frame_have_types(nodes: Explanation) -> None:
    frame = nodes.to_pandas()
    ids = frame[frame.kind == "node"].id.tolist()
    assert set(ids) == {(name, i) for name, part in nodes.nodes.items() for i in part.by_id()}
    assert set(frame[frame.kind == "feature"].id) <= {("paper", i) for i in range(4)}


def test_a_model_that_takes_hetero_data(model: nn.Module, data: HeteroData) -> None:
    class OfData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, data: HeteroData) -> Tensor:
            return self.inner(data.x_dict, data.edge_index_dict)

    question = {"node": ("paper", 1), "method": GraphSVX(samples=60)}
    expected = graphsvx.explain(model, data, **question)
    explanation = graphsvx.explain(OfData().eval(), data, **question)
    torch.testing.assert_close(explanation.node_values, expected.node_values)


def test_a_node_type_may_be_empty(model: nn.Module) -> None:
    data = typed_graph(1)
    expected = graphsvx.explain(model, data, node=("paper", 1), method=GraphSVX(samples=60))
    data["venue"].x = torch.zeros(0, 3, dtype=torch.float64)
    data["venue", "of", "paper"].edge_index = torch.zeros(2, 0, dtype=torch.long)
    explanation = graphsvx.explain(model, data, node=("paper", 1), method=GraphSVX(samples=60))
    torch.testing.assert_close(explanation.node_values, expected.node_values)


def test_an_ambiguous_type_is_asked_for(model: torch.nn.Module, data: HeteroData) -> None:
    twin = typed_graph(2, counts=(4, 4, 2))
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}

    def explain(algorithm: GraphSVXAlgorithm) -> object:
        explainer = Explainer(
            model, algorithm=algorithm, explanation_type="model", node_mask_type="object",
            model_config=config,
        )  # fmt: skip
        return explainer(twin.x_dict, twin.edge_index_dict, index=0)

    with pytest.raises(UnsupportedError, match="node_type"):
        explain(GraphSVXAlgorithm())
    explain(GraphSVXAlgorithm(GraphSVX(samples=20), node_type="paper"))


def test_views_name_types(nodes: Explanation, edges: Explanation) -> None:
    console = Console(record=True, width=100)
    console.print(nodes.table())
    text = console.export_text()
    assert "author 0" in text or "subject 0" in text
    assert nodes.title.startswith("paper 1: ")
    assert "paper 1" in nodes.describe()
    for explanation in (nodes, edges):
        page = html.render(explanation)
        assert "author" in page
        legend = explanation.plot().get_legend()
        assert {"paper", "author", "subject"} <= {text.get_text() for text in legend.get_texts()}


def test_networkx_has_types(nodes: Explanation) -> None:
    graph = nodes.to_networkx()
    assert {about["type"] for _, about in graph.nodes(data=True)} == {"paper", "author", "subject"}


def test_invalid_queries_are_refused(model: torch.nn.Module, data: HeteroData) -> None:
    for node, words in (
        (3, "node type and an id"),
        (("writer", 0), "node types are"),
        (("paper", 99), "from 0 to 3"),
    ):
        with pytest.raises(InputError, match=words):
            graphsvx.explain(model, data, node=node)
    method = GraphSVX(players="edges", groups={"a": [("a", "b", "c")]})
    with pytest.raises(InputError, match="edge types are"):
        graphsvx.explain(model, data, node=("paper", 0), method=method)
    with pytest.raises(UnsupportedError, match="GNNExplainer explains graphs without types"):
        graphsvx.explain(model, data, node=("paper", 0), method=GNNExplainer())
