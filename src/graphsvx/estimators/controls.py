"""Least squares with control variates, for very many coalitions (cross-fitted).

A game g of known Shapley values is fitted to the values and subtracted; least squares are left
with v - g, which varies less, and phi(v) = phi(v - g) + phi(g) whatever g is. g is a sum of waves
(`waves`), which have more coefficients than can be fitted without seeing their own noise in the
values: they are fitted to one half of the pairs and subtracted from the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, by_size, row_sizes
from graphsvx.estimators.least_squares import WLS, Fit, centred_inverse, surrogate
from graphsvx.estimators.waves import WAVES, Singles, signs_of, train_waves
from graphsvx.masks.base import Masks
from graphsvx.utils.components import components
from graphsvx.utils.constraints import Checked

_CROSSED = 1 << 11  # drawn pairs from which on waves can be fitted to half of them
_FITTED_FOLDS = 1 << 15  # pairs of a half that its controls are fitted to

Number = TypeVar("Number", np.float32, np.float64)


@dataclass(frozen=True)
class ControlledWLS(Checked):
    """Weighted least squares on what control variates do not explain of a game."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: least squares', and those of the control variates."""
        return WLS().memory(coalitions, players) + CrossFit.memory(coalitions, players)

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit of the controls in closed form, of the rest by least squares."""
        if masks.exact or not _enough_pairs(masks):
            return WLS()(masks, values, empty, full)
        drawn_ids = np.flatnonzero(drawn_pairs(masks))
        odd, even = ((values[::2] + sign * values[1::2]).numpy() / 2 for sign in (-1, 1))
        odd[drawn_ids] = without_sizes(odd[drawn_ids], masks.rows[::2][drawn_ids])
        fitted = cross_fit(masks, odd, even - even[drawn_ids].mean(0), drawn_ids)
        part, errors = corrected(masks, fitted.rest, (full - empty).numpy() - 2 * fitted.at_full)
        phi = torch.from_numpy(part + fitted.credit)
        fit = surrogate(masks, values, empty, phi, torch.from_numpy(errors))
        return replace(fit, model=f"least squares with {WAVES} waves as control variates")


def _enough_pairs(masks: Masks) -> bool:
    """Whether so many pairs were drawn that waves can be fitted to half of them."""
    players = masks.rows.shape[1]
    if masks.pair is None or players <= 2 or not components().waves:
        return False
    return int(drawn_pairs(masks).sum()) >= max(_CROSSED, 4 * players + 1)


def corrected(masks: Masks, odd: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """Credit and standard errors, [outputs, M] each, of a game that varies little.

    Coefficients of a regression on drawn pairs alone, and what enumerated pairs add to them: by
    the Gram matrix of all coalitions, which is known, so that only what drawn pairs miss of their
    own regression matters. `odd` [pairs, outputs]: half differences; `gain`: of the ends.
    """
    if masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    on, weights, is_drawn = masks.rows[::2], masks.weights[::2], drawn_pairs(masks)
    players = on.shape[1]
    sampled, others = on[is_drawn], on[~is_drawn]
    share = row_sizes(on)[:, None] / players
    target = odd - (share - 0.5) * gain
    # Rows of one size have the Gram matrix scale (I - 11' / M).
    scale = float(weights @ (share * (1 - share))[:, 0]) * players / (players - 1)
    rows = _centred(sampled)
    weighted = rows * weights[is_drawn, None].astype(np.float32)
    inverse = centred_inverse((weighted.T @ rows).astype(np.float64))
    part = inverse @ (weighted.T @ target[is_drawn].astype(np.float32))
    missed = target[is_drawn] - rows @ part.astype(np.float32)
    missed = without_sizes(missed.astype(np.float32), sampled)
    listed = _centred(others)
    left_over = weights[~is_drawn, None] * (target[~is_drawn] - listed @ part)
    part += (listed.T @ left_over + weighted.T @ missed) / scale
    part -= part.mean(0)  # 0 but for rounding
    # Jackknife: a pair without its influence on the regression misses more.
    leverage = np.einsum("ij,ij->i", weighted @ inverse.astype(np.float32), rows)
    unseen = masks.unseen[::2][is_drawn] / np.maximum(1 - leverage, 1e-9) ** 2
    doubtful = (missed**2 * unseen[:, None]).astype(np.float32)
    variance = (doubtful.T @ np.square(weighted, out=weighted)).astype(np.float64) / scale**2
    return gain[:, None] / players + part.T, np.sqrt(variance)


def _centred(members: Bools) -> Singles:
    """z - |z| / M, of which single precision is plenty where residuals are multiplied by it."""
    rows = members.astype(np.float32)
    rows -= (row_sizes(members)[:, None] / members.shape[1]).astype(np.float32)
    return rows


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Cross-fitted control variates and their residuals."""

    rest: Floats
    """Of half the differences of pairs, by controls that have not seen them, [pairs, outputs]."""
    at_full: Floats
    """Mean of the waves at the full coalition, [outputs]."""
    credit: Floats
    """Mean of their Shapley values, [outputs, M]."""

    @staticmethod
    def memory(coalitions: int, players: int) -> int:
        """Bytes that a fit takes: signs of the pairs of both halves, and their waves."""
        fitted = min(coalitions // 2, 2 * _FITTED_FOLDS)
        return 4 * fitted * players + (1 << 23)


def cross_fit(masks: Masks, odd: Floats, even: Floats, drawn_ids: Ids) -> CrossFit:
    """Waves fitted to half differences.

    `odd` [pairs, outputs], half the differences, is to be explained; `even`, half the sums of
    values, tells which players matter together. Pairs before those that are `drawn_ids` are
    enumerated, and get the mean of the controls of both halves.
    """
    on = masks.rows[::2]
    listed = np.arange(len(on) - len(drawn_ids))
    halves = _even_halves(on, drawn_ids)
    fitted = min(_FITTED_FOLDS, *(len(half) for half in halves))
    waves = train_waves(
        np.stack([signs_of(on[half[:fitted]]) for half in halves]),
        *(
            np.stack([part[half[:fitted]] for half in halves]).astype(np.float32)
            for part in (odd, even)
        ),
    )
    rest = odd.copy()
    for half, wave in enumerate(waves):
        unseen = halves[1 - half]
        rest[unseen] -= wave.at(on[unseen])
        rest[listed] -= wave.at(on[listed]) / 2
    at_full = np.sum([wave.at_full() for wave in waves], axis=0) / 2
    credit = np.sum([wave.credit() for wave in waves], axis=0) / 2
    return CrossFit(rest, at_full, credit)


def _even_halves(on: Bools, drawn_ids: Ids) -> list[Ids]:
    """The drawn pairs in two halves with the same number of pairs of each size."""
    players = on.shape[1]
    size = row_sizes(on)[drawn_ids]
    order = by_size(np.minimum(size, players - size), players)
    return [np.sort(drawn_ids[order[start::2]]) for start in range(2)]


def drawn_pairs(masks: Masks) -> Bools:
    """Which pairs were drawn; those that were not are enumerated."""
    if masks.pair is None:
        raise ValueError("these rows were not drawn as pairs")
    is_drawn: Bools = masks.pair[::2] >= 0
    return is_drawn


def without_sizes(terms: NDArray[Number], members: Bools) -> NDArray[Number]:
    """Odd functions of coalitions, [coalitions, terms], less their means over those of a size.

    An odd function of the size alone gives nobody more credit than others.
    """
    players = members.shape[1]
    size = row_sizes(members)
    stratum = np.minimum(size, players - size)
    # +1 for a coalition, -1 for a complement of one; halves are both.
    side = np.sign(players - 2 * size).astype(np.float32)
    indicators = np.zeros((len(members), players // 2 + 1), dtype=np.float32)
    indicators[np.arange(len(members)), stratum] = side
    counts = np.maximum(np.bincount(stratum, None, indicators.shape[1]), 1)
    means = indicators.T @ terms.astype(np.float32) / counts[:, None].astype(np.float32)
    return terms - (indicators @ means).astype(terms.dtype)
