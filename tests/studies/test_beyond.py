"""Measures of the studies beyond the paper, against values worked out by hand."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx_lab import datasets
from graphsvx_lab.metrics.effects import largest_changes
from graphsvx_lab.metrics.measurements import Measurements, Row
from graphsvx_lab.studies import faithfulness, graph_sets
from graphsvx_lab.studies.faithfulness import accuracy_of_cut
from graphsvx_lab.studies.graph_sets import EFFECT, FALSE, LARGEST, MARK, SHARE, marked
from tests.studies.conftest import answer_of


class FirstBond:
    """A path of four atoms; p(class 1) hangs on the bonds of the atom with feature 2, the first."""

    dataset = SimpleNamespace(graphs=(Data(
        x=torch.tensor([[2.0], [0.0], [0.0], [0.0]]),
        edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
    ),))  # fmt: skip

    def model(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        of_first = (x[edges[0], 0] > 1.5).float()
        bonds = torch.zeros(int(batch.max()) + 1).index_add(0, batch[edges[0]], of_first)
        return torch.stack([torch.zeros_like(bonds), bonds], 1)


def test_only_atoms_without_effect_are_called_important_wrongly():
    trained: Any = FirstBond()
    changes = largest_changes(trained, 0, 1)
    assert changes.tolist() == pytest.approx([1 / (1 + 2.718281828**-1) - 0.5] * 2 + [0, 0])
    values, errors = torch.tensor([0.2, 0.0, 0.2, 0.02]), torch.tensor([0.0, 0.0, 0.01, 0.01])
    ids = torch.arange(4)
    explanation: Any = SimpleNamespace(
        node_values=values, node_errors=errors, node_ids=ids, target=1
    )
    answer = answer_of(trained, explanation, 0, method="GraphSVX")
    # The last one's interval contains values that do not count; the third has no effect.
    assert graph_sets.called_important(answer) == {SHARE: 0.5, FALSE: 0.5}
    saliency = answer_of(trained, explanation, 0, method="Saliency")
    assert graph_sets.called_important(saliency) == {SHARE: 0.75, FALSE: 1.0}
    measured = {measure: value for _, _, measure, value in graph_sets.effects(answer.case)}
    assert measured == {EFFECT: 0.5, LARGEST: pytest.approx(0.231, abs=1e-3)}


def test_every_explainer_has_candidates_and_its_selected_one_is_among_them():
    for dataset in graph_sets.SETS:
        tried = graph_sets.tried(dataset).values()
        for name, setting in graph_sets.selected(dataset).items():
            assert name == graph_sets.RANDOM or setting in tried


def test_candidates_differ_from_each_other():
    for dataset in graph_sets.SETS:
        tried = graph_sets.tried(dataset)
        for name in ("GraphSVX", "GNNExplainer", "PGM-Explainer", "Integrated gradients"):
            candidates = [setting for k, setting in tried.items() if k[:-2] == name]
            assert len(candidates) == 6
            assert all(a != b for a, b in combinations(candidates, 2)), (dataset, name)


def test_a_candidate_that_is_better_than_the_selected_one_is_told():
    number = graph_sets._SELECTED["Greedy"][0]
    values = {f"Greedy {i}": 0.5 for i in range(3)}
    rows = {Row("benzene", graph_sets.VALIDATED, 100, name, 1, "AUROC"): value
            for name, value in values.items()}  # fmt: skip
    table = graph_sets.better_candidates(Measurements("molecules", rows)).markdown()
    assert "| Greedy | selected | - | - |" in table
    other = f"Greedy {(number + 1) % 3}"
    rows[Row("benzene", graph_sets.VALIDATED, 100, other, 1, "AUROC")] = 0.7
    table = graph_sets.better_candidates(Measurements("molecules", rows)).markdown()
    assert f"| Greedy | {other}, by 0.200 | - | - |" in table


def test_a_cut_that_tells_the_class_is_noticed():
    data = datasets.load("ba-2motifs", 0)
    graphs = range(0, 1000, 10)  # both classes
    of_class = {graph: (data.labels[graph] == 1) for graph in graphs}
    told = {graph: range(4 if of_class[graph] else 0) for graph in graphs}
    assert accuracy_of_cut(data, told, seed=0, splits=3) == 1
    assert accuracy_of_cut(data, dict.fromkeys(graphs, ()), seed=0, splits=3) < 0.7


def test_faithfulness_asks_every_explainer_on_ten_seeds():
    assert faithfulness.GRID.seeds == tuple(range(10))
    everybody = {"GraphSVX", "GNNExplainer", "PGExplainer", "PGM-Explainer", "Saliency",
                 "Integrated gradients", "Random"}  # fmt: skip
    for dataset in faithfulness.SETS:
        assert set(faithfulness.GRID.methods(dataset)) == everybody


def test_everybody_who_was_measured_is_compared():
    results = Measurements("faithfulness", {
        Row("benzene", "", seed, method, question, "characterization"): value + 0.001 * question
        for seed in range(5) for question in range(4)
        for method, value in (("GraphSVX", 0.5), ("New", 0.7))
    })  # fmt: skip
    ((claim,),) = faithfulness.ahead_of_others(results, ["characterization"])[0].values()
    assert claim.holds is False
    assert claim.ours.startswith("0.20 behind New")


def test_reasons_are_those_that_were_measured():
    def results(ours: float, plus: float) -> Measurements:
        values = {"characterization": ours, "robust characterization": ours,
                  "robust fidelity+": plus, "accuracy after retraining without the top 10%": ours,
                  "class told by the number of edges cut, top 10%": ours}  # fmt: skip
        return Measurements("faithfulness", {
            Row("ba-2motifs", "", seed, method, question, name): value * share
            for seed in range(5) for question in range(4) for name, value in values.items()
            for method, share in (("GraphSVX", 1), ("Saliency", 0.5), ("Random", 0.25))
        })  # fmt: skip

    first, behind = (
        "\n".join(faithfulness.reasons(table))
        for table in (results(0.8, 0.4), results(-0.8, -0.4))
    )  # fmt: skip
    assert "not first" not in first
    assert "80% of the graphs if GraphSVX's top 10% go, and of 20%" in first
    assert "least accurate without the top 10% of Random" in first
    assert behind.count("not first on BA-2motifs; another explainer is significantly ahead") == 2
    assert "on BA-2motifs only" in behind
    assert "the score rises" in behind


def test_masks_cannot_be_tested_for_a_mean_of_0_over_models():
    def alarms(*by_model: float) -> Any:
        return graph_sets.false_alarms(Measurements("false-positives", {
            Row("benzene", graph_sets.SHUFFLED, seed, "X", 7, f"atom {atom}"): value + 1e-3 * atom
            for seed, value in enumerate(by_model) for atom in range(3)
        }), "X", graph_sets.SHUFFLED)  # fmt: skip

    assert alarms(0.5, 0.4, 0.6, 0.5, 0.5).seeds == 0
    assert alarms(0.5, 0.4, -0.6, 0.5, -0.5).by_seed == (0.0,)
    assert alarms(-0.5, -0.4, -0.5, -0.5, -0.5).by_seed == (1.0,)


def test_explainers_that_put_the_mark_first_on_the_control_are_named():
    def notes(on_control: float) -> str:
        return graph_sets.shortcut.page(Measurements("shortcut", {
            Row("ba-2motifs", model, seed, method, 0, graph_sets.FIRST): share
            for model, share in ((graph_sets.SHORTCUT, 1.0), (graph_sets.CONTROL, on_control))
            for seed in range(5) for method in ("GraphSVX", "Greedy")
        })).notes  # fmt: skip

    assert "GraphSVX and Greedy would pass too" in notes(0.5)
    assert "would pass" not in notes(0.0)


@pytest.mark.parametrize("gives_class_away", [True, False])
def test_a_mark_sits_on_one_base_node_of_the_graphs_that_have_one(gives_class_away: bool):
    data = marked(datasets.load("ba-2motifs", 3), graph_sets.MARKED_PART, gives_class_away)
    has_mark = torch.tensor([bool((graph.x == MARK).any()) for graph in data.graphs])
    assert [i for i, has in enumerate(has_mark.tolist()) if has] == list(data.graph_truth.graphs())
    assert bool((has_mark == data.labels.bool()).all()) == gives_class_away
    for graph in data.graph_truth.graphs()[:5]:
        nodes = data.graph_truth.graph_nodes(graph)
        assert int(nodes.sum()) == 1
        assert torch.equal(data.graphs[graph].x[:, 0] == MARK, nodes)
