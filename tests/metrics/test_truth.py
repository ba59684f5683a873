"""Accuracy under both protocols, AUROC, and correlation with numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphsvx.errors import InputError
from graphsvx.results.credit import Credit
from graphsvx_lab.metrics import PAPER_PROTOCOLS, accuracy, auroc, correlation, scored_nodes
from tests.records import house


def explanation(node, scores, kind="node"):
    """Credit for nodes by hand, around `node`."""
    values = torch.tensor([list(scores.values())], dtype=torch.float64)
    return replace(
        house(),
        kind=kind,
        centres=(node,) if kind == "node" else (),
        node_credit=Credit(torch.tensor(list(scores)), values, torch.zeros_like(values)),
    )


def test_strict_counts_exactly_k_and_never_the_node_itself():
    e = explanation(400, {401: 3.0, 402: 2.0, 9: 1.5, 403: 1.0, 404: 0.5})
    assert accuracy(e, {400, 401, 402, 403, 404}) == 0.75
    assert accuracy(e, {401}) == 1.0
    assert accuracy([e, e], [{401}, {9}]) == 0.5


def test_signed_and_absolute_rankings_differ():
    e = explanation(0, {1: -5.0, 2: 1.0, 3: 0.5})
    assert accuracy(e, {1}) == 0.0
    assert accuracy(e, {1}, by="absolute") == 1.0
    assert auroc(e, {1}) == 0.0
    assert auroc(e, {1}, by="absolute") == 1.0


def test_ties_count_as_chance_whatever_the_order():
    # One of two slots is settled, the other goes to one of three tied players.
    e = explanation(0, {1: 2.0, 2: 0.0, 3: 0.0, 4: 0.0})
    assert accuracy(e, {1, 2}) == pytest.approx((1 + 1 / 3) / 2)
    assert accuracy(e, {1, 4}) == pytest.approx((1 + 1 / 3) / 2)
    silent = explanation(0, dict.fromkeys(range(1, 11), 0.0))
    assert accuracy(silent, {1, 2}) == pytest.approx(0.2)
    assert auroc(silent, {1, 2}) == 0.5


def test_the_papers_protocol_takes_one_more_and_divides_by_k():
    # Four of five taken are truth, one is a stranger: 4 / 4, where strict gives 3 / 4.
    e = explanation(400, {401: 3.0, 402: 2.0, 9: 1.5, 403: 1.0, 404: 0.5, 5: 0.1})
    assert accuracy(e, protocol="paper", dataset="ba-shapes") == 1.0
    assert accuracy(e, {401, 402, 403, 404}) == 0.75


def test_the_papers_protocol_ranks_by_value_or_magnitude():
    e = explanation(400, {401: -9.0, **{i: float(i) for i in range(402, 405)}, 1: 0.1, 2: 0.2})
    assert accuracy(e, protocol="paper", dataset="ba-shapes") == 0.75
    assert accuracy(e, protocol="paper", dataset="ba-shapes", by="absolute") == 1.0


def test_the_papers_protocol_can_pass_one_on_tree_grid():
    e = explanation(511, {511 + i: 10.0 - i for i in range(1, 9)})
    assert accuracy(e, protocol="paper", dataset="tree-grid") == pytest.approx(6 / 5)


def test_the_papers_protocol_is_the_published_scripts():
    scored = {name: rules.scored for name, rules in PAPER_PROTOCOLS.items()}
    assert scored["ba-shapes"][:2] == (400, 405)
    assert (scored["ba-shapes"][-1], len(scored["ba-shapes"])) == (495, 20)
    assert scored["ba-community"] == (400, 405, 410, 415, 420, 1100, 1105, 1110, 1115, 1120)
    assert (scored["tree-cycles"][0], scored["tree-cycles"][-1]) == (511, 685)
    assert len(scored["tree-cycles"]) == 30
    assert (scored["tree-grid"][0], scored["tree-grid"][-1]) == (511, 646)
    assert len(scored["tree-grid"]) == 16
    assert PAPER_PROTOCOLS["tree-cycles"].truth(511) == {512, 513, 514, 515, 516}
    assert PAPER_PROTOCOLS["ba-2motifs"].truth(-1) == {20, 21, 22, 23, 24}
    rules = [(r.size, r.top, r.divisor) for r in PAPER_PROTOCOLS.values()]
    assert rules == [(4, 5, 4), (4, 5, 4), (5, 6, 5), (7, 6, 5), (5, 5, 5)]


def test_graph_sets_are_scored_on_nodes_20_to_24():
    e = explanation(0, {i: float(i == 7 or i > 20) for i in range(25)}, kind="graph")
    assert accuracy(e, protocol="paper", dataset="ba-2motifs") == 0.8


def test_protocols_are_never_mixed():
    e = explanation(400, {401: 1.0})
    with pytest.raises(InputError, match="leave them out"):
        accuracy(e, {401}, protocol="paper", dataset="ba-shapes")
    with pytest.raises(InputError, match="leave them out"):
        accuracy(e, protocol="paper", dataset="ba-shapes", level="edges")
    with pytest.raises(InputError, match="dataset is for"):
        accuracy(e, {401}, dataset="ba-shapes")
    with pytest.raises(InputError, match="got node 401"):
        accuracy(explanation(401, {400: 1.0}), protocol="paper", dataset="ba-shapes")
    with pytest.raises(InputError, match="must be one of"):
        accuracy(e, protocol="paper", dataset="cora")
    with pytest.raises(InputError, match="empty truth"):
        accuracy(e, {400})
    with pytest.raises(InputError, match="truth must be"):
        accuracy(e)
    with pytest.raises(InputError, match="at least one"):
        accuracy([], {1})
    with pytest.raises(InputError, match="truth must be"):
        accuracy(e, [401])


def test_strict_scores_all_that_the_model_gets_right():
    predicted, labels = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 2, 2])
    nodes = scored_nodes("strict", candidates=[1, 2, 3], predicted=predicted, labels=labels)
    assert nodes == [1, 3]
    assert scored_nodes("paper", dataset="tree-cycles")[0] == 511
    with pytest.raises(InputError, match="needs"):
        scored_nodes("strict")


def test_auroc_counts_pairs():
    e = explanation(0, {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.1})
    # Of 2 x 2 pairs, (1, 3) (1, 4) (4, ...) : node 1 wins both, node 4 none.
    assert auroc(e, {1, 4}) == 0.5
    assert auroc(e, {1, 2}) == 1.0
    # A player of the truth that is not named counts with 0, below everything here.
    assert auroc(e, {1, 99}) == 0.5
    assert torch.tensor(auroc(e, {1, 2, 3, 4})).isnan()


def test_edges_and_features_are_scored_alike():
    e = explanation(0, {1: 0.9, 2: 0.1})
    values = torch.tensor([[0.2, 0.7]], dtype=torch.float64)
    ends = torch.tensor([[3, 4], [4, 3]])
    e = replace(
        e, edge_credit=Credit(ends, values, values), feature_credit=Credit(ends[0], values, values)
    )
    assert accuracy(e, {(4, 3)}, level="edges") == 1.0
    assert accuracy(e, {3}, level="features") == 0.0


class Planted:
    """As much of a NodeTruth as scoring needs."""

    informative_features = frozenset({0})

    def motif(self, node):
        return {node, node + 1}

    def motif_edges(self, node):
        return {(node, node + 1)}


def test_a_node_truth_gives_each_node_its_own_motif():
    explanations = [explanation(400, {401: 1.0, 5: 0.0}), explanation(410, {411: 0.0, 5: 1.0})]
    assert accuracy(explanations, Planted()) == 0.5
    with pytest.raises(InputError, match="applies to explanations of nodes"):
        accuracy(explanation(0, {1: 1.0}, kind="graph"), Planted())


def test_correlation_is_pearsons_and_0_without_spread():
    truth = torch.tensor([1.0, 2.0, 4.0])
    assert correlation(explanation(9, {0: 3.0, 1: 5.0, 2: 9.0}), truth) == pytest.approx(1)
    assert correlation(explanation(9, {0: -1.0, 1: -2.0, 2: -4.0}), truth) == pytest.approx(-1)
    by_size = correlation(explanation(9, {0: -1.0, 1: -2.0, 2: -4.0}), truth, by="absolute")
    assert by_size == pytest.approx(1)
    assert correlation(explanation(9, {0: 1.0, 1: 1.0, 2: 1.0}), truth) == 0
    # A node without credit has 0.
    assert correlation(explanation(9, {2: 1.0}), torch.tensor([0.0, 0, 1])) == pytest.approx(1)
