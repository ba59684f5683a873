"""Shapley values of any game: a function of coalitions.

result = graphsvx.estimate(lambda coalitions: coalitions @ weights, players=20, budget=500)
result.values, result.errors, result.exact
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, derive_rng
from graphsvx.errors import BudgetError, InputError
from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.least_squares import Estimator, EstimatorSetting, Fit
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks.base import Mask, Masks, MaskSetting
from graphsvx.masks.exact import Auto
from graphsvx.utils.constraints import MOST, Block, Count, Range, Seed, checked
from graphsvx.utils.exclusive import exclusive

# The empty and the full coalition and one pair of complements.
_LEAST_BUDGET = 4
# Error bars of fewer calls are too wide to stop at.
_FIRST_STEP = 32

_GameSetting = Annotated[
    Any, Block("a function of a boolean matrix of coalitions [rows, players]", arguments=1)
]
_Budget = Annotated[int, Range(_LEAST_BUDGET, MOST, error=BudgetError)]
_Tolerance = Annotated[float | None, Range(0, inside=True)]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Shapley values of a game with standard errors.

    For a game of one value a coalition `values` and `errors` are [players] and the others are
    numbers; for a game of several outputs all of them have a leading dimension of outputs.
    """

    values: Floats
    """phi: each player's share of `full - base`."""
    errors: Floats
    """Standard errors: 0 where exact, NaN where the estimator gives none."""
    base: Any
    """phi_0: the value of the empty coalition (`WLR` fits it)."""
    full: Any
    """The value of the full coalition; `base + values.sum(-1) == full`."""
    exact: bool
    """True if these are the Shapley values themselves."""
    calls: int
    """Number of distinct coalitions that the game was evaluated on."""
    r2: Any
    """Weighted R² of the additive surrogate on the evaluated coalitions."""
    tolerance_met: bool | None = None
    """Whether every standard error is within the tolerance; None: no tolerance was given."""

    @property
    def players(self) -> int:
        """M."""
        return self.values.shape[-1]

    def __repr__(self) -> str:
        kind = "exact" if self.exact else "estimated"
        outputs = "" if self.values.ndim == 1 else f", {len(self.values)} outputs"
        lines = [f"Estimate({self.players} players{outputs}, {kind}, {self.calls:,} calls"]
        if self.values.ndim == 1:
            lines[0] += f", r2={self.r2:.3f}"
            lines.append(
                f"  base {self.base:.4g} + credit {self.values.sum():.4g} = full {self.full:.4g}"
            )
            largest = np.argsort(-np.abs(self.values), kind="stable")[:5]
            lines += [
                f"  player {player}: {self.values[player]:+.4g}"
                + ("" if self.exact else f" ± {self.errors[player]:.2g}")
                for player in largest
            ]
            if self.players > len(largest):
                lines.append(f"  and {self.players - len(largest)} more")
        return "\n".join(lines) + ")"


def estimate(
    game: Callable[[Bools], Any],
    players: int,
    *,
    budget: int = 1000,
    mask: Mask | None = None,
    estimator: Estimator | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Shapley values of a game: exact where all coalitions fit the budget, estimated elsewhere.

    Args:
        game: a function of a boolean numpy matrix of coalitions [rows, players] that returns a
            value [rows] or a row of outputs [rows, outputs] for each, as numpy array, tensor or
            list. It is called few times, with many rows, and never twice with the same coalition.
        players: number of players M.
        budget: most coalitions that the game is evaluated on, at least 4.
        mask: which coalitions are evaluated; `Auto()` by default: all of them if they fit the
            budget, pairs of complements (`Paired`) if not.
        estimator: how values become credit; `GaussianProcess()` by default.
        tolerance: stop once every standard error is at most this. The budget is then spent in
            steps, each four times as large as the one before.
        seed: the same seed and settings give the same bits.

    Returns:
        A frozen record of numpy arrays; `base + values.sum(-1) == full`.

    """
    game = checked(game, _GameSetting, "game")
    players = checked(players, Count, "players")
    budget = checked(budget, _Budget, "budget")
    mask = checked(Auto() if mask is None else mask, MaskSetting, "mask")
    estimator = checked(
        GaussianProcess() if estimator is None else estimator, EstimatorSetting, "estimator"
    )
    tolerance = checked(tolerance, _Tolerance, "tolerance")
    seed = checked(seed, Seed, "seed")
    function = _CheckedFunction(game)
    met: bool | None = None
    with exclusive():
        played = FunctionGame(function, players)
        ends = played.states(empty_and_full(players))
        played.values(ends)
        fits_whole = players < MOST.bit_length() and 1 << players <= budget
        for step in _steps(budget, tolerance):
            # The calls of earlier steps count, unless all coalitions fit the budget anyway.
            left = budget if fits_whole else budget - played.calls + len(ends)
            masks = mask(played, min(step, left), derive_rng(seed, "estimate"))
            values = played.values(np.concatenate([ends, masks.states]))
            fit = estimator(masks, values[2:], values[0], values[1])
            if tolerance is not None:
                met = bool((fit.errors <= tolerance).all())  # NaN is not within it
            if met:
                break
    return _record(fit, masks, values[1], played.calls, met, function.width == ())


def _steps(budget: int, tolerance: float | None) -> list[int]:
    """Budgets to try, each four times the one before; the last is all that is left."""
    steps = [budget]
    step = 3 * budget // 16
    while tolerance is not None and step >= _FIRST_STEP:
        steps.insert(0, step)
        step //= 4
    return steps


def _record(
    fit: Fit, masks: Masks, full: Tensor, calls: int, met: bool | None, single_value: bool
) -> Estimate:
    exact = masks.exact and not bool(fit.errors.any())
    values, errors = fit.values.numpy().copy(), fit.errors.numpy().copy()
    others: list[Any] = [part.numpy().copy() for part in (fit.base, full, fit.r2)]
    if single_value:
        values, errors, others = values[0], errors[0], [float(part[0]) for part in others]
    base, top, r2 = others
    return Estimate(values, errors, base, top, exact, calls, r2, met)


class _CheckedFunction:
    """The user's function, with its values checked and as float64 [rows, outputs]."""

    def __init__(self, function: Callable[[Bools], Any]) -> None:
        self.function = function
        self.width: tuple[int, ...] | None = None
        """(): one value a coalition; (n,): a row of n outputs."""

    def __call__(self, coalitions: Bools) -> Tensor:
        rows = len(coalitions)
        returned = self.function(coalitions)
        values = _float64(returned)
        if values is None or values.ndim not in (1, 2) or len(values) != rows or not values.size:
            shape = type(returned).__name__ if values is None else list(values.shape)
            raise InputError(
                f"the game must return a number, or a row of them, for each of the {rows} "
                f"coalitions, [{rows}] or [{rows}, outputs], got {shape}"
            )
        width = values.shape[1:]
        if self.width not in (None, width):
            raise InputError(
                f"the game must return the same number of outputs each time, got "
                f"{list(width)} after {list(self.width)}"
            )
        self.width, table = width, values.reshape(rows, -1)
        infinite = np.flatnonzero(~np.isfinite(table).all(1))
        if len(infinite):
            first = infinite[0]
            members = np.flatnonzero(coalitions[first]).tolist()
            raise InputError(
                f"the game must return finite values, got {values[first].tolist()} for the "
                f"coalition of players {members}"
            )
        return torch.from_numpy(table)


def _float64(values: Any) -> Floats | None:
    """A fresh array, or None for what is not an array of real numbers."""
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            return None if values.is_complex() else np.array(values.double().numpy())
        array = np.array(values)
        return None if array.dtype.kind not in "biuf" else array.astype(np.float64)
    except (RuntimeError, TypeError, ValueError):  # rows of unequal lengths, quantized tensors
        return None
