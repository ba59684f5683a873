"""Selective explanations: a weighted Lasso chooses few players, least squares refits them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

import numpy as np
import torch
from scipy.linalg import block_diag
from torch import Tensor

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.least_squares import WLS, Fit, PlayedRows, surrogate
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked, Range

_MOST_VALIDATED = 50
_SUFFICIENT_SHARE = 0.95
_PERTURBATION, _ROUNDING = 1e-10, 1e-13


@dataclass(frozen=True)
class Lasso(Checked):
    """At most `k` players, chosen by a weighted Lasso path and refitted by least squares.

    The games of an explanation share one path, so that `k` is the number of players of all
    kinds together. Efficiency is kept: the chosen ones of a game carry all of it, and the whole
    of a game without chosen players goes to the others. `k=None` takes as many as predict
    held-out rows best (5 folds, the smallest number within one standard error); exact games
    without rows to hold out, as few as keep 95 % of the surrogate's variance.
    """

    k: Annotated[int | None, Range(1)] = None

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: the design twice, matrices of players, and their path."""
        return 16 * coalitions * players + 32 * players**2

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Choose in one game, then refit on the chosen."""
        return self.over([PlayedRows(masks, values, empty, full)])[0]

    def over(self, games: Sequence[PlayedRows]) -> list[Fit]:
        """Choose in all games at once, then refit each on its chosen ones."""
        complete = [WLS()(*game) for game in games]
        credits = [torch.zeros_like(fit.values) for fit in complete]
        for output in range(complete[0].values.shape[0] if complete else 0):
            parts = [_Part.of(game, fit, output) for game, fit in zip(games, complete, strict=True)]
            for phi, values in zip(credits, self._choose(parts), strict=True):
                phi[output] = values
        fits = []
        for game, fit, phi in zip(games, complete, credits, strict=True):
            unknown = torch.full_like(phi, torch.nan)
            refitted = surrogate(game.masks, game.values, game.empty, phi, unknown)
            fits.append(replace(refitted, complete=fit.values))
        return fits

    def _choose(self, parts: list[_Part]) -> list[Tensor]:
        if not sum(part.players for part in parts):
            return [torch.zeros(0, dtype=torch.float64) for _ in parts]
        keep = self.k if self.k is not None else _validated_size(parts)
        supports = _split(_supports(parts, keep)[-1], parts)
        # What games without chosen players leave goes to the others, by their number.
        left = sum(part.gain for part, mine in zip(parts, supports, strict=True) if not len(mine))
        count = sum(len(mine) for mine in supports)
        return [
            part.refit(mine, part.gain + left * len(mine) / count)
            for part, mine in zip(parts, supports, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class _Part:
    """One game for one output, as the loss beta' A beta - 2 b' beta."""

    gram: Floats
    """A = Z'WZ, with weights that sum to 1."""
    moment: Floats
    """b = Z'Wy, y = f(z) - f(0)."""
    gain: float
    """f(1) - f(0)."""
    rows: tuple[Floats, Floats, Floats] | None = None
    """z, y and weights, where the loss was made from rows."""

    @property
    def players(self) -> int:
        return len(self.moment)

    @staticmethod
    def of(game: PlayedRows, fit: Fit, output: int) -> _Part:
        """From the rows, or in closed form where credit was found without kernel rows."""
        masks, gain = game.masks, float(game.full[output] - game.empty[output])
        phi = fit.values[output].numpy()
        if masks.credit is not None or len(masks.rows) == 0:
            gram = kernel_gram(len(phi))
            return _Part(gram, gram @ phi, gain)
        z = masks.rows.astype(np.float64)
        y = (game.values[:, output] - game.empty[output]).numpy()
        return _Part.fitted(z, y, masks.weights, gain)

    @staticmethod
    def fitted(z: Floats, y: Floats, w: Floats, gain: float) -> _Part:
        share = w / w.sum()
        weighted = z * share[:, None]
        return _Part(weighted.T @ z, weighted.T @ y, gain, (z, y, w))

    def solve(self, support: Ids) -> Floats:
        """Coefficients of least squares on the chosen ones."""
        beta = np.zeros(self.players)
        block = self.gram[np.ix_(support, support)]
        beta[support] = np.linalg.lstsq(block, self.moment[support], rcond=None)[0]
        return beta

    def loss(self, beta: Floats) -> float:
        """Weighted mean of squared residuals, less that of y^2."""
        return float(beta @ self.gram @ beta - 2 * self.moment @ beta)

    def refit(self, support: Ids, gain: float) -> Tensor:
        """Least squares on the chosen ones with sum `gain`; the others get 0."""
        phi = torch.zeros(self.players, dtype=torch.float64)
        count = len(support)
        if count:
            system = np.zeros((count + 1, count + 1))
            system[:count, :count] = self.gram[np.ix_(support, support)]
            system[count, :count] = system[:count, count] = 1
            right = np.append(self.moment[support], gain)
            solution = np.linalg.lstsq(system, right, rcond=None)[0][:count]
            # The least-squares solver meets the last row to rounding only.
            phi[support] = torch.from_numpy(solution + (gain - solution.sum()) / count)
        return phi


def kernel_gram(players: int) -> Floats:
    """E[z z'] under the Shapley kernel, over all coalitions but the empty and the full one."""
    gram = np.full((players, players), 0.0)
    if players > 1:
        sizes = np.arange(1, players, dtype=np.float64)
        mass = 1 / (sizes * (players - sizes))
        gram[:] = (mass * sizes * (sizes - 1)).sum() / mass.sum() / (players * (players - 1))
    np.fill_diagonal(gram, 0.5)
    return gram


def _path(parts: list[_Part]) -> Floats:
    """Coefficients along one Lasso path over all games, [players, steps].

    Least angle regression lets one player enter or leave at a time. At a tie scikit-learn misses
    players, or fails where two leave; a perturbation far below its tolerance puts them in order.
    """
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  (slow to import)
    from sklearn.linear_model import lars_path_gram  # noqa: PLC0415  (slow to import)

    moment = np.concatenate([part.moment for part in parts])
    # scikit-learn stops at an absolute penalty of 1e-7.
    scale = np.abs(moment).max(initial=0.0) or 1.0
    perturbed = moment / scale + _PERTURBATION * np.random.default_rng(0).random(len(moment))
    gram = block_diag(*(part.gram for part in parts))
    with warnings.catch_warnings():
        # Players that the rows cannot tell apart: the path stops early, which is what we want.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        _, _, path = lars_path_gram(perturbed, gram, n_samples=1, method="lasso")
    # A player that left keeps a coefficient of the size of rounding.
    path[np.abs(path) < _ROUNDING * np.abs(path).max(initial=0.0)] = 0
    return np.asarray(path * scale)


def _supports(parts: list[_Part], most: int) -> list[Ids]:
    """The players chosen with at most 1, 2, ..., `most` of them (those of the last such step)."""
    path = _path(parts)
    sizes = (path != 0).sum(0)
    strongest = np.abs(np.concatenate([part.moment for part in parts])).argmax()
    supports = []
    for keep in range(1, most + 1):
        fits = np.flatnonzero((sizes <= keep) & (sizes > 0))
        support = np.flatnonzero(path[:, fits[-1]]) if len(fits) else np.asarray([strongest])
        supports.append(support)
        if sizes.max(initial=0) <= keep:
            break
    return supports


def _split(support: Ids, parts: list[_Part]) -> list[Ids]:
    """Players numbered through all games as players of each."""
    ends = np.cumsum([0, *(part.players for part in parts)])
    return [
        support[(support >= first) & (support < last)] - first for first, last in pairwise(ends)
    ]


def _validated_size(parts: list[_Part], folds: int = 5) -> int:
    """How many players predict held-out rows best; the smallest within one standard error."""
    rows = [part.rows for part in parts if part.rows is not None and len(part.rows[1]) >= 2 * folds]
    if len(rows) < sum(part.players > 0 for part in parts):
        return _sufficient_size(parts)
    losses: list[list[float]] = []
    for fold in range(folds):
        train, test = [], []
        for z, y, w in rows:
            out = np.arange(len(y)) % folds == fold
            train.append(_Part.fitted(z[~out], y[~out], w[~out], 0.0))
            test.append(_Part.fitted(z[out], y[out], w[out], 0.0))
        losses.append(_losses(train, test))
    shortest = min(map(len, losses))
    table = np.asarray([of_fold[:shortest] for of_fold in losses])
    # Against the best fold by fold: the losses lack a constant that differs between folds.
    worse = table - table[:, [int(table.mean(0).argmin())]]
    return int(np.flatnonzero(worse.mean(0) <= worse.std(0) / np.sqrt(folds))[0]) + 1


def _sufficient_size(parts: list[_Part]) -> int:
    """How few players keep 95 % of what the complete surrogates explain."""
    most = sum(part.loss(part.solve(np.arange(part.players))) for part in parts)
    losses = np.asarray(_losses(parts, parts))
    sufficient = np.flatnonzero(losses <= _SUFFICIENT_SHARE * most)
    return int(sufficient[0]) + 1 if len(sufficient) else len(losses)


def _losses(train: list[_Part], test: list[_Part]) -> list[float]:
    """Losses on `test` of fits with 1, 2, ... players, chosen and fitted on `train`."""
    losses = []
    for support in _supports(train, _MOST_VALIDATED):
        fits = [part.solve(mine) for part, mine in zip(train, _split(support, train), strict=True)]
        losses.append(sum(part.loss(beta) for part, beta in zip(test, fits, strict=True)))
    return losses
