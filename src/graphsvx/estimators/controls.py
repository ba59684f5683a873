"""Least squares with control variates, for very many coalitions.

A game g of known Shapley values is fitted to the values and subtracted; least squares are left
with v - g, which varies less, and phi(v) = phi(v - g) + phi(g) whatever g is. With z = +1 for
members, -1 for others and s the mean of z, the terms of g are odd:

    z_i                   2 of credit for the player
    z_i s^2, z_i s^4      the slope of a player changes with the size of the coalition

and waves and tables of states (`estimators.crossed`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, by_size, row_sizes
from graphsvx.estimators.least_squares import WLS, Fit, centred_inverse, surrogate
from graphsvx.estimators.state_tables import StateTables, drawn_pairs, fit_table, without_sizes
from graphsvx.estimators.waves import WAVES, Singles, Waves, signs_of, train_waves
from graphsvx.masks.base import Masks
from graphsvx.utils.components import components
from graphsvx.utils.constraints import Checked

_FITTED = 1 << 13  # pairs that the terms are fitted to
_CROSSED = 1 << 11  # drawn pairs from which on waves and tables can be fitted to half of them
_RIDGE = 3e-3
_BLOCK = 1 << 12  # pairs whose terms stay in the cache


@dataclass(frozen=True)
class ControlledWLS(Checked):
    """Weighted least squares on what control variates do not explain of a game."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: least squares', and those of the control variates."""
        terms = 8 * min(coalitions // 2, _FITTED) * 3 * players
        return WLS().memory(coalitions, players) + terms + CrossFit.memory(coalitions, players)

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit of the controls in closed form, of the rest by least squares."""
        if masks.exact or not _enough_pairs(masks):
            return WLS()(masks, values, empty, full)
        odd = (values[::2] - values[1::2]).numpy() / 2
        controls = _Controls.of(masks, odd)
        if not components().size_controls:
            controls = _Controls(*(0 * part for part in vars(controls).values()))
        rest = odd - controls.at(masks.rows[::2])
        gain, credit = (full - empty).numpy() - 2 * controls.at_full(), controls.credit()
        drawn_ids = np.flatnonzero(drawn_pairs(masks))
        model = "least squares with slopes"
        if len(drawn_ids) >= _CROSSED and (components().waves or components().tables):
            rest[drawn_ids] = without_sizes(rest[drawn_ids], masks.rows[::2][drawn_ids])
            even = (values[::2] + values[1::2]).numpy() / 2
            fitted = cross_fit(masks, rest, even - even[drawn_ids].mean(0), drawn_ids)
            rest, gain, credit = fitted.rest, gain - 2 * fitted.at_full, credit + fitted.credit
            model += f", {describe(masks)}"
        part, errors = corrected(masks, rest, gain)
        phi = torch.from_numpy(part + credit)
        fit = surrogate(masks, values, empty, phi, torch.from_numpy(errors))
        return Fit(fit.values, fit.errors, fit.base, fit.r2, model=f"{model} as control variates")


def _enough_pairs(masks: Masks) -> bool:
    """Whether there are pairs that were drawn, more than enough for a regression on them."""
    players = masks.rows.shape[1]
    return masks.pair is not None and players > 2 and int((masks.pair >= 0).sum()) > 8 * players


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
class _Controls:
    """g: an odd game with Shapley values in closed form."""

    slopes: Floats
    """Coefficients of z_i, [M, outputs]."""
    squares: Floats
    """Coefficients of z_i s^2, [M, outputs]."""
    fourths: Floats
    """Coefficients of z_i s^4, [M, outputs]."""

    @staticmethod
    def of(masks: Masks, odd: Floats) -> _Controls:
        """Fitted to some of the drawn pairs, given by half the differences of their values.

        Whatever depends on the size alone gives no credit, and is left out on both sides.
        """
        if masks.pair is None:
            raise ValueError("these rows were not drawn as pairs")
        fitted = np.flatnonzero(masks.pair[::2] >= 0)
        fitted = fitted[:: -(-len(fitted) // _FITTED)]
        members = masks.rows[::2][fitted]
        signs = signs_of(members)
        squares = signs.mean(1, keepdims=True) ** 2
        target = without_sizes(odd[fitted].astype(np.float32), members)
        terms = [signs, signs * squares, signs * squares**2]
        singles = without_sizes(np.concatenate(terms, 1), members)
        return _Controls(*_ridge(singles, target).reshape(3, members.shape[1], -1))

    def at(self, members: NDArray[np.bool_]) -> Floats:
        """g at coalitions, [coalitions, outputs]."""
        parts = []
        for first in range(0, len(members), _BLOCK):
            signs = signs_of(members[first : first + _BLOCK])
            squares = signs.mean(1, keepdims=True) ** 2
            part = signs @ self.slopes.astype(np.float32)
            part += squares * (signs @ self.squares.astype(np.float32))
            part += squares**2 * (signs @ self.fourths.astype(np.float32))
            parts.append(part.astype(np.float64))
        return np.concatenate(parts)

    def at_full(self) -> Floats:
        """g at the full coalition, where every term is 1, [outputs]."""
        terms = (self.slopes, self.squares, self.fourths)
        total: Floats = np.concatenate(terms).sum(0)
        return total

    def credit(self) -> Floats:
        """Shapley values of g, [outputs, M]."""
        players = len(self.squares)
        credit = 2 * self.slopes.T
        for power, coefficients in ((2, self.squares), (4, self.fourths)):
            own_credit, other_credit = _credit_of_slopes(players, power)
            shares = (own_credit - other_credit) * coefficients.T
            credit += other_credit * coefficients.sum(0)[:, None] + shares
        return credit


def _credit_of_slopes(players: int, power: int) -> tuple[float, float]:
    """Shapley values of z_i s^power: of player i, and of each other player."""
    height = (2 * np.arange(players + 1) / players - 1) ** power
    # Player i comes after any number of the others, and turns -h(k) into h(k + 1).
    own_credit = float((height[1:] + height[:-1]).mean())
    return own_credit, (2.0 - own_credit) / (players - 1)


def _ridge(design: Singles, target: Singles) -> Floats:
    """Coefficients, [terms, outputs]."""
    gram = (design.T @ design).astype(np.float64)
    diagonal = gram.diagonal().copy()
    gram[np.diag_indices(len(gram))] += _RIDGE * diagonal + 1e-12 * diagonal.max(initial=1e-300)
    return _solved(gram, (design.T @ target).astype(np.float64))


def _solved(gram: Floats, right: Floats) -> Floats:
    solution: Floats = np.asarray(np.linalg.solve(gram, right), dtype=np.float64)
    return solution


# Control variates that are fitted to one half of the drawn pairs and subtracted from the other.
#
# Waves and tables of states have more coefficients than can be fitted without seeing their own
# noise in the values. What they leave of pairs that they have not seen is honest.


_FITTED_FOLDS = 1 << 15  # pairs of a half that its controls are fitted to


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Odd games of known Shapley values, and what they leave."""

    rest: Floats
    """Of half the differences of pairs, by controls that have not seen them, [pairs, outputs]."""
    at_full: Floats
    """Mean of the controls at the full coalition, [outputs]."""
    credit: Floats
    """Mean of their Shapley values, [outputs, M]."""

    @staticmethod
    def memory(coalitions: int, players: int) -> int:
        """Bytes that a fit takes: signs of the pairs of both halves, and their waves."""
        fitted = min(coalitions // 2, 2 * _FITTED_FOLDS)
        return 4 * fitted * players + (1 << 23)


def cross_fit(masks: Masks, missed: Floats, even: Floats, drawn_ids: Ids) -> CrossFit:
    """Waves, and tables of states where these are known, fitted to half differences.

    `missed` [pairs, outputs] is to be explained; `even`, half the sums of values, tells which
    players matter together. Pairs before those that are `drawn_ids` are enumerated, and get the
    mean of the controls of both halves.
    """
    on = masks.rows[::2]
    listed = np.arange(len(on) - len(drawn_ids))
    halves = _even_halves(on, drawn_ids)
    fitted = min(_FITTED_FOLDS, *(len(half) for half in halves))
    waves = train_waves(
        np.stack([signs_of(on[half[:fitted]]) for half in halves]),
        *(
            np.stack([part[half[:fitted]] for half in halves]).astype(np.float32)
            for part in (missed, even)
        ),
    )
    if not components().waves:
        waves = [Waves(wave.directions, 0 * wave.amplitudes) for wave in waves]
    # What controls leave of the pairs that they are fitted to, and of those of the other half.
    left = [missed[half[:fitted]] for half in halves]
    rest = [missed[pairs] for pairs in (*halves, listed)]
    for half, wave in enumerate(waves):
        left[half] -= wave.at(on[halves[half][:fitted]])
        rest[1 - half] -= wave.at(on[halves[1 - half]])
        rest[2] -= wave.at(on[listed]) / 2
    # The pairs in the order of `rest`: their coalitions, then their complements.
    ordered = np.concatenate([*halves, listed])
    coalitions = 2 + 2 * ordered + np.arange(2)[:, None]
    ends = np.cumsum([0, *(len(part) for part in rest)])
    tables: list[Floats] = []
    for states in masks.local:
        numbers = states.number.take(coalitions).astype(np.intp)
        parts = [(numbers[0, i:j], numbers[1, i:j]) for i, j in pairwise(ends)]
        mean = np.zeros((states.count, missed.shape[1]))
        for half in range(2):
            first, second = parts[half]
            table = fit_table(first[:fitted], second[:fitted], left[half], states.count)
            _subtract(table, *parts[1 - half], rest[1 - half])
            mean += table / 2
        _subtract(mean, *parts[2], rest[2])
        tables.append(mean)
    in_order = np.empty_like(missed)
    in_order[ordered] = np.concatenate(rest)
    at_full = np.sum([wave.at_full() for wave in waves], axis=0) / 2
    credit = np.sum([wave.credit() for wave in waves], axis=0) / 2
    if masks.local:
        of_nodes = StateTables(masks.local, tables)
        at_full, credit = at_full + of_nodes.at_full(), credit + of_nodes.credit()
    return CrossFit(in_order, at_full, credit)


def _even_halves(on: Bools, drawn_ids: Ids) -> list[Ids]:
    """The drawn pairs in two halves with the same number of pairs of each size."""
    players = on.shape[1]
    size = row_sizes(on)[drawn_ids]
    order = by_size(np.minimum(size, players - size), players)
    return [np.sort(drawn_ids[order[start::2]]) for start in range(2)]


def _subtract(table: Floats, first: Ids, second: Ids, rest: Floats) -> None:
    for output, column in enumerate(np.ascontiguousarray(table.T)):
        rest[:, output] -= column.take(first) - column.take(second)


def describe(masks: Masks) -> str:
    """The controls in words."""
    states = sum(states.count for states in masks.local)
    return f"{WAVES} waves" + (f" and tables of {states} states of nodes" if states else "")
