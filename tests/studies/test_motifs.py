"""Data sets with a known explanation: what is scored, and what is measured about the models."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest
import torch

from graphsvx import GraphSVX, explain
from graphsvx.methods import Random
from graphsvx_lab.metrics.truth import NEIGHBOURS, PARTS, classified_right
from graphsvx_lab.studies import Setting, motifs
from tests.records import credit, house
from tests.studies.conftest import answer_of, trained_on


def test_strict_draws_from_what_is_right_and_the_draw_is_fixed():
    trained = trained_on("tree-cycles")
    right = classified_right(trained)
    assert all(int(trained.dataset.labels[node]) == 1 for node in right)
    queries = motifs.scoring(7)(trained)
    assert queries == motifs.scoring(7)(trained)
    assert set(queries["strict"]) <= set(right)
    assert len(queries["strict"]) == 7
    assert queries["paper"][:2] == (511, 517)
    assert motifs.scoring(7, 1)(trained)["paper"] == (511,)


def test_test_nodes_have_a_neighbour_and_are_the_same_each_time():
    trained = trained_on("ba-community")
    nodes = motifs.test_nodes(20)(trained)["test"]
    assert len(set(nodes)) == 20
    assert set(nodes) <= set(trained.dataset.split.test.tolist())
    assert nodes == motifs.test_nodes(20)(trained)["test"]
    assert len(motifs.test_nodes(20, cora=3, **{"ba-": 5})(trained)["test"]) == 5
    isolated = nodes[0]
    edges = trained.dataset.graph.edge_index
    trained.dataset.graph.edge_index = edges[:, (edges != isolated).all(0)]
    assert isolated not in motifs.test_nodes(20)(trained)["test"]


def test_edges_of_a_graph_set_are_those_of_the_motif():
    trained = trained_on("ba-2motifs")
    assert all(20 <= end < 25 for pair in trained.dataset.true_edges(3) for end in pair)
    # A house has six edges, a ring of five has five; both directions count.
    assert [len(trained.dataset.true_edges(graph)) for graph in (3, 700)] == [12, 10]


def test_accuracy_is_measured_under_the_protocol_that_scores_the_question():
    trained = trained_on("ba-shapes")
    explanation = house()  # of 402, whose motif is 400 to 404
    # 400 .31, 401 .24, 403 .12, 404 .10 are the top four: all of the motif.
    scores = motifs.accuracy(answer_of(trained, explanation, 402, strict=(402,)))
    assert scores == {"strict": 1.0, "AUROC": 1.0}
    against = replace(
        explanation,
        node_credit=credit([400, 401, 403, 404, 17, 3], [0.4, -0.9, 0.3, 0.2, 0.1, 0.05]),
    )
    answer = answer_of(trained, against, 402, strict=(402,))
    assert motifs.accuracy(answer)["strict"] == 0.75
    by_magnitude = Setting(Random(), by="absolute")
    answer = answer_of(trained, against, 402, setting=by_magnitude, strict=(402,))
    assert motifs.accuracy(answer)["strict"] == 1.0
    assert motifs.accuracy(answer_of(trained, explanation, 402)) == {}
    # The paper's protocol: the next four ids after 400, five are taken.
    of_first = replace(
        explanation, centres=(400,), node_credit=credit([401, 402, 9, 8, 7], range(5))
    )
    assert motifs.accuracy(answer_of(trained, of_first, 400, paper=(400,))) == {"paper": 0.5}


def test_roles_are_the_classes_of_a_motif():
    trained = trained_on("ba-shapes")
    first = int(trained.dataset.node_truth.attached[0])
    roles = []
    for node in range(first, first + 5):
        explanation = replace(house(), centres=(node,))
        answer = answer_of(trained, explanation, node, strict=(node,))
        (name,) = motifs.accuracy_by_role(answer)
        roles.append(name.removeprefix(motifs.ROLE))
    assert roles == ["middle, tied to the base graph", "middle", "bottom", "bottom", "top"]


def score(edges: int) -> float:
    return 1 / (1 + exp(-edges))


def test_cutting_off_a_node_takes_what_it_gave():
    trained = trained_on("tree-cycles")
    graph = trained.dataset.graph
    node = int(trained.dataset.node_truth.attached[0]) + 2
    degree = int((graph.edge_index[1] == node).sum())
    drawn = explain(trained.model, graph, node=node, method=Random(players="nodes"), target=1)
    answer = answer_of(trained, drawn, node, strict=(node,))
    measured = motifs.use_of_motif("ours")(answer)
    use = {name.removeprefix(motifs.MOTIF): value for name, value in measured.items()}
    assert use["score"] == pytest.approx(score(degree), abs=1e-6)
    assert use["score alone"] == pytest.approx(0.5)
    # Both neighbours in the ring are in the motif; the three others are too far to matter.
    assert use["fall without a node"] == pytest.approx(
        2 / 5 * (score(degree) - score(degree - 1)), abs=1e-6
    )
    assert use["fall without it"] == pytest.approx(score(degree) - score(degree - 2), abs=1e-6)
    assert (use["unused"], use["against"]) == (pytest.approx(3 / 5), 0)
    motif = trained.dataset.node_truth.motif(node) - {node}
    assert use["within reach"] == len(motif & set(drawn.node_ids.tolist())) / 5
    assert motifs.use_of_motif("theirs")(answer) == {}


def test_shares_account_for_the_whole_explainable_part():
    trained = trained_on("ba-shapes")
    motif = trained.dataset.node_truth
    motif.motif_of[[3, 17, 88]] = torch.tensor([-1, 7, -1])
    shares = motifs.credit_shares(answer_of(trained, house(), 402, strict=(402,)))
    assert shares["own motif"] == pytest.approx(0.31 + 0.24 + 0.12 + 0.10)
    assert shares["other motifs"] == pytest.approx(-0.05)
    assert shares["base graph"] == pytest.approx(0.004 - 0.01)
    assert shares["own features"] == pytest.approx(0.045)
    assert shares["explainable"] == pytest.approx(0.97 - 0.211)
    assert shares[NEIGHBOURS] == pytest.approx(0.55)
    assert sum(shares[part] for part in PARTS) == pytest.approx(shares["explainable"])
    # A mask has no base value: its own sum is the whole.
    certificate = house().certificate
    games = (replace(certificate.games[0], r2=None),)
    mask = replace(house(), certificate=replace(certificate, games=games))
    mask = replace(mask, predictions=torch.tensor([0.5]).double())
    shares = motifs.credit_shares(answer_of(trained, mask, 402, strict=(402,)))
    assert shares["explainable"] == pytest.approx(0.759)


def test_a_certificate_says_what_was_spent_and_what_is_left():
    trained = trained_on("tree-cycles")
    graph = trained.dataset.graph
    explanation = explain(trained.model, graph, node=520, method=GraphSVX())
    measured = motifs.certificate(answer_of(trained, explanation, 520))
    assert measured["exact"] == float(explanation.certificate.exact)
    assert measured["calls"] == explanation.certificate.calls
    assert measured["residual"] < 1e-9
    drawn = explain(trained.model, graph, node=520, method=Random(players="nodes"))
    assert motifs.certificate(answer_of(trained, drawn, 520))["residual"] > 1e-3
