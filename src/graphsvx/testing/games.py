"""Laws of masks (MASK) and of estimators (EXPL), on games of known Shapley values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Floats
from graphsvx.errors import BudgetError
from graphsvx.estimators import WLS, Estimator, Fit
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks import All, Auto, Mask, Masks, Paired
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

_PLAYERS = 6
_BUDGETS = (4, 5, 10, 64, 300)


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
    game = FunctionGame(
        lambda rows: torch.from_numpy(
            np.stack([((rows @ pairwise) * rows).sum(1), rows.sum(1)], 1)
        ),
        12,
    )
    _check_fit(estimator, *_play(game, Auto(), 200))
    if not shapley:
        return
    _check_all_coalitions(estimator)
    weights = np.random.default_rng(5).normal(size=10)
    fit = estimator(*_play(additive_game(weights), Paired(), 200))
    close = np.allclose(fit.values[0].numpy(), weights, atol=1e-6)
    require(close, estimator, "an additive game gives every player its own weight")


def _play(game: FunctionGame, mask: Mask, budget: int) -> tuple[Masks, Tensor, Tensor, Tensor]:
    masks = mask(game, budget, random_numbers(0))
    ends = game.states(empty_and_full(game.players))
    values = game.values(np.concatenate([ends, masks.states]))
    return masks, values[2:], values[0], values[1]


def _check_fit(
    estimator: Estimator, masks: Masks, values: Tensor, empty: Tensor, full: Tensor
) -> None:
    case = f"({masks.rows.shape[1]} players, {len(masks.rows)} rows)"
    arguments = [
        masks.rows.copy(),
        masks.weights.copy(),
        values.clone(),
        empty.clone(),
        full.clone(),
    ]
    with random_state_untouched(estimator):
        fit = estimator(masks, values, empty, full)
    unchanged = all(
        np.array_equal(np.asarray(before), np.asarray(after))
        for before, after in zip(
            arguments, (masks.rows, masks.weights, values, empty, full), strict=True
        )
    )
    require(unchanged, estimator, f"its arguments are left as they were {case}")
    require(isinstance(fit, Fit), estimator, f"returns a graphsvx.estimators.Fit {case}")
    outputs, players = len(empty), masks.rows.shape[1]
    for name, shape in (
        ("values", (outputs, players)),
        ("errors", (outputs, players)),
        ("base", (outputs,)),
        ("r2", (outputs,)),
    ):
        part = getattr(fit, name)
        right = isinstance(part, Tensor) and tuple(part.shape) == shape
        require(
            right and part.dtype == torch.float64,
            estimator,
            f"{name} is a float64 tensor {list(shape)} {case}",
        )
    finite = all(bool(part.isfinite().all()) for part in (fit.values, fit.base, fit.r2))
    require(finite, estimator, f"values, base and r2 are finite {case}")
    errors = fit.errors
    stated = bool((errors.isnan() | (errors.isfinite() & (errors >= 0))).all())
    require(stated, estimator, f"errors are finite and not negative, or NaN if not known {case}")
    scale = float(values.abs().max()) if values.numel() else 1.0
    gap = (fit.base + fit.values.sum(1) - full).abs().max()
    require(
        gap <= 1e-6 * (1 + scale),
        estimator,
        f"efficiency: base and values add up to the full value {case}",
    )
    again = estimator(masks, values, empty, full)
    same = torch.equal(fit.values, again.values) and torch.equal(fit.base, again.base)
    require(same, estimator, f"the same input gives the same bits {case}")


def _check_all_coalitions(estimator: Estimator) -> None:
    rows = all_rows(_PLAYERS)
    rng = np.random.default_rng(11)
    for law, values in (
        ("on all coalitions the values are the Shapley values", rng.normal(size=len(rows))),
        ("dummy: a player that never changes the value gets 0", _dummy(rows, rng)),
        ("symmetry: players that can be swapped get the same", _symmetric(rows, rng)),
    ):
        fit = estimator(*_play(table_game(values), All(), 1 << _PLAYERS))
        credit, truth = fit.values[0].numpy(), shapley_of_table(values)
        if law.startswith("dummy"):
            require(abs(credit[0]) < 1e-7, estimator, law)
        if law.startswith("symmetry"):
            require(abs(credit[0] - credit[1]) < 1e-7, estimator, law)
        require(np.allclose(credit, truth, atol=1e-7), estimator, law)
        no_errors = bool(((fit.errors == 0) | fit.errors.isnan()).all())
        require(no_errors, estimator, "on all coalitions the errors are 0, or NaN if not known")


def _dummy(rows: np.ndarray, rng: np.random.Generator) -> Floats:
    """Random values in which player 0 does not matter."""
    table = rng.normal(size=len(rows) // 2)
    return np.asarray(table[np.arange(len(rows)) >> 1])


def _symmetric(rows: np.ndarray, rng: np.random.Generator) -> Floats:
    """Random values of the number of players 0 and 1 that are on, and of the others."""
    table = rng.normal(size=(3, len(rows) // 4))
    return np.asarray(table[rows[:, :2].sum(1), np.arange(len(rows)) >> 2])


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
