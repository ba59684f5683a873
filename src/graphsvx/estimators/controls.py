"""Least squares with control variates, for very many coalitions (cross-fitted).

A game g of known Shapley values is fitted to the values and subtracted; least squares are left
with v - g, which varies less, and phi(v) = phi(v - g) + phi(g) whatever g is. g is a sum of waves,
sines of weighted sums of players: with z = +1 for members and -1 for others, sin(a . z) is odd and
a product over players, so that its Shapley values are integrals of polynomials, in closed form. A
sum of waves is a neural network with one hidden layer: it learns which players matter together,
near each other or not, and with how many others. It has more coefficients than can be fitted
without seeing their own noise in the values: waves are fitted to one half of the pairs and
subtracted from the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, by_size, row_sizes
from graphsvx.estimators.least_squares import WLS, Fit, centred_inverse, surrogate
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked
from graphsvx.utils.context import components

Singles = NDArray[np.float32]

_CROSSED = 1 << 11  # drawn pairs from which on waves can be fitted to half of them
_MOST_FITTED = 1 << 15  # pairs of a half that waves are fitted to
_WAVES = 64
_BATCH = 256  # pairs of a step of training
_STEPS, _EPOCHS = 800, 12  # of training, and passes through the pairs, at most
_RATE = 0.03  # of Adam, to begin with
_MOMENTUM, _SQUARES = 0.9, 0.99  # decay of the moments of Adam
_SPREAD, _AMPLITUDE = 0.8, 0.1  # of a . z and of a wave, before training
_EVEN = 0.5  # weight of sums beside differences
_BLOCK = 1 << 12  # coalitions whose waves stay in the cache


@dataclass(frozen=True)
class ControlledWLS(Checked):
    """Weighted least squares on what control variates do not explain of a game."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: least squares', signs of the pairs of both halves, and waves."""
        fitted = min(coalitions // 2, 2 * _MOST_FITTED)
        return WLS().memory(coalitions, players) + 4 * fitted * players + (1 << 23)

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit of the controls in closed form, of the rest by least squares."""
        players = masks.rows.shape[1]
        if masks.exact or masks.pair is None or players <= 2 or not components().waves:
            return WLS()(masks, values, empty, full)
        drawn_ids = np.flatnonzero(masks.pair[::2] >= 0)
        if len(drawn_ids) < max(_CROSSED, 4 * players + 1):
            return WLS()(masks, values, empty, full)
        on = masks.rows[::2]
        odd, even = ((values[::2] + sign * values[1::2]).numpy() / 2 for sign in (-1, 1))
        odd[drawn_ids] = without_sizes(odd[drawn_ids], on[drawn_ids])
        halves = _even_halves(on, drawn_ids)
        waves = _train(on, odd, even - even[drawn_ids].mean(0), halves)
        # Each half by the waves that have not seen it; enumerated pairs by the mean of both.
        listed = np.arange(len(on) - len(drawn_ids))
        for half, wave in zip(reversed(halves), waves, strict=True):
            odd[half] -= wave.at(on[half])
            odd[listed] -= wave.at(on[listed]) / 2
        at_full, credit = (
            np.sum(parts, axis=0) / 2
            for parts in zip(*((wave.at_full(), wave.credit()) for wave in waves), strict=True)
        )
        part, errors = _regressed(masks, odd, (full - empty).numpy() - 2 * at_full)
        phi = torch.from_numpy(part + credit)
        fit = surrogate(masks, values, empty, phi, torch.from_numpy(errors))
        return replace(fit, model=f"least squares with {_WAVES} waves as control variates")


def _regressed(masks: Masks, odd: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """Credit and standard errors, [outputs, M] each, of a game that varies little.

    Coefficients of a regression on drawn pairs alone, and what enumerated pairs add to them: by
    the Gram matrix of all coalitions, which is known, so that only what drawn pairs miss of their
    own regression matters. `odd` [pairs, outputs]: half differences; `gain`: of the ends.
    """
    if masks.pair is None or masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    on, weights, is_drawn = masks.rows[::2], masks.weights[::2], masks.pair[::2] >= 0
    players, share = on.shape[1], row_sizes(on)[:, None] / on.shape[1]
    # Single precision is plenty where residuals are multiplied by it.
    target, rows = odd - (share - 0.5) * gain, (on - share).astype(np.float32)
    # Rows of one size have the Gram matrix scale (I - 11' / M).
    scale = float(weights @ (share * (1 - share))[:, 0]) * players / (players - 1)
    sampled, weighted = rows[is_drawn], rows * weights[:, None].astype(np.float32)
    of_drawn = weighted[is_drawn]
    inverse = centred_inverse((of_drawn.T @ sampled).astype(np.float64))
    part = inverse @ (of_drawn.T @ target[is_drawn])
    missed = target - rows @ part.astype(np.float32)
    missed[is_drawn] = without_sizes(missed[is_drawn], on[is_drawn])
    part += weighted.T @ missed / scale
    part -= part.mean(0)  # 0 but for rounding
    # Jackknife: a pair without its influence on the regression misses more.
    leverage = np.einsum("ij,ij->i", of_drawn @ inverse.astype(np.float32), sampled)
    unseen = masks.unseen[::2][is_drawn] / np.maximum(1 - leverage, 1e-9) ** 2
    doubtful = (missed[is_drawn] ** 2 * unseen[:, None]).astype(np.float32)
    variance = (doubtful.T @ of_drawn**2).astype(np.float64) / scale**2
    return gain[:, None] / players + part.T, np.sqrt(variance)


def _even_halves(on: Bools, pair_ids: Ids) -> list[Ids]:
    """The drawn pairs in two halves with the same number of pairs of each size."""
    players = on.shape[1]
    size = row_sizes(on)[pair_ids]
    order = by_size(np.minimum(size, players - size), players)
    return [np.sort(pair_ids[order[start::2]]) for start in range(2)]


def without_sizes(odd: Floats, members: Bools) -> Floats:
    """Odd functions of coalitions, [coalitions, outputs], less their means over those of a size.

    An odd function of the size alone gives nobody more credit than others.
    """
    players, size = members.shape[1], row_sizes(members)
    stratum = np.minimum(size, players - size)
    # +1 for a coalition, -1 for a complement of one; halves are both.
    side = np.sign(players - 2 * size)[:, None]
    sums = np.zeros((players // 2 + 1, odd.shape[1]))
    np.add.at(sums, stratum, side * odd)
    means = sums / np.maximum(np.bincount(stratum, None, len(sums)), 1)[:, None]
    return odd - side * means[stratum]


@dataclass(frozen=True, eq=False)
class Waves:
    """g(S) = sum of c sin(a . z) over waves: an odd game."""

    directions: Singles
    """a: [M, waves]."""
    amplitudes: Singles
    """c: [waves, outputs]."""

    def at(self, members: Bools) -> Floats:
        """g at coalitions, [coalitions, outputs]."""
        values = np.empty((len(members), self.amplitudes.shape[1]))
        for first in range(0, len(members), _BLOCK):
            waves = _signs(members[first : first + _BLOCK]) @ self.directions
            values[first : first + _BLOCK] = np.sin(waves, out=waves) @ self.amplitudes
        return values

    def at_full(self) -> Floats:
        """g at the full coalition, [outputs]."""
        waves: Floats = np.sin(self.directions.astype(np.float64).sum(0))
        return waves @ self.amplitudes.astype(np.float64)

    def credit(self) -> Floats:
        """Shapley values of g, [outputs, M].

        If each player is on with probability q and t = 2 q - 1, exp(i a_j z_j) has the mean
        cos a_j + i t sin a_j; player j turns exp(-i a_j) into exp(i a_j). The product over the
        others is a polynomial in t of degree M - 1, which Gauss-Legendre nodes integrate exactly;
        -t gives the conjugate.
        """
        angles = self.directions.T.astype(np.float64)
        cosines, sines = np.cos(angles), np.sin(angles)
        players = angles.shape[1]
        nodes, weights = np.polynomial.legendre.leggauss(max(2, (players + 1) // 2))
        total = np.zeros_like(angles)
        for node, weight in zip(nodes, weights, strict=True):
            factors = cosines + 1j * node * sines
            others = np.ones_like(factors)
            others[:, 1:] = np.cumprod(factors[:, :-1], 1)
            others[:, :-1] *= np.cumprod(factors[:, :0:-1], 1)[:, ::-1]
            total += weight * others.real
        credit: Floats = self.amplitudes.T.astype(np.float64) @ (total * sines)
        return credit


def _train(on: Bools, odd: Floats, even: Floats, halves: list[Ids]) -> list[Waves]:
    """Waves for each half of the pairs, trained together by Adam with a rate that falls to 0.

    `odd` and `even` [pairs, outputs] are half the differences and half the sums of values. Cosines
    of the same weighted sums are fitted to sums: they have no credit, but players that matter
    together do so in sums and differences, and waves that explain both are learnt from fewer pairs.
    Sizes are drawn by the root of the kernel mass, so that squared residuals of all pairs count the
    same in the variance of credit.
    """
    pairs = min(_MOST_FITTED, *(len(half) for half in halves))
    ids = np.stack([half[:pairs] for half in halves])
    signs = np.stack([_signs(on[half]) for half in ids])
    scale, even_scale = (np.sqrt((part[ids] ** 2).mean(1)[:, None]) + 1e-30 for part in (odd, even))
    odd, even = (odd[ids] / scale).astype(np.float32), (even[ids] / even_scale).astype(np.float32)
    players, outputs = on.shape[1], odd.shape[2]
    shape = (2, players + 2 * outputs, _WAVES)
    parameters = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    directions, amplitudes, of_cosines = np.split(parameters, [players, players + outputs], axis=1)
    directions *= _SPREAD / sqrt(players)
    parameters[:, players:] *= _AMPLITUDE
    first, second = np.zeros_like(parameters), np.zeros_like(parameters)  # moments of the gradient
    batches = max(1, pairs // _BATCH)
    steps = min(_STEPS, _EPOCHS * batches)
    for step in range(steps):
        # Draws are independent: in their order, they need no shuffling.
        part = slice(step % batches * _BATCH, (step % batches + 1) * _BATCH)
        angles = signs[:, part] @ directions
        sines, cosines = np.sin(angles), np.cos(angles)
        missed = sines @ amplitudes.transpose(0, 2, 1) - odd[:, part]
        missed_even = cosines @ of_cosines.transpose(0, 2, 1) - even[:, part]
        missed_even *= np.float32(_EVEN)
        slopes = cosines * (missed @ amplitudes) - sines * (missed_even @ of_cosines)
        gradient = np.concatenate(
            [rows.transpose(0, 2, 1) @ part_slopes for rows, part_slopes in
             ((signs[:, part], slopes), (missed, sines), (missed_even, cosines))], 1
        ) / np.float32(missed.shape[1])  # fmt: skip
        first += np.float32(1 - _MOMENTUM) * (gradient - first)
        second += np.float32(1 - _SQUARES) * (gradient**2 - second)
        rate = _RATE * (1 - step / steps) / (1 - _MOMENTUM ** (step + 1))
        root = np.sqrt(second / np.float32(1 - _SQUARES ** (step + 1))) + np.float32(1e-8)
        parameters -= np.float32(rate) * first / root
    return [
        Waves(directions[half].copy(), (amplitudes[half].T * scale[half]).astype(np.float32))
        for half in range(2)
    ]


def _signs(members: Bools) -> Singles:
    """z: +1 for members, -1 for others."""
    signs = members.astype(np.float32)
    signs *= 2
    signs -= 1
    return signs
