"""Laws of masks (MASK)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial

import numpy as np
import torch

from graphsvx.errors import BudgetError
from graphsvx.estimators import WLS
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks import Mask, Masks
from graphsvx.masks.base import all_rows
from graphsvx.testing.laws import (
    PathGame,
    additive_game,
    random_numbers,
    random_state_untouched,
    require,
    table_game,
)
from graphsvx.testing.oracle import shapley_of_table

_BUDGETS = (4, 5, 10, 64, 300)


def check_mask(mask: Mask, *, keeps_budget: bool = True) -> None:
    """Check a mask on games of 1 to 40 players with budgets of 4 to 300 calls.

    A mask may refuse a game by a BudgetError, but not all of them.

    Args:
        mask: the mask with its settings.
        keeps_budget: False for a mask that says that it ignores its budget, as `All` does.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    require(isinstance(getattr(mask, "separate", None), bool), mask, "`separate` is True or False")
    answered = 0
    for players in (1, 2, 3, 6, 12, 40):
        rng = np.random.default_rng(players)
        weights = rng.normal(size=players)
        games: list[Callable[[], FunctionGame]] = [
            partial(additive_game, weights),
            partial(PathGame, weights),
        ]
        if players <= 6:
            values = rng.normal(size=1 << players)
            games.append(partial(table_game, values))
        for game in games:
            for budget in _BUDGETS:
                answered += _check_one(mask, game, budget, keeps_budget)
    require(answered, mask, "chooses rows for at least one game (all were refused)")


def _check_one(
    mask: Mask, new_game: Callable[[], FunctionGame], budget: int, keeps_budget: bool
) -> bool:
    """False if the mask has refused the game."""
    game = new_game()
    case = f"({game.players} players, budget {budget})"
    with random_state_untouched(mask):
        try:
            masks = mask(game, budget, random_numbers(7))
        except BudgetError:
            return False
    _check_arrays(mask, masks, game, case)
    states = np.concatenate([game.states(empty_and_full(game.players)), masks.states])
    values = game.values(states)
    if keeps_budget:
        law = f"the budget is kept {case}; it counts the empty and the full coalition"
        require(game.calls <= budget, mask, f"{law}, got {game.calls} calls")
    again = mask(new_game(), budget, random_numbers(7))
    for field in fields(Masks):
        first, second = getattr(masks, field.name), getattr(again, field.name)
        same = first is None if second is None else np.array_equal(first, second)
        require(same, mask, f"the same seed gives the same {field.name} {case}")
    if masks.exact and game.players <= 12:
        fit = WLS()(masks, values[2:], values[0], values[1])
        table = game.values(game.states(all_rows(game.players)))[:, 0].numpy()
        if game.players <= 6:
            truth = shapley_of_table(table)
            close = np.allclose(fit.values[0].numpy(), truth, rtol=1e-6, atol=1e-8)
            require(close, mask, f"`exact` rows give the Shapley values by least squares {case}")
    return True


def _check_arrays(mask: Mask, masks: Masks, game: FunctionGame, case: str) -> None:
    require(isinstance(masks, Masks), mask, f"returns a graphsvx.masks.Masks {case}")
    rows, count, players = masks.rows, len(masks.rows), game.players
    boolean = isinstance(rows, np.ndarray) and rows.dtype == bool
    require(boolean, mask, f"rows are a numpy array of booleans {case}")
    require(rows.shape == (count, players), mask, f"rows are [rows, players] {case}")
    sizes = rows.sum(1)
    inner = ((sizes > 0) & (sizes < players)).all()
    allowed = inner or masks.credit is not None
    require(allowed, mask, f"the empty and the full coalition are left out {case}")
    require(masks.states.shape == (count,), mask, f"there is a state for each row {case}")
    same_states = np.array_equal(masks.states, game.states(rows))
    require(same_states, mask, f"states are game.states(rows) {case}")
    weights = masks.weights
    require(weights.shape == (count,), mask, f"there is a weight for each row {case}")
    good = np.isfinite(weights).all() and (weights >= 0).all()
    require(good, mask, f"weights are finite and not negative {case}")
    require(not count or weights.sum() > 0, mask, f"some weight is positive {case}")
    if masks.credit is not None:
        right = masks.credit.shape == (count, players) and bool(torch.isfinite(masks.credit).all())
        require(right, mask, f"credit is finite and [rows, players] {case}")
    if masks.pair is not None:
        paired = count % 2 == 0 and np.array_equal(rows[::2], ~rows[1::2])
        require(paired, mask, f"with `pair`, rows 2i and 2i + 1 are complements {case}")
        alike = np.array_equal(weights[::2], weights[1::2])
        require(alike, mask, f"with `pair`, the rows of a pair have the same weight {case}")
        require(masks.pair.shape == (count,), mask, f"`pair` has an entry for each row {case}")
    if masks.unseen is not None:
        share = masks.unseen.shape == (count,) and (abs(masks.unseen - 0.5) <= 0.5 + 1e-9).all()
        require(share, mask, f"`unseen` is a share in [0, 1] for each row {case}")
