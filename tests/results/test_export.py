"""Explanations as objects of pandas, networkx, PyG, captum and shap."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch
from torch_geometric.data import Data

from graphsvx import Explanation, Explanations, GraphSVX, explain, explain_many
from graphsvx.errors import InputError
from graphsvx.results import summary
from graphsvx.results.describe import describe, equation
from graphsvx.views import plot
from tests.worlds import random_graph, random_model

DATA = random_graph(1, nodes=9)
MODEL = random_model("gcn", 1)
NODES = GraphSVX(players="nodes")


@pytest.fixture(scope="module")
def by_nodes():
    return explain(MODEL, DATA, node=1)


@pytest.fixture(scope="module")
def by_edges():
    return explain(MODEL, DATA, node=1, method=GraphSVX(players="edges"))


@pytest.fixture(scope="module")
def apart():
    return explain(MODEL, DATA, node=1, method=GraphSVX(players="edges", directions="apart"))


@pytest.fixture(scope="module")
def many():
    return explain_many(MODEL, DATA, [1, 2, 3, 4]).collect()


def test_top_edges_are_pairs_of_nodes(by_edges) -> None:
    best = by_edges.top_edges(2)
    assert [edge.id for edge in best] == sorted(by_edges.edges, key=by_edges.edges.get)[:-3:-1]
    assert best[0].value == by_edges.edges[best[0].id]
    assert "–" in repr(by_edges)


def test_pandas_has_every_player_once(by_nodes, by_edges) -> None:
    frame = by_nodes.to_pandas()
    assert list(frame.columns) == ["kind", "id", "name", "credit", "error", "hops"]
    assert by_nodes.base + frame.credit.sum() == pytest.approx(by_nodes.prediction, abs=1e-6)
    nodes = frame[frame.kind == "node"].set_index("id")
    assert nodes.credit.to_dict() == by_nodes.nodes
    assert set(nodes.hops) <= {1, 2, 3}
    assert by_edges.to_pandas().set_index("id").credit.to_dict() == by_edges.edges


def test_networkx_has_credit_on_edges(by_edges) -> None:
    graph = by_edges.to_networkx()
    credit = {(u, v): c for u, v, c in graph.edges(data="credit") if c is not None}
    assert credit == by_edges.edges


@pytest.mark.parametrize("which", ["by_edges", "apart"])
def test_pyg_and_captum_have_the_credit_of_edges(which, request) -> None:
    explanation = request.getfixturevalue(which)
    converted = explanation.to_pyg(DATA)
    assert converted.validate(raise_on_error=True)
    assert converted.edge_mask.shape == (DATA.num_edges,)
    assert float(converted.edge_credit.sum()) == pytest.approx(explanation.total, abs=1e-5)
    assert float(converted.edge_mask.max()) == 1
    assert converted.edge_credit_from == "edges"
    for column, (u, v) in enumerate(DATA.edge_index.t().tolist()):
        if which == "apart" and (u, v) in explanation.edges:
            expected = explanation.edges[u, v]
            assert float(converted.edge_credit[column]) == pytest.approx(expected, abs=1e-6)
    near = explanation.to_pyg()
    assert near.edge_mask.shape == (near.edge_index.shape[1],)
    assert float(near.edge_credit.sum()) == pytest.approx(explanation.total, abs=1e-5)
    x_credit, edge_credit = explanation.to_captum(DATA)
    assert x_credit.shape == (1, *DATA.x.shape)
    assert torch.equal(edge_credit[0], converted.edge_credit)


def test_pyg_draws_explanations_of_nodes(by_nodes, tmp_path) -> None:
    for converted in (by_nodes.to_pyg(DATA), by_nodes.to_pyg()):
        assert converted.edge_credit_from == "nodes"
        hops = by_nodes.field.distances
        carried = dict.fromkeys(by_nodes.nodes, 0.0)
        for (u, v), value in zip(
            converted.edge_index.t().tolist(), converted.edge_credit.tolist(), strict=True
        ):
            if value:
                assert hops[v] < hops[u]
                carried[u] += value
        assert carried == pytest.approx(by_nodes.nodes, abs=1e-5)
        converted.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")
        converted.visualize_feature_importance(str(tmp_path / "features.png"), top_k=2)
        assert (tmp_path / "graph.png").stat().st_size > 0
        assert (tmp_path / "features.png").stat().st_size > 0
    subgraph = by_nodes.to_pyg(DATA).get_explanation_subgraph()
    assert subgraph.num_nodes == 1 + sum(value != 0 for value in by_nodes.nodes.values())


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # shap's own import
def test_shap_has_the_data_of_an_explanation(by_nodes) -> None:
    with_data, without = by_nodes.to_shap(DATA), by_nodes.to_shap()
    torch.testing.assert_close(without.data, with_data.data, equal_nan=True)
    for column, name in enumerate(without.feature_names[: len(by_nodes.features)]):
        feature = list(by_nodes.features)[column]
        assert without.data[column] == pytest.approx(float(DATA.x[1, feature])), name
    assert Explanation.from_dict(by_nodes.to_dict()).to_shap().data is None


def test_shap_refuses_an_explanation_without_such_players(by_nodes) -> None:
    pytest.importorskip("shap")
    alone = explain(MODEL, Data(x=DATA.x, edge_index=DATA.edge_index[:, :0]), node=1, method=NODES)
    with pytest.raises(InputError, match=r"node 1: class \d has none \(players='all'\)"):
        alone.to_shap()
    with pytest.raises(InputError, match="players='edges'"):
        by_nodes.to_shap(players="edges")


def test_captum_rows_sum_to_the_credit_of_nodes(by_nodes) -> None:
    x_credit, edge_credit = by_nodes.to_captum(DATA)
    rows = x_credit[0].sum(1)
    for node, value in by_nodes.nodes.items():
        assert float(rows[node]) == pytest.approx(value, abs=1e-6)
    for column, value in by_nodes.features.items():
        assert float(x_credit[0, 1, column]) == pytest.approx(value, abs=1e-6)
    assert not edge_credit.any()
    assert float(rows.sum()) == pytest.approx(by_nodes.total, abs=1e-6)


def test_groups_share_their_credit(by_nodes) -> None:
    members = sorted(by_nodes.nodes)[:2]
    grouped = explain(MODEL, DATA, node=1, method=GraphSVX(groups={"two": members}))
    credit = grouped.to_pyg(DATA).node_credit[:, 0]
    assert float(credit[members[0]]) == float(credit[members[1]])
    assert float(credit.sum()) == pytest.approx(float(grouped.node_values.sum()), abs=1e-6)


@pytest.mark.filterwarnings("ignore")  # of shap and matplotlib
def test_shap_plots_draw_many_explanations_by_feature_value(many, by_edges) -> None:
    shap = pytest.importorskip("shap")
    converted = many.to_shap(DATA)
    for row, explanation in enumerate(many):
        total = converted.base_values[row] + converted.values[row].sum()
        assert total == pytest.approx(explanation.prediction, abs=1e-6)
        for column, value in explanation.features.items():
            place = converted.feature_names.index(f"feature {column}")
            assert converted.values[row, place] == value
            own = float(DATA.x[explanation.centres[0], column])
            assert converted.data[row, place] == pytest.approx(own, abs=1e-6)
    shap.plots.beeswarm(converted, show=False)
    shap.plots.heatmap(converted, show=False)
    shap.plots.waterfall(converted[0], show=False)
    shap.plots.waterfall(many[0].to_shap(), show=False)
    labels = by_edges.to_shap(DATA).feature_names
    assert set(labels) == {f"edge {u}–{v}" for u, v in by_edges.edges}
    plt.close("all")


def test_many_explanations_are_one_object(many) -> None:
    frame = many.to_pandas()
    assert set(frame["query"]) == {1, 2, 3, 4}
    assert frame[frame.explanation == 2].credit.sum() == pytest.approx(many[2].total, abs=1e-9)
    assert isinstance(many[:2], Explanations)
    assert len(many[:2]) == 2
    assert many.features().explanations == 4
    assert "Explanations of 4" in repr(many)
    with pytest.raises(InputError, match="got int"):
        Explanations([1])
    with pytest.raises(InputError, match="data must be the graph"):
        many.to_shap(Data(x=torch.ones(3, 3)))
    axes = plot.beeswarm(many, data=DATA)
    assert axes.get_figure() is not None
    plt.close("all")


def test_summary_and_certificate_show_in_notebooks(many) -> None:
    features = summary.features(many)
    assert features._repr_html_().count("<tr>") == len(features.keys) + 1
    assert "4 explanations" in features._repr_html_()
    assert len(features.to_pandas()) == len(features.keys)
    shown = many[0].certificate._repr_html_()
    assert "model calls" in shown
    assert "features" in shown


def test_a_printed_certificate_is_a_table_with_the_words_of_its_line(many) -> None:
    certificate = many[0].certificate
    lines = str(certificate).splitlines()
    assert lines[0].split()[:3] == ["game", "values", "players"]
    for game, line in zip(certificate.games, lines[1:], strict=False):
        assert line.split()[:3] == [game.name, "exact" if game.exact else "estimated",
                                    f"{game.players:,}"]  # fmt: skip
    facts = lines[1 + len(certificate.games) :]
    assert certificate.line().endswith("; ".join(facts))
    assert f"seed {certificate.seed}" in facts
    assert str(replace(certificate, games=())).startswith("no players\nresidual")


def test_print_gives_the_table_and_an_equation_that_holds(by_nodes) -> None:
    text = str(by_nodes)
    assert "node 1" in text.splitlines()[0]
    assert "\x1b" not in text
    assert equation(by_nodes) in " ".join(text.split())
    left, _, right = equation(by_nodes).partition(" = ")
    words = right.replace("−", "-").split()
    terms = [float(words[1])]
    for sign, size in zip(words[2::3], words[3::3], strict=True):
        terms.append(float(size) * (-1 if sign == "-" else 1))
    assert float(left.split()[1].replace("−", "-")) == pytest.approx(sum(terms), abs=2e-4)


def test_estimates_are_said_only_of_estimates() -> None:
    data = random_graph(3, nodes=40, features=3)
    explanation = explain(random_model("gcn", 1), data, node=1, method=GraphSVX(samples=40))
    assert not explanation.certificate.exact
    # Features are exact, nodes are not: the sentence depends on who is named.
    assert {game.exact for game in explanation.certificate.games} == {True, False}
    named = "feature" in describe(explanation).rpartition("account")[0].rpartition(".")[2].lower()
    nodes = "node" in describe(explanation).partition("account")[0].rpartition(". ")[2].lower()
    if named and not nodes:
        assert "estimates" not in describe(explanation)
    if nodes:
        assert "estimates" in describe(explanation)


def test_small_errors_are_not_printed_as_zero() -> None:
    data = random_graph(3, nodes=40, features=3)
    explanation = explain(
        random_model("gcn", 1), data, node=1, method=GraphSVX(samples=40), scale="value", target=0
    )
    small = explanation.node_credit.map(lambda values: values * 1e-6)
    scaled = type(explanation)(**{**vars(explanation), "node_credit": small})
    assert "± 0.0000" not in str(scaled)
