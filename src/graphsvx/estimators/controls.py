"""Least squares with products of players as control variates, for very many coalitions.

A game g of known Shapley values is fitted to the values and subtracted; least squares are left
with v - g, which varies less, and phi(v) = phi(v - g) + phi(g) whatever g is. With z = +1 for
members, -1 for others and s the mean of z, the terms of g are odd:

    z_i s^2, z_i s^4      the slope of a player changes with the size of the coalition
    z_i z_j z_k           triples that go with what is missed; 2 / 3 of credit for each of the three
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.least_squares import WLS, Fit, least_squares, surrogate
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
        if masks.pair is None or masks.exact or masks.rows.shape[1] < 3:
            return WLS()(masks, values, empty, full)
        odd = (values[::2] - values[1::2]).numpy() / 2
        controls = _Controls.of(masks, odd, (full - empty).numpy() / 2)
        explained = torch.from_numpy(controls.at(masks.rows[::2]))
        rest = values.clone()
        rest[::2] -= explained
        rest[1::2] += explained
        top = torch.from_numpy(controls.at_full())
        part, errors = least_squares(masks, rest, empty + top, full - top)
        phi = torch.from_numpy(part + controls.credit())
        fit = surrogate(masks, values, empty, phi, torch.from_numpy(errors))
        return Fit(
            fit.values, fit.errors, fit.base, fit.r2,
            model=f"least squares, {len(controls.triples)} triples as control variates",
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Controls:
    """g: an odd game with Shapley values in closed form."""

    squares: Floats
    """Coefficients of z_i s^2, [M, outputs]."""
    fourths: Floats
    """Coefficients of z_i s^4, [M, outputs]."""
    triples: Ids
    """[triples, 3]."""
    coefficients: Floats
    """Of the triples, [triples, outputs]."""

    @staticmethod
    def of(masks: Masks, odd: Floats, top: Floats) -> _Controls:
        """Fitted to some of the pairs, given by half the differences of their values.

        Least squares see v - g through all pairs, and err by what they miss of drawn ones: terms
        and values are taken less their own least squares fit, and compared on drawn pairs.
        """
        if masks.pair is None:
            raise ValueError("these rows were not drawn as pairs")
        fitted_pairs = slice(None, None, -(-len(odd) // _FITTED))
        signs = _signs(masks.rows[::2][fitted_pairs])
        players = signs.shape[1]
        share = signs.mean(1, keepdims=True)
        root = np.sqrt(masks.weights[::2][fitted_pairs] / masks.weights.mean()).astype(np.float32)
        linear = _LinearPart((signs - share) * root[:, None])
        is_drawn = masks.pair[::2][fitted_pairs] >= 0

        def rest(terms: Singles, ends: Floats | float) -> Singles:
            """Terms less their least squares fit with exact ends, on drawn pairs."""
            return linear.rest((terms - share * np.float32(ends)) * root[:, None])[is_drawn]

        target = rest(odd[fitted_pairs].astype(np.float32), top)
        sizes = rest(np.concatenate([signs * share**2, signs * share**4], 1), 1.0)
        missed = target - sizes @ _ridge(sizes, target).astype(np.float32)
        missed *= root[is_drawn, None]
        screened = slice(None, None, -(-len(missed) // _SCREENED))
        heaviest = np.sort(np.argsort(-linear.size(odd[fitted_pairs]))[:_PLAYERS])
        triples = _triples(signs[is_drawn][screened], missed[screened], heaviest)
        triples = triples[: min(_TRIPLES, len(missed) // _PAIRS_A_TRIPLE)]
        design = np.concatenate([sizes, rest(_products(signs, triples), 1.0)], 1)
        coefficients = _ridge(design, target)
        return _Controls(
            coefficients[:players],
            coefficients[players : 2 * players],
            triples,
            coefficients[2 * players :],
        )

    def at(self, members: NDArray[np.bool_]) -> Floats:
        """g at coalitions, [coalitions, outputs]."""
        parts = []
        for first in range(0, len(members), _BLOCK):
            signs = _signs(members[first : first + _BLOCK])
            squares = signs.mean(1, keepdims=True) ** 2
            part = squares * (signs @ self.squares.astype(np.float32))
            part += squares**2 * (signs @ self.fourths.astype(np.float32))
            part += _products(signs, self.triples) @ self.coefficients.astype(np.float32)
            parts.append(part.astype(np.float64))
        return np.concatenate(parts)

    def at_full(self) -> Floats:
        """g at the full coalition, where every term is 1, [outputs]."""
        total: Floats = np.concatenate([self.squares, self.fourths, self.coefficients]).sum(0)
        return total

    def credit(self) -> Floats:
        """Shapley values of g, [outputs, M]."""
        players = len(self.squares)
        credit = np.zeros((self.squares.shape[1], players))
        for power, coefficients in ((2, self.squares), (4, self.fourths)):
            own_credit, other_credit = _credit_of_slopes(players, power)
            shares = (own_credit - other_credit) * coefficients.T
            credit += other_credit * coefficients.sum(0)[:, None] + shares
        for place in range(3):
            np.add.at(credit.T, self.triples[:, place], 2 / 3 * self.coefficients)
        return credit


@dataclass(frozen=True, eq=False)
class _LinearPart:
    """Least squares on coalitions, centred and weighted, [pairs, M]."""

    rows: Singles

    @cached_property
    def _gram(self) -> Floats:
        gram: Floats = (self.rows.T @ self.rows).astype(np.float64)
        # Centred rows lack the direction of all ones; filling it changes nothing for the others.
        return gram + gram.diagonal().mean() / len(gram)

    def _solve(self, terms: Singles) -> Floats:
        return _solved(self._gram, (self.rows.T @ terms).astype(np.float64))

    def rest(self, terms: Singles) -> Singles:
        """What is left of terms [pairs, terms]."""
        left: Singles = terms - self.rows @ self._solve(terms).astype(np.float32)
        return left

    def size(self, terms: Floats) -> Floats:
        """Absolute coefficients of players, over all terms, [M]."""
        sizes: Floats = np.abs(self._solve(terms.astype(np.float32))).sum(1)
        return sizes


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
