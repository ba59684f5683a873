"""Smallest sets of players equal those of a search through all coalitions."""

from __future__ import annotations

import pickle
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

from graphsvx import Explanation, GraphSVX, explain
from graphsvx.errors import InputError
from graphsvx.games import FunctionGame
from graphsvx.methods.answers import _Search
from tests.engine.test_lookup import Pooled, seeded
from tests.worlds import MODELS, random_graph, random_model


def probabilities(model, data, node: int, off: set[int]) -> torch.Tensor:
    gone = torch.tensor(sorted(off), dtype=torch.long)
    keep = ~torch.isin(data.edge_index, gone).any(0)
    with torch.no_grad():
        return model(data.x, data.edge_index[:, keep])[node].softmax(-1)


def smallest(players: list[int], does) -> int | None:
    for size in range(len(players) + 1):
        if any(does(set(chosen)) for chosen in combinations(players, size)):
            return size
    return None


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_sets_around_a_node_are_smallest(kind: str, seed: int) -> None:
    data = random_graph(20 + seed, nodes=8, chance=0.25, directed=seed == 2)
    model, node = random_model(kind, seed), seed
    explanation = explain(model, data, node=node, method=GraphSVX(players="nodes"))
    players, target = explanation.node_ids.tolist(), explanation.target

    def score(off: set[int]) -> torch.Tensor:
        return probabilities(model, data, node, off)

    least = 0.9 * explanation.prediction - 1e-9
    cases = [
        (explanation.sufficient(0.9),
         lambda on: float(score(set(players) - on)[target]) >= least),
        (explanation.sufficient("class"),
         lambda on: int(score(set(players) - on).argmax()) == target),
        (explanation.flip(), lambda off: int(score(off).argmax()) != target),
    ]  # fmt: skip
    for answer, does in cases:
        size = smallest(players, does)
        assert answer.found == (size is not None)
        if size is not None:
            assert len(answer.players) == size
            assert answer.minimal
            assert does({players[position] for position in answer.positions})


def test_sets_of_a_whole_graph_are_smallest() -> None:
    data = random_graph(5, nodes=7, chance=0.3)
    model = seeded(lambda: Pooled("gin", ("sum",)), 0)
    explanation = explain(model, data, graph=True)
    batch = torch.zeros(7, dtype=torch.long)

    def score(on: set[int]) -> torch.Tensor:
        mask = torch.tensor([u in on for u in range(7)])
        with torch.no_grad():
            return model(data.x, data.edge_index[:, mask[data.edge_index].all(0)], batch)[0]

    least = 0.97 * explanation.prediction - 1e-9
    answer = explanation.sufficient(0.97)
    target = explanation.target
    size = smallest([*range(7)], lambda on: float(score(on).softmax(-1)[target]) >= least)
    assert len(answer.players) == size
    flipped = explanation.flip()
    removed = smallest([*range(7)], lambda off: int(score(set(range(7)) - off).argmax()) != target)
    assert flipped.found == (removed is not None)


@pytest.mark.parametrize("off", [False, True])
def test_sets_of_random_games_are_smallest_or_say_that_they_may_not_be(off: bool) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=1 << 6) - 1.2

        def worth(rows, values=values) -> torch.Tensor:
            return torch.from_numpy(values[rows @ (1 << np.arange(6))])

        for budget in (1000, 12):
            game = FunctionGame(worth, 6)
            smallest = _Search(game, off, lambda scores: scores[:, 0], budget).smallest()
            sizes = [6 - bin(c).count("1") if off else bin(c).count("1")
                     for c in range(64) if values[c] > 0]  # fmt: skip
            chosen = ~smallest.coalition if off else smallest.coalition
            if smallest.found:
                assert values[smallest.coalition @ (1 << np.arange(6))] > 0
                assert chosen.sum() >= min(sizes) >= smallest.none_below
                if budget == 1000:
                    assert chosen.sum() == min(sizes)
            elif budget == 1000:
                assert not sizes


def test_answers_need_the_model() -> None:
    data, model = random_graph(1, nodes=6), random_model("gcn", 0)
    explanation = explain(model, data, node=0)
    assert explanation.for_target(explanation.target).flip() == explanation.flip()
    for copy in (
        pickle.loads(pickle.dumps(explanation)),
        Explanation.from_dict(explanation.to_dict()),
    ):
        with pytest.raises(InputError, match="model"):
            copy.sufficient()
    with pytest.raises(InputError, match="share"):
        explanation.sufficient(2.0)
    with pytest.raises(InputError, match="classes"):
        explain(model, data, node=0, scale="value", target=0).flip()


class Steps(nn.Module):
    """Scores that are small whole numbers, so that classes often have exactly the same."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.weight = torch.randint(-1, 2, (3, 3), generator=rng).double()

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return (x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])) @ self.weight


@pytest.mark.parametrize("seed", range(12))
def test_of_equal_scores_the_model_s_own_argmax_decides(seed: int) -> None:
    data = random_graph(40 + seed, nodes=6, chance=0.4)
    data.x = (3 * data.x).round().clamp(-1, 1)
    model, node = Steps(seed), seed % 6
    explanation = explain(model, data, node=node, method=GraphSVX(players="nodes"), scale="logit")
    players, target = explanation.node_ids.tolist(), explanation.target

    def predicted(off: set[int]) -> int:
        mask = torch.tensor([u not in off for u in range(6)])
        return int(model(data.x, data.edge_index[:, mask[data.edge_index].all(0)])[node].argmax())

    cases = [
        (explanation.sufficient("class"), lambda on: predicted(set(players) - on) == target),
        (explanation.flip(), lambda off: predicted(off) != target),
    ]
    for answer, does in cases:
        size = smallest(players, does)
        assert answer.found == (size is not None)
        if size is not None:
            assert len(answer.players) == size
            assert does({players[position] for position in answer.positions})


@pytest.mark.parametrize("target", [0, 1, 2])
def test_the_predicted_class_is_flipped_whichever_one_is_explained(target: int) -> None:
    data, model = random_graph(21, nodes=8, chance=0.25), random_model("gin", 1)
    method = GraphSVX(players="nodes")
    predicted = explain(model, data, node=1, method=method).flip()
    flipped = explain(model, data, node=1, method=method, target=target).flip()
    assert predicted.found
    assert (flipped.players, flipped.wanted) == (predicted.players, predicted.wanted)


def test_sets_beyond_the_budget_are_counted_not_listed() -> None:
    game = FunctionGame(lambda rows: torch.zeros(len(rows), 2), 2000)
    search = _Search(game, False, lambda scores: scores[:, 0], 2000)
    tracemalloc.start()
    assert search._extended(np.eye(2000, dtype=bool), None) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # a list of the 1,999,000 pairs has 32 MB
