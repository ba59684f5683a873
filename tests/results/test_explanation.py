"""The record: rankings, other outputs, and the ways in and out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from graphsvx import Explanation, GraphSVX, explain
from graphsvx.errors import DataError, GraphSVXError, InputError, TargetError
from graphsvx.masks import Paired
from graphsvx.results import serialize
from tests.worlds import random_graph, random_model


@pytest.fixture(scope="module")
def exact() -> Explanation:
    return explain(random_model("gcn", 1), random_graph(1), node=1, targets="all")


@pytest.fixture(scope="module")
def sampled() -> Explanation:
    data = random_graph(2, nodes=16, chance=0.3)
    method = GraphSVX(mask=Paired(), samples=80)
    return explain(random_model("gcn", 2), data, node=1, method=method, targets="all")


def test_every_output_comes_from_the_same_calls(exact) -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    assert exact.outputs == (0, 1, 2)
    for target in range(3):
        explanation = explain(model, data, node=1, target=target)
        assert exact.for_target(target).nodes == pytest.approx(explanation.nodes, abs=1e-12)
        assert exact.for_target(target).prediction == pytest.approx(
            explanation.prediction, abs=1e-12
        )
    assert sum(float(p) for p in exact.predictions) == pytest.approx(1)


def test_probabilities_share_credit_that_sums_to_zero_over_classes(exact) -> None:
    torch.testing.assert_close(exact.node_credit.values.sum(0),
                               torch.zeros(exact.node_credit.players, dtype=torch.float64),
                               atol=1e-9, rtol=0)  # fmt: skip


def test_contrast_is_the_difference_of_two_outputs(exact) -> None:
    c = exact.contrast(2, 0)
    a, b = exact.for_target(2), exact.for_target(0)
    assert c.base + c.total == pytest.approx(c.prediction, abs=1e-9)
    assert c.prediction == pytest.approx(a.prediction - b.prediction)
    for node, value in c.nodes.items():
        assert value == pytest.approx(a.nodes[node] - b.nodes[node])
    assert "rather than" in c.title


def test_the_error_of_a_contrast_is_a_bound(sampled) -> None:
    c = sampled.contrast(0, 1)
    apart = sampled.for_target(0).errors + sampled.for_target(1).errors
    torch.testing.assert_close(c.errors, apart)
    assert bool((c.errors > 0).any())


def test_an_output_that_was_not_explained_is_refused() -> None:
    e = explain(random_model("gcn", 1), random_graph(1), node=1, target=0)
    with pytest.raises(TargetError, match=r"only \[0\]"):
        e.for_target(1)
    with pytest.raises(TargetError):
        e.contrast(0, 2)


def test_a_contrast_needs_two_outputs(exact) -> None:
    with pytest.raises(TargetError, match="different"):
        exact.contrast(1, 1)


def test_saving_replaces_files_but_not_folders(exact, tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="not a file"):
        exact.save(tmp_path / "folder")
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    exact.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert serialize.same(exact, Explanation.load(tmp_path / "real.json"))


def test_rankings_by_value_and_by_absolute_value(exact) -> None:
    values = [r.value for r in exact.top_nodes()]
    assert values == sorted(values, reverse=True)
    sizes = [abs(r.value) for r in exact.top_nodes(by="absolute")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(exact.top_nodes(2)) == 2
    assert exact.top_nodes(0) == []
    assert {r.id for r in exact.top_features()} == set(exact.features)
    with pytest.raises(InputError, match="by must be"):
        exact.top_nodes(by="size")
    with pytest.raises(InputError, match="k must be"):
        exact.top_nodes(-1)


@pytest.mark.parametrize("which", ["exact", "sampled"])
def test_saving_and_loading_gives_the_same_bits(which, request, tmp_path) -> None:
    e = request.getfixturevalue(which)
    path = tmp_path / "deep" / "why.json"
    e.save(path)
    back = Explanation.load(path)
    assert serialize.same(e, back)
    assert torch.equal(e.node_credit.values, back.node_credit.values)
    assert back.certificate == e.certificate
    assert [p.name for p in path.parent.iterdir()] == ["why.json"]


def test_unknown_errors_survive_json(tmp_path) -> None:
    e = explain(random_model("gcn", 1), random_graph(1), node=1,
                method=GraphSVX.paper(samples=40))  # fmt: skip
    assert e.node_errors.isnan().all()
    e.save(tmp_path / "e.json")
    assert "NaN" not in (tmp_path / "e.json").read_text()
    assert Explanation.load(tmp_path / "e.json").node_errors.isnan().all()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "graphsvx.explanation"}',
                                  '{"format": "graphsvx.explanation", "version": 1}'])  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path, text) -> None:
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(DataError):
        Explanation.load(tmp_path / "e.json")
    with pytest.raises(DataError, match="no file"):
        Explanation.load(tmp_path / "none.json")


def test_a_newer_version_is_refused_by_name(exact, tmp_path) -> None:
    record = exact.to_dict()
    record["version"] = 99
    (tmp_path / "e.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match="version 99"):
        Explanation.load(tmp_path / "e.json")


def test_networkx_carries_credit_and_hops(exact) -> None:
    graph = exact.to_networkx()
    assert set(graph) == {1, *exact.nodes}
    assert graph.nodes[1]["explained"]
    assert graph.nodes[1]["hops"] == 0
    for node, value in exact.nodes.items():
        assert graph.nodes[node]["credit"] == value
        assert graph.nodes[node]["hops"] in (1, 2)
    edges = {tuple(e) for e in random_graph(1).edge_index.t().tolist()}
    assert set(graph.edges) <= edges
    assert graph.graph["base"] == exact.base


def test_pyg_gets_a_mask_over_all_nodes(exact) -> None:
    converted = exact.to_pyg()
    assert converted.node_mask.shape == (9, 1)
    for node, value in exact.nodes.items():
        assert float(converted.node_credit[node]) == pytest.approx(value, abs=1e-6)
    by_size = sorted(exact.nodes, key=lambda node: abs(exact.nodes[node]))
    assert by_size == sorted(exact.nodes, key=lambda node: float(converted.node_mask[node]))
    assert converted.feature_credit.shape == (3,)
    assert float(converted.node_mask[1]) == 1  # the explained node
    assert int((converted.node_mask != 0).sum()) <= len(exact.nodes) + 1


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # shap's own import
def test_shap_gets_names_and_a_base(exact) -> None:
    pytest.importorskip("shap")
    converted = exact.to_shap()
    assert float(converted.values.sum()) + converted.base_values == pytest.approx(exact.prediction)
    assert len(converted.feature_names) == len(converted.values)


def test_repr_has_the_node_the_prediction_and_exact(exact) -> None:
    text = repr(exact)
    assert "node 1" in text
    assert f"{exact.prediction:.4f}" in text
    assert "exact" in text


def test_repr_has_names_as_they_were_given(exact) -> None:
    ids = [f"feature {9 - i}" for i in range(exact.feature_credit.players)]
    credit = replace(exact.feature_credit, names=tuple(ids))
    assert "={feature " in repr(replace(exact, feature_credit=credit)).partition("features(")[2]


def test_the_certificate_is_one_line(sampled) -> None:
    line = sampled.certificate.line()
    assert "\n" not in line
    assert "estimated" in line
    assert "seed 0" in line
    assert not sampled.certificate.exact
    assert sampled.certificate.calls <= 80


class Counted(nn.Module):
    """Counts how often it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = random_model("gcn", 2), [0]

    def forward(self, x, edge_index):
        self.calls[0] += 1
        return self.inner(x, edge_index)


def test_budget_and_calls_are_recorded() -> None:
    model, data = Counted(), random_graph(2, nodes=16, chance=0.3)
    e = explain(model, data, node=1, method=GraphSVX(samples=60, hops=2), memory=1)
    assert e.certificate.calls <= 60
    # With no memory each state is a call of its own; checks of a new model need some more.
    assert e.certificate.calls <= model.calls[0] <= e.certificate.calls + 40


def test_tolerance_samples_until_every_error_is_small() -> None:
    data = random_graph(2, nodes=22, chance=0.3)
    model = random_model("gcn", 2)
    rough = explain(model, data, node=1, method=GraphSVX(mask=Paired(), samples=60))
    worst = float(rough.errors.max())
    assert worst > 0
    method = GraphSVX(mask=Paired(), samples=60, tolerance=worst / 3)
    fine = explain(model, data, node=1, method=method)
    assert fine.certificate.tolerance_met is True
    assert float(fine.errors.max()) <= worst / 3
    assert fine.certificate.calls > rough.certificate.calls
    stopped = explain(model, data, node=1,
                      method=GraphSVX(samples=60, tolerance=1e-9, max_samples=200))  # fmt: skip
    assert stopped.certificate.tolerance_met is False
    assert stopped.certificate.calls <= 204
    assert "NOT met" in stopped.certificate.line()


@pytest.mark.parametrize("value", [None, "x", -1, 1.5, True, [1], torch.tensor([1, 2]), 10**30])
def test_arguments_of_explanation_methods_are_checked(exact, value) -> None:
    for ask in (
        lambda: exact.top_nodes(value),
        lambda: exact.top_nodes(2, by=value),
        lambda: exact.for_target(value),
        lambda: exact.contrast(0, value),
        lambda: exact.table(value),
        lambda: exact.describe(value),
    ):
        try:
            ask()
        except GraphSVXError:
            continue
