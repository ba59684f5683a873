"""The paper's mask generators (appendix, algorithms 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Annotated

import numpy as np
import torch

from graphsvx.core.arrays import Bools
from graphsvx.errors import BudgetError
from graphsvx.games.base import Game, require_memory
from graphsvx.masks.base import Masks, kernel_masks
from graphsvx.utils.constraints import Checked, Range, Share


@dataclass(frozen=True)
class Random(Checked):
    """Every player on with probability 1/2, features and nodes together."""

    separate = False

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """Random rows beside the empty and the full one, weighted by the kernel."""
        _require_budget_fits(game, budget)
        return kernel_masks(game, _coins((max(0, budget - 2), game.players), rng))


@dataclass(frozen=True)
class Smart(Checked):
    """Coalitions of high weight first: order 0, 1, 2, ... until the budget is spent.

    Order k holds the coalitions with k players on and those with k players off. An order that
    does not fit is sampled at random.
    """

    separate: bool = False

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """Whole orders while they fit, then a random part of the next."""
        _require_budget_fits(game, budget)
        players = game.players
        rows, k = _whole_orders(players, budget, players)
        left = budget - max(2, len(rows))  # the empty and the full row are played in any case
        if left > 0 and k <= players // 2:
            rows = np.concatenate([rows, _random_of_order(players, k, left, rng)])
        return kernel_masks(game, rows)


@dataclass(frozen=True)
class SmartSeparate(Checked):
    """`Smart` in each of the two separate games."""

    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """See `Smart`."""
        return Smart()(game, budget, rng)


@dataclass(frozen=True)
class SmarterSeparate(Checked):
    """Algorithm 4: whole orders up to `order` (S) while they fit 90 % of the budget, then

    coalitions of the next order that favour players not seen yet, then random rows. What
    `order` leaves unused goes to random rows too, so that the budget is spent.
    """

    order: Annotated[int, Range(0, error=BudgetError)] = 1
    random_share: Share = 0.1
    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """The rows of algorithm 4, weighted by the kernel."""
        _require_budget_fits(game, budget)
        players = game.players
        smart = int((1 - self.random_share) * budget)
        top = min(self.order, players - 1)
        rows, k = _whole_orders(players, smart, top)
        if len(rows) < smart and k <= min(top, players // 2):
            rows = np.concatenate([rows, _diverse_of_order(players, k, smart - len(rows), rng)])
        left = budget - max(2, len(rows))  # the empty and the full row are played in any case
        if left > 0:
            rows = np.concatenate([rows, _coins((left, players), rng)])
        return kernel_masks(game, rows)


def _require_budget_fits(game: Game, budget: int) -> None:
    """Refuse budgets beyond the game's memory: random integers, or ranks, of each player."""
    require_memory(game.memory, 20 * budget * game.players, budget, game.players)


def _whole_orders(players: int, budget: int, top: int) -> tuple[Bools, int]:
    """All coalitions of order 0, 1, ... while they fit, and the first order that did not."""
    orders, used, k = [np.zeros((0, players), dtype=bool)], 0, 0
    while k <= min(top, players // 2):
        # In the middle order the complements are the same coalitions again.
        middle = 2 * k == players
        used += comb(players, k) * (1 if middle else 2)
        if used >= budget:
            break
        few = np.zeros((comb(players, k), players), dtype=bool)
        members = np.array([*combinations(range(players), k)], dtype=np.int64)
        np.put_along_axis(few, members, True, axis=1)
        orders += [few] if middle else [few, ~few]
        k += 1
    return np.concatenate(orders), k


def _coins(shape: tuple[int, int], rng: torch.Generator) -> Bools:
    return torch.randint(0, 2, shape, generator=rng).numpy() == 1


def _random_of_order(players: int, k: int, count: int, rng: torch.Generator) -> Bools:
    draws = torch.rand(count, players, generator=rng).numpy()
    rows: Bools = (draws.argsort(1).argsort(1) < k) ^ _coins((count, 1), rng)
    return rows


def _diverse_of_order(players: int, k: int, count: int, rng: torch.Generator) -> Bools:
    """Coalitions of order k whose players have been seen least (the inner loop of algorithm 4).

    A player's weight is 1, 1/2, 1/3, ... after 0, 1, 2, ... times of being chosen, a coalition's
    the sum over its players; one of the heaviest is drawn.
    """
    weights = np.ones(players)
    rows = np.zeros((count, players), dtype=bool)
    for i in range(count):
        # The heaviest coalitions are made of the k heaviest players, ties at random.
        ties = torch.rand(players, generator=rng).numpy()
        members = np.lexsort((ties, -weights))[:k]
        rows[i, members] = True
        if int(torch.randint(0, 2, (1,), generator=rng)):
            rows[i] = ~rows[i]
        weights[members] = 1 / (1 + 1 / weights[members])
    return rows
