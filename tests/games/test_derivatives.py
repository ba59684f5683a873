"""Credit by derivatives: right where the score is linear in far players, corrected elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean, median

import numpy as np
import pytest
import torch
from benchmarks.worlds import node_game
from scipy.special import stdtrit
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GraphConv, SAGEConv, TransformerConv

from graphsvx import GraphSVX, explain
from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.games import derivatives
from graphsvx.games.derivatives import expected_by_derivatives
from graphsvx.games.graph_game import GraphGame

BRANCHES, LEAVES = 5, 40
LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "graphconv": GraphConv,
    "graphconv mean": lambda a, b: GraphConv(a, b, aggr="mean"),
    "sage": SAGEConv,
    "gat": lambda a, b: GATConv(a, b, heads=2, concat=False),
    "gatv2": lambda a, b: GATv2Conv(a, b, heads=2, concat=False),
    "transformer": lambda a, b: TransformerConv(a, b, heads=2, concat=False),
}


class TwoLayers(nn.Module):
    """Two layers; without `bent`, linear in what arrives from far players."""

    def __init__(self, make: Callable[[int, int], nn.Module], bent: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.bent = make(4, 6), GraphConv(6, 2), bent

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.first(x, edge_index)
        return self.second(hidden.relu() if self.bent else hidden, edge_index)


def far_players(seed: int = 0) -> Data:
    """Node 0 with a few neighbours, each with many leaves, some of which have two of them."""
    rng = torch.Generator().manual_seed(seed)
    edges = [(branch, 0) for branch in range(1, BRANCHES + 1)]
    for leaf in range(BRANCHES * LEAVES):
        node = 1 + BRANCHES + leaf
        edges.append((node, 1 + leaf % BRANCHES))
        if leaf % 3 == 0:
            edges.append((node, 1 + (leaf + 1) % BRANCHES))
    ends = torch.tensor(edges).t()
    x = torch.randn(1 + BRANCHES * (1 + LEAVES), 4, generator=rng)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


def game_of(model: nn.Module, data: Data) -> GraphGame:
    game, _ = node_game(model.eval(), data, 0)
    assert isinstance(game, GraphGame)
    return game


def check_slopes(model: nn.Module, data: Data, players: Ids, rows: Bools) -> None:
    """Slopes are the differences that these players make to the coalitions in `rows`."""
    game = game_of(model.double(), Data(x=data.x.double(), edge_index=data.edge_index))
    logits = slice(0, 2)
    with torch.no_grad():
        field, perturbations = game.perturbed(rows)
        hops = game.evaluator.hop_counts(field, perturbations)
        assert game.evaluator.has_slopes
        slopes = game.evaluator.slopes(field, perturbations, hops, lambda out: out[:, 0, logits])
        assert slopes is not None
        for player in players:
            joined, left = rows.copy(), rows.copy()
            joined[:, player], left[:, player] = True, False
            difference = game.raw(game.states(joined)) - game.raw(game.states(left))
            node = int(game.setup.players.node_members[player])
            torch.testing.assert_close(
                slopes[:, node].double(), difference[:, 0].double(), atol=1e-6, rtol=1e-5
            )


@pytest.mark.parametrize("kind", LAYERS)
def test_slopes_are_the_differences_that_far_players_make(kind: str) -> None:
    data, rng = far_players(), np.random.default_rng(0)
    rows = rng.random((6, data.num_nodes - 1)) < np.linspace(0.2, 0.9, 6)[:, None]
    rows[:, :BRANCHES] |= rng.random((6, BRANCHES)) < 0.7
    players = rng.choice(np.arange(BRANCHES, rows.shape[1]), 12, replace=False)
    check_slopes(TwoLayers(LAYERS[kind]), data, players, rows)


@pytest.mark.parametrize("kind", LAYERS)
def test_slopes_are_the_differences_that_neighbours_make(kind: str) -> None:
    model, data, rng = TwoLayers(GraphConv), far_players(), np.random.default_rng(0)
    model.second = LAYERS[kind](6, 2)
    torch.nn.init.zeros_(model.first.lin_rel.weight)  # neighbours matter in the second round alone
    rows = rng.random((6, data.num_nodes - 1)) < np.linspace(0.1, 0.9, 6)[:, None]
    rows[0, :BRANCHES], rows[1, :BRANCHES] = False, np.arange(BRANCHES) == 2  # none, one alone
    check_slopes(model, data, np.arange(BRANCHES), rows)


def test_slopes_of_three_layers_are_those_of_all_rounds() -> None:
    class ThreeLayers(TwoLayers):
        def __init__(self) -> None:
            super().__init__(GraphConv)
            self.third = GraphConv(2, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.third(super().forward(x, edge_index), edge_index)

    data, rng = far_players(), np.random.default_rng(0)
    rows = rng.random((6, data.num_nodes - 1)) < np.linspace(0.1, 0.9, 6)[:, None]
    players = rng.choice(np.arange(BRANCHES, rows.shape[1]), 12, replace=False)
    check_slopes(ThreeLayers(), data, players, rows)


@pytest.mark.parametrize("kind", [*LAYERS, "gcn"])
def test_large_games_start_from_derivatives_and_stay_efficient(kind: str) -> None:
    model, data = TwoLayers(LAYERS.get(kind, GCNConv), bent=True).eval(), far_players()
    method = GraphSVX(players="nodes", samples=900)
    first, again = (explain(model, data, node=0, method=method, seed=3) for _ in range(2))
    assert "derivatives at" in str(first.certificate.games[-1].model)
    assert first.certificate.calls <= 900
    assert first.base + first.total == pytest.approx(first.prediction, abs=1e-6)
    assert torch.equal(first.node_credit.values, again.node_credit.values)
    assert (first.node_credit.errors > 0).all()


def test_derivatives_lower_the_error_and_errors_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    gains, held = [], []
    for seed in range(4):
        model, data = TwoLayers(SAGEConv, bent=True).eval(), far_players(seed)
        truth = explain(model, data, node=0, method=GraphSVX(players="nodes", samples=40_000))
        misses = []
        for known in (True, False):
            with monkeypatch.context() as patch:
                if not known:
                    patch.setattr(GraphGame, "expected_credit", lambda *_: None)
                e = explain(model, data, node=0, method=GraphSVX(players="nodes", samples=900))
            miss = (e.node_credit.values - truth.node_credit.values).squeeze(0)
            misses.append(float(miss.square().sum()))
            if known:
                bars = e.node_credit.errors.squeeze(0).hypot(truth.node_credit.errors.squeeze(0))
                held.append(float((miss.abs() <= 1.96 * bars).double().mean()))
        gains.append(misses[1] / misses[0])
    assert geometric_mean(gains) > 1.5
    assert 0.85 < median(held) <= 1.0


def test_derivatives_that_tell_little_are_not_used() -> None:
    class Steep(TwoLayers):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            hidden = self.first(x, edge_index)
            return self.second((80 * hidden).sin(), edge_index)

    game = game_of(Steep(SAGEConv), far_players())
    given_up = game.expected_credit(1000, 0)
    assert given_up is not None
    assert not given_up.players.any()
    assert given_up.calls <= 1000 // 4
    assert game.calls >= given_up.calls
    method = GraphSVX(players="nodes", samples=900)
    e = explain(Steep(SAGEConv).eval(), far_players(), node=0, method=method)
    assert "derivatives" not in str(e.certificate.games[-1].model)
    assert e.certificate.calls <= 900


def test_few_far_players_or_calls_are_not_worth_derivatives() -> None:
    game = game_of(TwoLayers(SAGEConv, bent=True), far_players())
    assert game.expected_credit(100, 0) is None
    assert game.expected_credit(100_000, 0) is None
    expected = game.expected_credit(1000, 0)
    assert expected is not None
    assert expected.calls <= 1000 // 4
    assert not expected.values[:BRANCHES].any()


class WithoutGradient(TwoLayers):
    """Forward passes that autograd cannot follow, or whose derivatives are 0."""

    def __init__(self, how: str) -> None:
        super().__init__(SAGEConv)
        self.how = how

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.how == "no_grad":
            with torch.no_grad():
                return super().forward(x, edge_index)
        hidden = self.first(x, edge_index)
        if self.how == "detach":
            hidden = hidden.detach()
        elif self.how == "numpy":
            hidden = torch.from_numpy(np.tanh(torch.Tensor.numpy(hidden.as_subclass(Tensor))))
        elif self.how == "rounded":
            hidden = (4 * hidden).round()
        return self.second(hidden, edge_index)


@pytest.mark.parametrize("how", ["no_grad", "detach", "numpy", "rounded"])
def test_models_that_cannot_be_differentiated_are_explained_without(how: str) -> None:
    model, data = WithoutGradient(how).eval(), far_players()
    e = explain(model, data, node=0, method=GraphSVX(players="nodes", samples=900))
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-6)
    assert "derivatives" not in str(e.certificate.games[-1].model)
    assert all(parameter.grad is None for parameter in model.parameters())


class Bent(TwoLayers):
    """Adds in place, or not."""

    def __init__(self, in_place: bool) -> None:
        super().__init__(SAGEConv)
        self.in_place = in_place

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.first(x, edge_index)
        bent = hidden.exp()
        if self.in_place:
            bent += 1
        else:
            bent = bent + 1
        return self.second(bent * hidden, edge_index)


def test_models_that_add_in_place_have_the_same_slopes() -> None:
    slopes, rows = [], np.random.default_rng(0).random((6, len(far_players().x) - 1)) < 0.5
    for in_place in (True, False):
        game = game_of(Bent(in_place), far_players())
        with torch.no_grad():
            field, perturbations = game.perturbed(rows)
            hops = game.evaluator.hop_counts(field, perturbations)
            slopes.append(game.evaluator.slopes(field, perturbations, hops, lambda out: out[:, 0]))
    assert bool(slopes[0].any())
    torch.testing.assert_close(*slopes)


def test_credit_is_the_mean_slope_and_errors_grow_with_the_curvature() -> None:
    """A slope that changes by c over a player's interval misses the mean slope by c / 6."""
    off, change = np.array([3.0, -2.0, 1.0, 4.0]), np.array([0.5, -0.3, 0.0, 1.0])
    players, coalitions = np.array([True, True, True, False]), 0

    def slopes(rows: Bools) -> Floats:
        nonlocal coalitions
        coalitions += len(rows)
        return (off + change * rows)[:, :, None]

    def scores(rows: Bools) -> Floats:
        return (rows @ (off + change / 2))[:, None]

    expected = expected_by_derivatives(slopes, scores, players, 64, slice(0, 1), 0)
    assert expected is not None
    assert coalitions == expected.coalitions == 64
    np.testing.assert_allclose(expected.values[:, 0], [3.25, -2.15, 1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(expected.errors[:, 0], [0.5 / 6, 0.3 / 6, 0.0, 0.0], atol=1e-7)


def test_differences_of_slopes_that_are_noise_do_not_widen_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(derivatives, "_mismatch", lambda *_: np.zeros(1))
    rng, seen = np.random.default_rng(0), []

    def slopes(rows: Bools) -> Floats:
        seen.append(1 + rng.normal(size=(*rows.shape, 1)))
        return seen[-1]

    expected = expected_by_derivatives(
        slopes, lambda rows: rows.sum(1)[:, None], np.ones(400, dtype=bool), 64, slice(0, 1), 0
    )
    assert expected is not None
    pairs = np.concatenate([(part[: len(part) // 2] + part[len(part) // 2 :]) / 2 for part in seen])
    sampling = pairs.std(0, ddof=1) / np.sqrt(len(pairs)) * stdtrit(len(pairs) - 1, 0.975) / 1.96
    # Of a normal distribution, two thirds are within one standard error of 0.
    assert np.isclose(expected.errors, sampling, rtol=1e-4).mean() > 0.55


def test_slopes_that_are_not_the_differences_widen_errors_or_are_given_up() -> None:
    effect = np.linspace(1, 2, 200)

    def expected(share: float) -> Floats | None:
        credit = expected_by_derivatives(
            lambda rows: np.broadcast_to(share * effect[:, None], (*rows.shape, 1)),
            lambda rows: (rows @ effect)[:, None], np.ones(200, dtype=bool), 64, slice(0, 1), 0,
        )  # fmt: skip
        assert credit is not None
        return credit.errors[:, 0] if credit.players.any() else None

    exact, low, none = (expected(share) for share in (1.0, 0.7, 0.0))
    assert exact is not None
    assert low is not None
    assert exact == pytest.approx(np.zeros(200), abs=1e-9)
    assert low == pytest.approx(0.3 * 0.7 * effect, rel=0.05)
    assert none is None
