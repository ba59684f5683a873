"""The ablation study: its calculations by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphsvx_lab.metrics.measurements import Measurements, Row, total_variation
from graphsvx_lab.studies import properties as ablation
from tests.records import credit, house
from tests.studies.conftest import answer_of

# house(): 402 is explained; 400 .31, 401 .24 (1 hop), 403 .12, 404 .10, 17 -.05, 3 .004, 88 -.01;
# features 0 .06, 4 -.015; prediction .97, base .211.


def trained_with(x: torch.Tensor, layers: int = 3) -> Any:
    graph = SimpleNamespace(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))
    card = SimpleNamespace(settings=SimpleNamespace(layers=layers))
    return SimpleNamespace(dataset=SimpleNamespace(graph=graph), card=card)


def test_features_are_left_out_by_the_rule_of_the_method():
    # Column 0 is 0 to 4 evenly (mean 2, sigma 1.414), column 1 constant.
    trained = trained_with(torch.stack([torch.arange(5.0), torch.ones(5)], 1))
    assert ablation.dropped_features(trained.dataset, 2) == [0, 1]
    assert ablation.dropped_features(trained.dataset, 3) == [1]


def test_players_left_out_have_the_credit_that_they_got_when_they_played():
    trained = trained_with(torch.ones(700, 10))
    measured = ablation.left_out(answer_of(trained, house(), 402))
    far = ablation.FAR.format(2)
    assert measured[far] == pytest.approx(-0.05 + 0.004 - 0.01)
    assert measured[f"{far}, number"] == 3
    assert measured["explainable"] == pytest.approx(0.759)
    assert ablation.FAR.format(1) in measured
    # All features of a graph without variation are left out.
    everything = replace(house(), feature_credit=credit(range(10), [0.06, *[0.01] * 9]))
    answer = answer_of(trained, everything, 402, method=ablation.ALL_FEATURES)
    assert ablation.left_out(answer)[ablation.DROPPED] == pytest.approx(0.15)


def test_the_distance_of_distributions_is_total_variation():
    assert total_variation(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])) == 1
    assert total_variation(torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25])) == 0.25
    assert pytest.approx(0.03, abs=1e-6) == ablation.PAPER_DISTANCE


def test_informative_features_are_counted_among_as_many():
    truth = SimpleNamespace(informative_features=frozenset({0, 4}))
    trained: Any = SimpleNamespace(dataset=SimpleNamespace(node_truth=truth))
    explanation = replace(house(), feature_credit=credit([0, 4, 5], [0.06, -0.5, 0.05]))
    measured = ablation.informative_found(answer_of(trained, explanation, 402))
    assert measured == {"signed": 0.5, "magnitude": 1, "playing": 1}
    alone = replace(house(), feature_credit=credit([0], [1.0]))
    assert ablation.informative_found(answer_of(trained, alone, 402))["playing"] == 0.5


def test_what_the_indirect_effect_adds_is_paired_by_seed_and_averaged_over_sets():
    results = Measurements("ablation")
    off, on = f"{ablation.PAPER_ROWS}, off", f"{ablation.PAPER_ROWS}, on, path nodes at the mean"
    for seed in range(4):
        for dataset, before, after in (("tree-cycles", 0.5, 0.8), ("tree-grid", 0.6, 0.5)):
            for method, value in ((off, before), (on, after)):
                row = Row(dataset, "", seed, method, 1, "paper")
                results.add(row, value + 0.1 * seed)
    statement = "The indirect effect raises accuracy on the tree sets (`paper`), by"
    gain, released = (c for c in ablation.ablation.page(results).claims if c.statement == statement)
    assert (gain.paper, gain.ours, gain.holds) == ("0.19", "0.10", True)
    assert (gain.on, released.on) == ("algorithm 2", "the authors' code")
    assert released.holds is None
