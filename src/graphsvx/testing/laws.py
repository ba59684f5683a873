"""Laws of masks (MASK), estimators (EXPL) and methods, on games and graphs of known answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphConv, global_add_pool

from graphsvx.api import explain
from graphsvx.core.arrays import Bools, Floats
from graphsvx.errors import BudgetError, UnsupportedError
from graphsvx.estimators import WLS, Estimator, Fit
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks import All, Auto, Mask, Masks, Paired
from graphsvx.masks.base import all_rows
from graphsvx.methods.baseline import Method
from graphsvx.results.explanation import Explanation
from graphsvx.testing.oracle import distances, probability_of, shapley_of_table


@dataclass(frozen=True)
class Laws:
    """What a block must obey, tried on one case."""

    block: object
    case: str = ""

    def require(self, holds: object, law: str) -> None:
        """Raise an AssertionError that names the block, the law and the case, unless it holds."""
        if not bool(holds):
            raise AssertionError(f"{self.block!r}: {law}{self.case and f' ({self.case})'}")

    def require_type(self, value: object, kind: type, law: str) -> None:
        """Require an instance of a class."""
        self.require(isinstance(value, kind), law)

    @contextmanager
    def random_state_untouched(self) -> Iterator[None]:
        """Require that the global random numbers of torch and numpy are as before."""
        before, numbers = torch.get_rng_state(), np.random.get_state(legacy=False)
        yield
        law = "draws from its own random generator, not from the global one"
        self.require(torch.equal(before, torch.get_rng_state()), f"{law} of torch")
        same = repr(numbers) == repr(np.random.get_state(legacy=False))
        self.require(same, f"{law} of numpy")


# --- random games, graphs and models -----------------------------------------------------------


def table_game(values: Floats) -> FunctionGame:
    """The game with these values of all coalitions, numbered by their bits."""
    players = len(values).bit_length() - 1
    table = torch.from_numpy(values)
    return FunctionGame(
        lambda rows: table[torch.from_numpy(rows @ (1 << np.arange(players)))], players
    )


def additive_game(weights: Floats) -> FunctionGame:
    """Every player adds its own weight."""
    return FunctionGame(lambda rows: torch.from_numpy(rows @ weights), len(weights))


class PathGame(FunctionGame):
    """A path of players that ends in the explained node: one counts if all before it are on."""

    def __init__(self, weights: Floats) -> None:
        def value(rows: Bools) -> Tensor:
            connected = np.logical_and.accumulate(rows, axis=1)
            return torch.from_numpy(np.tanh(connected @ weights))

        super().__init__(value, len(weights))

    def player_edges(self) -> Bools:
        """Player i + 1 sends to player i, player 0 to the explained node."""
        edges = np.zeros((self.players + 1, self.players), dtype=bool)
        edges[np.arange(self.players - 1), np.arange(1, self.players)] = True
        edges[-1, 0] = True
        return edges


class _PooledModel(torch.nn.Module):
    """A small classifier of whole graphs."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.layer = GraphConv(features, 8)
        self.last = torch.nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Scores of the classes."""
        pooled: Tensor = global_add_pool(self.layer(x, edge_index).tanh(), batch)
        return self.last(pooled.tanh())


def random_graph(seed: int, nodes: int = 7, features: int = 3) -> Data:
    """A sparse random graph with directed and undirected edges and a self-loop."""
    rng = np.random.default_rng(seed)
    linked = rng.random((nodes, nodes)) < 0.22
    linked |= linked.T & (rng.random((nodes, nodes)) < 0.7)
    np.fill_diagonal(linked, False)
    linked[np.arange(1, 4), 0] = True  # node 0 always has a neighbourhood
    linked[2, 2] = True
    x = torch.from_numpy(rng.normal(size=(nodes, features)))
    edge_index = torch.from_numpy(np.stack(np.nonzero(linked)))
    return Data(x=x, edge_index=edge_index, y=torch.arange(nodes) % 2)


def random_model(seed: int, whole_graphs: bool = False, features: int = 3) -> torch.nn.Module:
    """A GCN of two layers, or a model that pools over all nodes, with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _PooledModel(features, 3) if whole_graphs else GCN(features, 8, 2, 3, act="tanh")
    return model.double().eval()


def random_numbers(seed: int) -> torch.Generator:
    """Random numbers of a seed."""
    return torch.Generator().manual_seed(seed)


# --- estimators --------------------------------------------------------------------------------

_PLAYERS = 6


def check_estimator(estimator: Estimator, *, shapley: bool = True) -> None:
    """Check an estimator on random games of 1 to 12 players.

    Args:
        estimator: the estimator with its settings.
        shapley: False for an estimator that does not claim Shapley values (a selective one, or
            one that fits the base value): only efficiency and the form of its result are checked.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    for seed, players in enumerate((1, 2, 3, _PLAYERS, _PLAYERS)):
        values = np.random.default_rng(seed).normal(size=1 << players)
        for mask, budget in ((All(), 64), (Paired(), 20)):
            _check_fit(estimator, *_play(table_game(values), mask, budget))
    pairwise = np.random.default_rng(3).normal(size=(12, 12))

    def two_outputs(rows: Bools) -> Tensor:
        return torch.from_numpy(np.stack([((rows @ pairwise) * rows).sum(1), rows.sum(1)], 1))

    _check_fit(estimator, *_play(FunctionGame(two_outputs, 12), Auto(), 200))
    if not shapley:
        return
    _check_all_coalitions(estimator)
    weights = np.random.default_rng(5).normal(size=10)
    fit = estimator(*_play(additive_game(weights), Paired(), 200))
    close = np.allclose(fit.values[0].numpy(), weights, atol=1e-6)
    Laws(estimator).require(close, "an additive game gives every player its own weight")


def _play(game: FunctionGame, mask: Mask, budget: int) -> tuple[Masks, Tensor, Tensor, Tensor]:
    masks = mask(game, budget, random_numbers(0))
    ends = game.states(empty_and_full(game.players))
    values = game.values(np.concatenate([ends, masks.states]))
    return masks, values[2:], values[0], values[1]


def _check_fit(
    estimator: Estimator, masks: Masks, values: Tensor, empty: Tensor, full: Tensor
) -> None:
    players, outputs = masks.rows.shape[1], len(empty)
    laws = Laws(estimator, f"{players} players, {len(masks.rows)} rows")
    arguments = (masks.rows, masks.weights, values, empty, full)
    before = [np.asarray(argument).copy() for argument in arguments]
    with laws.random_state_untouched():
        fit = estimator(masks, values, empty, full)
    unchanged = all(map(np.array_equal, before, map(np.asarray, arguments)))
    laws.require(unchanged, "its arguments are left as they were")
    laws.require_type(fit, Fit, "returns a graphsvx.estimators.Fit")
    by_player, by_output = (outputs, players), (outputs,)
    shapes = {"values": by_player, "errors": by_player, "base": by_output, "r2": by_output}
    for name, shape in shapes.items():
        part = getattr(fit, name)
        law = f"{name} is a float64 tensor {list(shape)}"
        laws.require_type(part, Tensor, law)
        laws.require((part.shape, part.dtype) == (shape, torch.float64), law)
    finite = all(bool(part.isfinite().all()) for part in (fit.values, fit.base, fit.r2))
    laws.require(finite, "values, base and r2 are finite")
    stated = (fit.errors.isnan() | (fit.errors.isfinite() & (fit.errors >= 0))).all()
    laws.require(stated, "errors are finite and not negative, or NaN if not known")
    scale = float(values.abs().max()) if values.numel() else 1.0
    gap = (fit.base + fit.values.sum(1) - full).abs().max()
    adds_up = gap <= 1e-6 * (1 + scale)
    laws.require(adds_up, "efficiency: base and values add up to the full value")
    again = estimator(masks, values, empty, full)
    same = torch.equal(fit.values, again.values) and torch.equal(fit.base, again.base)
    laws.require(same, "the same input gives the same bits")


def _check_all_coalitions(estimator: Estimator) -> None:
    rows, laws = all_rows(_PLAYERS), Laws(estimator)
    rng = np.random.default_rng(11)
    anything = rng.normal(size=len(rows))
    # Player 0 does not matter; then only the number of players 0 and 1 that are on does.
    dummy = rng.normal(size=len(rows) // 2)[np.arange(len(rows)) >> 1]
    symmetric = rng.normal(size=(3, len(rows) // 4))[rows[:, :2].sum(1), np.arange(len(rows)) >> 2]
    for law, values in (
        ("on all coalitions the values are the Shapley values", anything),
        ("dummy: a player that never changes the value gets 0", dummy),
        ("symmetry: players that can be swapped get the same", symmetric),
    ):
        fit = estimator(*_play(table_game(values), All(), 1 << _PLAYERS))
        close = np.allclose(fit.values[0].numpy(), shapley_of_table(values), atol=1e-7)
        laws.require(close, law)
        no_errors = ((fit.errors == 0) | fit.errors.isnan()).all()
        laws.require(no_errors, "on all coalitions the errors are 0, or NaN if not known")


# --- masks -------------------------------------------------------------------------------------


def check_mask(mask: Mask, *, keeps_budget: bool = True) -> None:
    """Check a mask on games of 1 to 40 players with budgets of 4 to 300 calls.

    A mask may refuse a game by a BudgetError, but not all of them.

    Args:
        mask: the mask with its settings.
        keeps_budget: False for a mask that says that it ignores its budget, as `All` does.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    laws = Laws(mask)
    laws.require_type(getattr(mask, "separate", None), bool, "`separate` is True or False")
    answered = 0
    for players in (1, 2, 3, 6, 12, 40):
        rng = np.random.default_rng(players)
        weights = rng.normal(size=players)
        games: list[Callable[[], FunctionGame]] = [
            partial(additive_game, weights),
            partial(PathGame, weights),
        ]
        if players <= 6:
            games.append(partial(table_game, rng.normal(size=1 << players)))
        for game in games:
            for budget in (4, 5, 10, 64, 300):
                answered += _check_one(mask, game, budget, keeps_budget)
    laws.require(answered, "chooses rows for at least one game (all were refused)")


def _check_one(
    mask: Mask, new_game: Callable[[], FunctionGame], budget: int, keeps_budget: bool
) -> bool:
    """False if the mask has refused the game."""
    game = new_game()
    laws = Laws(mask, f"{game.players} players, budget {budget}")
    with laws.random_state_untouched():
        try:
            masks = mask(game, budget, random_numbers(7))
        except BudgetError:
            return False
    _check_arrays(laws, masks, game)
    states = np.concatenate([game.states(empty_and_full(game.players)), masks.states])
    values = game.values(states)
    within = not keeps_budget or game.calls <= budget
    law = "the budget is kept; it counts the empty and the full coalition"
    laws.require(within, f"{law}, got {game.calls} calls")
    again = mask(new_game(), budget, random_numbers(7))
    for field in fields(Masks):
        first, second = getattr(masks, field.name), getattr(again, field.name)
        same = first is None if second is None else np.array_equal(first, second)
        laws.require(same, f"the same seed gives the same {field.name}")
    if masks.exact and game.players <= 6:
        fit = WLS()(masks, values[2:], values[0], values[1])
        truth = shapley_of_table(game.values(game.states(all_rows(game.players)))[:, 0].numpy())
        close = np.allclose(fit.values[0].numpy(), truth, rtol=1e-6, atol=1e-8)
        laws.require(close, "`exact` rows give the Shapley values by least squares")
    return True


def _check_arrays(laws: Laws, masks: Masks, game: FunctionGame) -> None:
    laws.require_type(masks, Masks, "returns a graphsvx.masks.Masks")
    rows, weights, count, players = masks.rows, masks.weights, len(masks.rows), game.players
    laws.require_type(rows, np.ndarray, "rows are a numpy array of booleans")
    laws.require(rows.dtype == bool, "rows are a numpy array of booleans")
    laws.require(rows.shape == (count, players), "rows are [rows, players]")
    sizes = rows.sum(1)
    inner = ((sizes > 0) & (sizes < players)).all() or masks.credit is not None
    laws.require(inner, "the empty and the full coalition are left out")
    laws.require(masks.states.shape == (count,), "there is a state for each row")
    same_states = np.array_equal(masks.states, game.states(rows))
    laws.require(same_states, "states are game.states(rows)")
    laws.require(weights.shape == (count,), "there is a weight for each row")
    good = np.isfinite(weights).all() and (weights >= 0).all()
    laws.require(good, "weights are finite and not negative")
    laws.require(not count or weights.sum() > 0, "some weight is positive")
    if masks.credit is not None:
        right = masks.credit.shape == (count, players) and torch.isfinite(masks.credit).all()
        laws.require(right, "credit is finite and [rows, players]")
    if masks.pair is not None:
        paired = count % 2 == 0 and np.array_equal(rows[::2], ~rows[1::2])
        laws.require(paired, "with `pair`, rows 2i and 2i + 1 are complements")
        alike = np.array_equal(weights[::2], weights[1::2])
        laws.require(alike, "with `pair`, the rows of a pair have the same weight")
        laws.require(masks.pair.shape == (count,), "`pair` has an entry for each row")
    if masks.unseen is not None:
        share = masks.unseen.shape == (count,) and (abs(masks.unseen - 0.5) <= 0.5 + 1e-9).all()
        laws.require(share, "`unseen` is a share in [0, 1] for each row")


# --- methods -----------------------------------------------------------------------------------

_QUESTIONS: dict[str, dict[str, Any]] = {
    "node": {"node": 0},
    "nodes": {"nodes": [0, 1]},
    "graph": {"graph": True},
}


def check_method(method: Method, *, seed: int = 0) -> None:
    """Check a method on a question about a node, a group of nodes and a whole graph.

    A method may refuse a kind of question by an UnsupportedError, but not all of them.

    Args:
        method: the method with its settings.
        seed: of the random graph and model.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    answered = 0
    for kind, question in _QUESTIONS.items():
        laws = Laws(method, f"question about a {kind}")
        data, model = random_graph(seed, nodes=9), random_model(seed, kind == "graph").float()
        data.x = data.x.float()
        before, x, edge_index = _snapshot(model), data.x.clone(), data.edge_index.clone()
        with laws.random_state_untouched():
            try:
                explanation = explain(model, data, method=method, seed=1, **question)
            except UnsupportedError:
                continue
        answered += 1
        unchanged = _snapshot(model) == before
        laws.require(unchanged, "the model is left as it was: weights, gradients, modes")
        same = torch.equal(data.x, x) and torch.equal(data.edge_index, edge_index)
        laws.require(same, "the graph is left as it was")
        _check_record(laws, explanation, kind, model, data)
        record = explanation.to_dict()
        again = explain(model, data, method=method, seed=1, **question).to_dict()
        laws.require(json.dumps(record) == json.dumps(again), "the same seed gives the same bits")
        back = Explanation.from_dict(json.loads(json.dumps(record))).to_dict()
        laws.require(repr(back) == repr(record), "the record survives JSON without a change")
    Laws(method).require(answered, "answers a question about a node, nodes or a graph")


def _snapshot(model: torch.nn.Module) -> list[Any]:
    """Everything of a model that an explainer might leave changed."""

    def bits(tensor: Tensor | None) -> bytes | None:
        return None if tensor is None else tensor.detach().numpy().tobytes()

    return [
        [(k, bits(p), p.requires_grad, bits(p.grad)) for k, p in model.named_parameters()],
        [(name, bits(buffer)) for name, buffer in model.named_buffers()],
        # PyG itself sets `propagate` when a layer's `explain` is switched.
        [sorted({*vars(module)} - {"propagate"}) for module in model.modules()],
        [(m.training, vars(m).get("_explain")) for m in model.modules()],
        [bits(vars(module).get("_edge_mask")) for module in model.modules()],
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
    ]


def _check_record(
    laws: Laws, explanation: Explanation, kind: str, model: torch.nn.Module, data: Data
) -> None:
    laws.require(explanation.kind in (kind, "model"), "the record says what was asked")
    if explanation.kind == "model":
        return
    centres = {"node": [0], "nodes": [0, 1], "graph": []}[kind]
    laws.require(list(explanation.centres) == centres, "centres are those asked for")
    prediction = probability_of(model, *centres, target=explanation.target)(data)
    close = abs(explanation.prediction - prediction) < 1e-5
    laws.require(close, "prediction is the model's own")
    features, nodes, edges = explanation.feature_ids, explanation.node_ids, explanation.edge_ids
    for name, ids in (("features", features), ("nodes", nodes), ("edges", edges)):
        values = getattr(explanation, f"{name.removesuffix('s')}_values")
        laws.require(ids.shape[-1] == len(values), f"{name} have a value each")
        laws.require(values.isfinite().all(), f"the values of {name} are finite")
        distinct = len(set(ids.tolist())) == len(ids) if ids.dim() == 1 else True
        laws.require(distinct, f"{name} get credit once")
    columns_there = not len(features) or 0 <= int(features.min()) <= int(features.max()) < 3
    laws.require(columns_there, "credit goes to features that the graph has")
    graph_edges = set(map(tuple, data.edge_index.t().tolist()))
    players, reached = set(nodes.tolist()), distances(graph_edges, centres or range(len(data.x)))
    laws.require(players <= set(reached), "credit goes to nodes that can reach the explained")
    laws.require(not players & set(centres), "explained nodes get no credit")
    inside = set(map(tuple, edges.t().tolist())) <= graph_edges
    laws.require(inside, "credit goes to edges of the graph")
