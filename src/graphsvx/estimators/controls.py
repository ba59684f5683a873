"""Least squares with products of players as control variates, for very many coalitions.

A game g of known Shapley values is fitted to the values and subtracted; least squares are left
with v - g, which varies less, and phi(v) = phi(v - g) + phi(g) whatever g is. With z = +1 for
members, -1 for others and s the mean of z, the terms of g are odd:

    z_i                   2 of credit for the player
    z_i s^2, z_i s^4      the slope of a player changes with the size of the coalition
    z_i z_j z_k           triples that go with what is missed; 2 / 3 of credit for each of the three
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.least_squares import WLS, Fit, centred_inverse, surrogate
from graphsvx.estimators.state_tables import Half, crossed_halves, without_sizes
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked

Singles = NDArray[np.float32]

_FITTED = 1 << 13  # pairs that the terms are fitted to
_SCREENED = 1 << 12  # pairs that choose the triples
_PLAYERS = 40  # with the most credit, among which triples are looked for
_TRIPLES = 300
_PAIRS_A_TRIPLE = 40  # at least
_RIDGE = 3e-3
_BLOCK = 1 << 12  # pairs whose terms stay in the cache


@dataclass(frozen=True)
class ControlledWLS(Checked):
    """Weighted least squares on what products of players do not explain of a game."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: least squares', and a matrix of pairs and terms."""
        terms = _TRIPLES + 3 * players
        return WLS().memory(coalitions, players) + 8 * min(coalitions // 2, _FITTED) * terms

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit of the controls in closed form, of the rest by least squares."""
        if masks.exact or not _enough_pairs(masks):
            return WLS()(masks, values, empty, full)
        odd = (values[::2] - values[1::2]).numpy() / 2
        controls = _Controls.of(masks, odd)
        explained = controls.at(masks.rows[::2])
        gain = (full - empty).numpy() - 2 * controls.at_full()
        if masks.local:
            halves = crossed_halves(masks, odd - explained)
            parts = [_of_half(half, masks, gain) for half in halves]
            part = sum(credit for credit, _ in parts) / 2
            errors = np.hypot(*(bars for _, bars in parts)) / 2
        else:
            part, errors = corrected(masks, odd - explained, gain)
        phi = torch.from_numpy(part + controls.credit())
        fit = surrogate(masks, values, empty, phi, torch.from_numpy(errors))
        states = sum(states.count for states in masks.local)
        tables = f" and tables of {states} states of nodes" if states else ""
        return Fit(
            fit.values, fit.errors, fit.base, fit.r2,
            model=f"least squares, {len(controls.triples)} triples{tables} as control variates",
        )  # fmt: skip


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
    if masks.pair is None or masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    on, weights, is_drawn = masks.rows[::2], masks.weights[::2], masks.pair[::2] >= 0
    players = on.shape[1]
    share = on.mean(1, keepdims=True)
    target = odd - (share - 0.5) * gain
    # Rows of one size have the Gram matrix scale (I - 11' / M).
    scale = float(weights @ (share * (1 - share))[:, 0]) * players / (players - 1)
    rows = on[is_drawn] - share[is_drawn]
    weighted = rows * weights[is_drawn, None]
    inverse = centred_inverse(weighted.T @ rows)
    part = inverse @ (weighted.T @ target[is_drawn])
    missed = without_sizes(target[is_drawn] - rows @ part, on[is_drawn])
    listed = on[~is_drawn] - share[~is_drawn]
    left_over = weights[~is_drawn, None] * (target[~is_drawn] - listed @ part)
    part += (listed.T @ left_over + weighted.T @ missed) / scale
    # Jackknife: a pair without its influence on the regression misses more.
    leverage = np.einsum("ij,ij->i", weighted @ inverse, rows)
    unseen = masks.unseen[::2][is_drawn] / np.maximum(1 - leverage, 1e-9) ** 2
    variance = (missed**2 * unseen[:, None]).T @ np.square(weighted, out=weighted) / scale**2
    return gain[:, None] / players + part.T, np.sqrt(variance)


def _of_half(half: Half, masks: Masks, gain: Floats) -> tuple[Floats, Floats]:
    """Credit, with that of the tables, and errors, from half of the pairs."""
    tables = half.tables
    part, errors = corrected(half.of(masks), half.rest, gain - 2 * tables.at_full())
    return part + tables.credit(), errors


@dataclass(frozen=True, eq=False)
class _Controls:
    """g: an odd game with Shapley values in closed form."""

    slopes: Floats
    """Coefficients of z_i, [M, outputs]."""
    squares: Floats
    """Coefficients of z_i s^2, [M, outputs]."""
    fourths: Floats
    """Coefficients of z_i s^4, [M, outputs]."""
    triples: Ids
    """[triples, 3]."""
    coefficients: Floats
    """Of the triples, [triples, outputs]."""

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
        signs = _signs(members)
        players = signs.shape[1]
        squares = signs.mean(1, keepdims=True) ** 2
        target = without_sizes(odd[fitted].astype(np.float32), members)
        terms = [signs, signs * squares, signs * squares**2]
        singles = without_sizes(np.concatenate(terms, 1), members)
        coefficients = _ridge(singles, target)
        missed = target - singles @ coefficients.astype(np.float32)
        screened = slice(None, None, -(-len(missed) // _SCREENED))
        heaviest = np.sort(np.argsort(-np.abs(coefficients[:players]).sum(1))[:_PLAYERS])
        triples = _triples(signs[screened], missed[screened], heaviest)
        triples = triples[: min(_TRIPLES, len(missed) // _PAIRS_A_TRIPLE)]
        products = without_sizes(_products(signs, triples), members)
        coefficients = _ridge(np.concatenate([singles, products], 1), target)
        slopes, on_squares, on_fourths = coefficients[: 3 * players].reshape(3, players, -1)
        return _Controls(slopes, on_squares, on_fourths, triples, coefficients[3 * players :])

    def at(self, members: NDArray[np.bool_]) -> Floats:
        """g at coalitions, [coalitions, outputs]."""
        parts = []
        for first in range(0, len(members), _BLOCK):
            signs = _signs(members[first : first + _BLOCK])
            squares = signs.mean(1, keepdims=True) ** 2
            part = signs @ self.slopes.astype(np.float32)
            part += squares * (signs @ self.squares.astype(np.float32))
            part += squares**2 * (signs @ self.fourths.astype(np.float32))
            part += _products(signs, self.triples) @ self.coefficients.astype(np.float32)
            parts.append(part.astype(np.float64))
        return np.concatenate(parts)

    def at_full(self) -> Floats:
        """g at the full coalition, where every term is 1, [outputs]."""
        terms = (self.slopes, self.squares, self.fourths, self.coefficients)
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
        for place in range(3):
            np.add.at(credit.T, self.triples[:, place], 2 / 3 * self.coefficients)
        return credit


def _credit_of_slopes(players: int, power: int) -> tuple[float, float]:
    """Shapley values of z_i s^power: of player i, and of each other player."""
    height = (2 * np.arange(players + 1) / players - 1) ** power
    # Player i comes after any number of the others, and turns -h(k) into h(k + 1).
    own_credit = float((height[1:] + height[:-1]).mean())
    return own_credit, (2.0 - own_credit) / (players - 1)


def _signs(members: NDArray[np.bool_]) -> Singles:
    signs = members.astype(np.float32)
    signs *= 2
    signs -= 1
    return signs


def _products(signs: Singles, triples: Ids) -> Singles:
    """z_i z_j z_k, [coalitions, triples]."""
    columns = np.ascontiguousarray(signs.T)
    products: Singles = columns[triples[:, 0]]
    products *= columns[triples[:, 1]]
    products *= columns[triples[:, 2]]
    return products.T


def _triples(signs: Singles, missed: Singles, players: Ids) -> Ids:
    """All triples of some players, [triples, 3], those first that go with what is missed."""
    among = np.ascontiguousarray(signs[:, players])
    count = len(players)
    strength = np.zeros((count, count, count))
    for output in missed.T:
        size = max(float(np.abs(output).sum()), 1e-30)
        for i in range(count):
            strength[i] += np.abs((among * (output * among[:, i] / size)[:, None]).T @ among)
    triples = np.array(list(combinations(range(count), 3)), dtype=np.int64).reshape(-1, 3)
    order = np.argsort(-strength[tuple(triples.T)], kind="stable")
    return players[triples[order]]


def _ridge(design: Singles, target: Singles) -> Floats:
    """Coefficients, [terms, outputs]."""
    gram = (design.T @ design).astype(np.float64)
    diagonal = gram.diagonal().copy()
    gram[np.diag_indices(len(gram))] += _RIDGE * diagonal + 1e-12 * diagonal.max(initial=1e-300)
    return _solved(gram, (design.T @ target).astype(np.float64))


def _solved(gram: Floats, right: Floats) -> Floats:
    solution: Floats = np.asarray(np.linalg.solve(gram, right), dtype=np.float64)
    return solution
