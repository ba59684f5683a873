"""The surrogate g: weighted linear regressions of values on coalitions (Eq. 3).

All in float64 and for all explained outputs at once. With z centred to z - |z| / M the
efficiency constraint is met by construction: credit is an equal share for everybody plus a part
that sums to zero. Where rows are too few to tell players apart, that part has the least norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats
from graphsvx.estimators.covariance import cholesky, inverse_from_cholesky
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Block, Checked

# Penalties of ridge regression that are tried, as multiples of the largest eigenvalue.
_PENALTIES = np.logspace(-6, 1, 29)
_RANK = 1e-11  # eigenvalues below it, relative to the largest, are rounding
_ENTRIES_AT_ONCE = 1 << 19  # of a block of rows or players, in which memory stays bounded


@dataclass(frozen=True, eq=False)
class Fit:
    """Result of an estimator, for each output."""

    values: Tensor
    """phi: [outputs, M]."""
    errors: Tensor
    """Standard errors: 0 if exact, NaN if the rows do not support any."""
    base: Tensor
    """phi_0: [outputs]."""
    r2: Tensor
    """Weighted R² on the rows: [outputs]."""
    complete: Tensor | None = None
    """Selective regressions: phi of all players before any was left out."""
    model: str | None = None
    """Model of the game that was fitted, in words; None: an additive one."""
    held_out_r2: Tensor | None = None
    """Share of the variance of held-out pairs that the model predicted: [outputs]."""
    variance_of_sums: Callable[[Floats], Floats] | None = None
    """Variances of weighted sums of credit, [outputs, sums], from weights [M, sums]."""

    def group_credit(self, groups: Bools) -> tuple[Floats, Floats]:
        """Credit of groups of players and its standard errors, [outputs, groups] each.

        `groups` [groups, M]: members. Players' errors are correlated, so that a group's error is
        not the root of the sum of their squares; NaN if the estimator gives no covariances.
        """
        weights = groups.astype(np.float64).T
        credit: Floats = self.values.numpy() @ weights
        if not bool(self.errors.any()):
            return credit, np.zeros_like(credit)
        if self.variance_of_sums is None:
            return credit, np.full_like(credit, np.nan)
        return credit, np.sqrt(self.variance_of_sums(weights))


class PlayedRows(NamedTuple):
    """Input of an estimator: coalitions of one game with their values."""

    masks: Masks
    values: Tensor
    """[rows, outputs]."""
    empty: Tensor
    full: Tensor


class Estimator(Protocol):
    """Estimates credit from the values of coalitions (EXPL)."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """`values` [rows, outputs]; `empty` and `full` [outputs] are the scores of 0 and 1."""
        ...


EstimatorSetting = Annotated[
    Estimator, Block("an estimator, such as GaussianProcess() or WLS()", 4)
]
"""An estimator as a field of settings."""


@dataclass(frozen=True)
class WLS(Checked):
    """Weighted least squares with g(0) and g(1) exact: the Shapley values on all coalitions."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: the design twice, and matrices of players or of coalitions."""
        fewest = min(coalitions // 2, players)
        design = 0 if coalitions // 2 < players else 8 * coalitions * players
        return design + 24 * fewest**2

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Closed form."""
        phi, errors = least_squares(masks, values, empty, full)
        return surrogate(masks, values, empty, torch.from_numpy(phi), torch.from_numpy(errors))


def least_squares(
    masks: Masks, values: Tensor, empty: Tensor, full: Tensor
) -> tuple[Floats, Floats]:
    """Credit and its standard errors, [outputs, M] each."""
    if masks.credit is not None:
        phi = values.numpy().T @ masks.credit.numpy()
        return phi, np.zeros_like(phi)
    base, players = empty.numpy(), masks.rows.shape[1]
    gain = full.numpy() - base
    if players <= 1:
        return np.repeat(gain[:, None], players, 1), np.zeros((len(gain), players))
    # The zero-sum part depends on a pair of complementary coalitions only through the difference
    # of their values, so the two are merged into one row of double weight.
    on, weights, gained, middle = masks.rows, masks.weights, values.numpy() - base, 0.0
    if masks.pair is not None:
        on, weights, middle = on[::2], 2 * weights[::2], 0.5
        gained = (gained[::2] - gained[1::2]) / 2
    share, root = on.sum(1, keepdims=True) / players, np.sqrt(weights)[:, None]
    target = (gained - (share - middle) * gain) * root

    def centred(part: slice) -> Floats:
        """z - |z| / M, weighted, for some of the players."""
        rows = on[:, part].astype(np.float64)
        rows -= share
        rows *= root
        return rows

    shrunk = needs_ridge(masks)
    if shrunk or len(on) < players:
        part, errors = ridge(centred, [*player_blocks(on)], target, shrunk)
        if masks.exact:
            errors = np.zeros_like(part)
    else:
        rows = centred(slice(None))
        inverse = centred_inverse(rows.T @ rows)
        part = (target.T @ rows) @ inverse
        errors = _jackknife(masks, rows, inverse, target - rows @ part.T)
    return gain[:, None] / players + part, errors


@dataclass(frozen=True)
class WLR(Checked):
    """Weighted linear regression with an intercept: g(1) is exact, g(0) is fitted.

    The base value is the constant of g, as in the paper's ablation; the empty coalition takes
    part as an ordinary row with the largest weight. Errors are not known for it.
    """

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: the design, weighted, and in the solver."""
        return 40 * coalitions * players

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Solve with g(1) = f(1) eliminated: regress f(1) - y on the players that are off."""
        players = masks.rows.shape[1]
        if masks.credit is not None:
            return WLS()(masks, values, empty, full)
        rows = np.concatenate([np.zeros((1, players), dtype=bool), masks.rows])
        weights = np.concatenate([[masks.weights.max(initial=1.0)], masks.weights])
        off, root = torch.from_numpy(~rows).double(), torch.from_numpy(weights).sqrt()[:, None]
        lost = full - torch.cat([empty[None], values])
        phi = torch.linalg.lstsq(off * root, lost * root, driver="gelsd").solution.t()
        errors = torch.full_like(phi, 0.0 if players <= 1 else torch.nan)
        return surrogate(masks, values, full - phi.sum(1), phi, errors)


def player_blocks(rows: Bools) -> Iterator[slice]:
    """Players in blocks: 1,000 rows of 20,000 players would take 160 MB at once."""
    step = max(1, _ENTRIES_AT_ONCE // max(1, len(rows)))
    for first in range(0, rows.shape[1], step):
        yield slice(first, min(first + step, rows.shape[1]))


def surrogate(masks: Masks, values: Tensor, base: Tensor, phi: Tensor, errors: Tensor) -> Fit:
    """A `Fit` of this credit, with the weighted R² of the linear surrogate g on the rows."""
    weights = masks.weights
    total = weights.sum()
    if len(values) == 0 or total <= 0:
        return Fit(phi, errors, base, torch.ones_like(base))
    y, credit = values.numpy(), phi.numpy().T
    missed = y - base.numpy()
    step = max(4, _ENTRIES_AT_ONCE // max(1, len(credit)) // 4 * 4)
    for first in range(0, len(missed), step):
        block = slice(first, first + step)
        missed[block] -= masks.rows[block].astype(np.float64) @ credit
    lost = weights @ missed**2
    spread = weights @ (y - weights @ y / total) ** 2
    flat = spread <= 1e-18 * total
    r2 = np.where(flat, 1.0, 1 - lost / np.where(flat, 1.0, spread))
    return Fit(phi, errors, base, torch.from_numpy(r2))


def _jackknife(masks: Masks, rows: Floats, inverse: Floats, residual: Floats) -> Floats:
    """Standard errors [outputs, M] over drawn pairs (a sandwich with leverages).

    `rows` [pairs, M] of the design, the `inverse` of their Gram matrix. Enumerated pairs are no
    draws and add nothing; a stratum of which a share f was drawn counts with 1 - f.
    """
    shape = residual.shape[1], rows.shape[1]
    if masks.exact:
        return np.zeros(shape)
    unknown = np.full(shape, np.nan)
    if masks.pair is None or masks.unseen is None:
        return unknown
    sampled = masks.pair[::2] >= 0
    if np.count_nonzero(sampled) < 2:
        return unknown
    # torch's product takes two thirds of the time of numpy's.
    moved = (torch.from_numpy(rows) @ torch.from_numpy(inverse)).numpy()
    # 1 - leverage of each pair.
    left = np.where(sampled, 1 - np.einsum("ij,ij->i", moved, rows), 1.0)
    if left.min() < 1e-9:
        return unknown
    unseen = np.where(sampled, masks.unseen[::2], 0.0) / left**2
    np.square(moved, out=moved)
    return np.sqrt((residual**2 * unseen[:, None]).T @ moved)


def centred_inverse(gram: Floats) -> Floats:
    """By Cholesky, ten times faster, where only the direction of all ones is missing.

    Centred rows sum to zero, so their Gram matrix lacks that direction; filling it changes
    nothing for the others.
    """
    if not gram.size:
        return gram
    try:
        factor = cholesky(gram + gram.diagonal().mean() / len(gram))
    except np.linalg.LinAlgError:
        factor = np.zeros_like(gram)
    pivots = factor.diagonal()
    if pivots.min() > 1e-5 * pivots.max():
        return inverse_from_cholesky(factor)
    return torch.linalg.pinv(torch.from_numpy(gram), hermitian=True, rtol=_RANK).numpy()


# Fewer rows than players, or about as many: by the eigenvectors of the rows' own Gram matrix.
#
# Plain least squares would interpolate noise. Ridge regression of the zero-sum part shrinks credit
# towards an equal share, with a penalty chosen by generalised cross-validation. Standard errors are
# the posterior standard deviations of the equivalent Bayesian linear model. Rows that were not
# drawn in pairs are interpolated, by the credit of least norm.


def needs_ridge(masks: Masks) -> bool:
    """Whether there are too few drawn pairs for plain least squares."""
    players = masks.rows.shape[1]
    return masks.pair is not None and not masks.exact and len(masks.rows) < 4 * (players - 1)


def ridge(
    centred: Callable[[slice], Floats], blocks: Sequence[slice], target: Floats, shrunk: bool = True
) -> tuple[Floats, Floats]:
    """The zero-sum part of phi and its standard errors, [outputs, M] each.

    `centred` gives [pairs, players] of a block of players: coalitions, one of each pair, and
    `target` [pairs, outputs] is what is left to explain after equal shares; both are weighted.
    Not `shrunk`: without a penalty, and errors are not known.
    """
    y = torch.from_numpy(target)
    players, count = blocks[-1].stop, len(y)
    gram = torch.zeros(count, count, dtype=torch.float64)
    for block in blocks:
        rows = torch.from_numpy(centred(block))
        gram += rows @ rows.t()
    eigenvalues, vectors = torch.linalg.eigh(gram)
    eigenvalues = eigenvalues.clamp(min=0)[:, None]
    projected = vectors.t() @ y
    if shrunk:
        penalties = torch.from_numpy(_PENALTIES) * eigenvalues[-1:]
        factors = penalties / (eigenvalues + penalties)  # of residuals, [pairs, penalties]
        missed = (factors**2).t() @ projected**2
        validated = missed / factors.sum(0)[:, None].clamp(min=1e-9) ** 2
        inverse = 1 / (eigenvalues + penalties[0, validated.argmin(0)])
    else:
        above = eigenvalues > _RANK * eigenvalues[-1:]
        inverse = torch.where(above, 1 / eigenvalues, 0).expand_as(projected)
    weights = projected * inverse
    spread = (projected * weights).sum(0)[:, None] / max(count, 1)
    parts, errors = [], []
    for block in blocks:
        sides = vectors.t() @ torch.from_numpy(centred(block))
        parts.append(weights.t() @ sides)
        left = (1 - 1 / players - inverse.t() @ sides**2).clamp(min=1e-9)
        errors.append((spread * left).sqrt() if shrunk else torch.full_like(left, torch.nan))
    return torch.cat(parts, 1).numpy(), torch.cat(errors, 1).numpy()
