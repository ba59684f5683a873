"""A mask, an estimator, a generator and a kind of players of one's own, checked and at work.

Each is what a user would write who has read `docs/blocks.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsvx import GraphSVX, explain
from graphsvx.core.field import Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.estimators import WLS, Fit
from graphsvx.generators import GameSetup, Isolate
from graphsvx.masks import All, Masks
from graphsvx.methods import Nodes
from graphsvx.testing import check_estimator, check_generator, check_mask, check_players
from graphsvx.testing.laws import random_graph, random_model
from graphsvx.testing.oracle import cut, probability_of, replace_features, shapley_values


@dataclass(frozen=True)
class Antithetic:
    """MASK: random coalitions, each with its complement, sizes drawn by their kernel weights."""

    separate: bool = True

    def __call__(self, game: Any, budget: int, rng: torch.Generator) -> Masks:
        players = game.players
        sizes = np.arange(1, players)
        pairs = max(0, budget - 2) // 2 if players > 1 else 0
        rows = np.zeros((pairs, players), dtype=bool)
        if pairs:
            chances = torch.from_numpy(1 / (sizes * (players - sizes)))  # of a size, all together
            drawn = sizes[
                torch.multinomial(chances, pairs, replacement=True, generator=rng).numpy()
            ]
            rows = (
                torch.rand(pairs, players, generator=rng).numpy().argsort().argsort()
                < drawn[:, None]
            )
        rows = np.stack([rows, ~rows], 1).reshape(-1, players)
        return Masks(rows, game.states(rows), np.ones(len(rows)))


@dataclass(frozen=True)
class LeastSquares:
    """EXPL: weighted least squares; credit adds up exactly."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        players, gain = masks.rows.shape[1], full - empty
        z, weights = torch.from_numpy(masks.rows).double(), torch.from_numpy(masks.weights)
        weights = weights.sqrt()[:, None]
        share = gain / players
        # What the rows tell beyond an equal share; columns add up to 0, so does the solution.
        centred = z - z.mean(1, keepdim=True)
        rest = values - empty - z.sum(1, keepdim=True) * share
        extra = torch.linalg.pinv(weights * centred) @ (weights * rest)
        credit = (share + extra).t()
        return Fit(credit, torch.full_like(credit, torch.nan), empty, torch.ones_like(empty))


@dataclass(frozen=True)
class Fade:
    """GEN: a switched-off node keeps its edges and half of its features."""

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> Fade:
        return self  # nothing is drawn

    def __call__(self, setup: GameSetup, features_on: Any, nodes_on: Any) -> Perturbations:
        batch = Isolate()(setup, features_on, np.ones_like(nodes_on))
        on = setup.players.active_nodes(setup.field.size, nodes_on)
        table = torch.cat([batch.feature_table, setup.feature_table / 2])
        faded = len(batch.feature_table) + np.arange(setup.field.size)
        return replace(
            batch, feature_row=np.where(on, batch.feature_rows(), faded), feature_table=table
        )


@dataclass(frozen=True)
class Rings(Nodes):
    """Players: all nodes at the same distance from the explained node are one of them."""

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:
        field = evaluator.field
        ids, hops = field.ids[: field.size], field.hops[: field.size]
        rings = {f"{h} away": ids[hops == h].tolist() for h in range(1, hops.max(initial=0) + 1)}
        return Nodes(self.hops, groups=rings).setup(query, evaluator, seed)


def test_own_parts_obey_the_laws() -> None:
    check_mask(Antithetic())
    check_estimator(LeastSquares())
    check_generator(Fade(), seeds=range(2))
    check_players(Rings(), seeds=range(2))


@pytest.mark.parametrize("part", [
    Antithetic(), LeastSquares(), Fade(), Rings(),
], ids=lambda part: type(part).__name__)  # fmt: skip
def test_own_parts_are_what_the_oracle_says(part: Any) -> None:
    """Alone, in place of the default; many coalitions where rows are drawn."""
    data, model = random_graph(2), random_model(2)
    name = {"Antithetic": "mask", "LeastSquares": "estimator", "Fade": "generator"}
    settings = {name.get(type(part).__name__, "players"): part}
    if isinstance(part, Antithetic):
        settings["estimator"] = WLS()
    if isinstance(part, LeastSquares):
        settings["mask"] = All(separate=True)
    method = GraphSVX(**{"players": "nodes", "samples": 4000, **settings})
    e = explain(model, data, node=0, method=method)
    score, groups = probability_of(model, 0, target=e.target), {n: [n] for n in e.nodes}
    if isinstance(part, Rings):
        groups = {members[0]: list(members) for members in e.groups.nodes.values()}
        assert sum(map(len, groups.values())) > len(groups) > 1

    def value(on: frozenset[int]) -> float:
        off = [node for name in set(groups) - on for node in groups[name]]
        if not isinstance(part, Fade):
            return score(cut(data, off))
        changed = data
        for node in off:
            changed = replace_features(changed, [node], range(3), data.x[node] / 2)
        return score(changed)

    truth = shapley_values(groups, value)
    assert e.nodes == pytest.approx(truth, abs=0.02 if isinstance(part, Antithetic) else 1e-9)
    assert max(map(abs, truth.values())) > 1e-3
