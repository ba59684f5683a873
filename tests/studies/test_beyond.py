"""Measures of the studies beyond the paper, against values worked out by hand."""

from __future__ import annotations

import pytest
import torch

from graphsvx import datasets
from graphsvx.datasets.changed import MARK, marked
from graphsvx.studies import molecules
from graphsvx.studies.false_positives import share_significant
from graphsvx.studies.shortcut import TRAINED_ON


def test_correlation_is_pearsons_and_0_without_spread():
    truth = torch.tensor([1.0, 2.0, 4.0])
    assert molecules.correlation(2 * truth + 1, truth) == pytest.approx(1)
    assert molecules.correlation(-truth, truth) == pytest.approx(-1)
    assert molecules.correlation(torch.ones(3), truth) == 0


def test_means_away_from_0_are_significant_and_others_are_not():
    clear, none = [1.0, 1.01, 0.99, 1.0], [1.0, -1.0, 0.5, -0.5]
    assert share_significant([none, none]) == 0
    assert share_significant([clear, none]) == 0.5
    assert share_significant([[0.0] * 4, [2.0] * 4]) == 0.5  # no spread: 0, or never 0


def test_every_explainer_has_candidates_and_its_selected_one_is_among_them():
    for dataset in molecules.SETS:
        tried = molecules.tried(dataset).values()
        for name, setting in molecules.selected(dataset).items():
            assert name == molecules.RANDOM or setting in tried


@pytest.mark.parametrize("gives_class_away", [True, False])
def test_a_mark_sits_on_one_base_node_of_the_graphs_that_have_one(gives_class_away: bool):
    data = marked(datasets.load("ba-2motifs", 3), TRAINED_ON, gives_class_away)
    has_mark = torch.tensor([bool((graph.x == MARK).any()) for graph in data.graphs])
    assert [i for i, has in enumerate(has_mark.tolist()) if has] == list(data.graph_truth.graphs())
    assert bool((has_mark == data.labels.bool()).all()) == gives_class_away
    for graph in data.graph_truth.graphs()[:5]:
        nodes = data.graph_truth.graph_nodes(graph)
        assert int(nodes.sum()) == 1
        assert torch.equal(data.graphs[graph].x[:, 0] == MARK, nodes)
