"""Laws of estimators (EXPL)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Floats
from graphsvx.estimators import Estimator, Fit
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks import All, Auto, Mask, Masks, Paired
from graphsvx.masks.base import all_rows
from graphsvx.testing.laws import (
    additive_game,
    random_numbers,
    random_state_untouched,
    require,
    table_game,
)
from graphsvx.testing.oracle import shapley_of_table

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
    for name, shape in (("values", (outputs, players)), ("errors", (outputs, players)),
                        ("base", (outputs,)), ("r2", (outputs,))):  # fmt: skip
        part = getattr(fit, name)
        right = isinstance(part, Tensor) and tuple(part.shape) == shape
        require(right and part.dtype == torch.float64, estimator,
                f"{name} is a float64 tensor {list(shape)} {case}")  # fmt: skip
    finite = all(bool(part.isfinite().all()) for part in (fit.values, fit.base, fit.r2))
    require(finite, estimator, f"values, base and r2 are finite {case}")
    errors = fit.errors
    stated = bool((errors.isnan() | (errors.isfinite() & (errors >= 0))).all())
    require(stated, estimator, f"errors are finite and not negative, or NaN if not known {case}")
    scale = float(values.abs().max()) if values.numel() else 1.0
    gap = (fit.base + fit.values.sum(1) - full).abs().max()
    require(gap <= 1e-6 * (1 + scale), estimator,
            f"efficiency: base and values add up to the full value {case}")  # fmt: skip
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
