"""A Gaussian process on the even or the odd part of a game, and the interactions of its draws.

The complement of coalitions maps d_T f(q) to (-1)^|T| d_T f(1 - q). An index with the density g
sees the even part e(S) = (v(S) + v(N - S)) / 2 of a game through g(q) + (-1)^|T| g(1 - q) alone,
and the odd part o(S) = (v(S) - v(N - S)) / 2 through g(q) - (-1)^|T| g(1 - q).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import stdtrit

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.indices import Quadrature
from graphsvx.estimators.parity_kernel import Parity, ParityKernel, fitted_kernel

_SMALLEST = 1e-300
_SAME_NODE = 10  # decimals in which nodes of a quadrature agree


@dataclass(frozen=True, eq=False)
class ParityProcess:
    """A process that has seen one part of a game.

    The even part has an unknown constant, which has no interactions and is fitted. Error bars are
    posterior standard deviations, scaled by how far held-out pairs are missed.
    """

    kernel: ParityKernel
    signs: Floats
    """[pairs, M]: a coalition of each pair, the full one first."""
    part: Floats
    """Even or odd part of the game, [pairs, outputs]."""
    factor: tuple[Floats, bool]
    scale: Floats
    """Variance of the process, [outputs], from held-out pairs."""
    held_out: int

    @staticmethod
    def fitted(parity: Parity, signs: Floats, part: Floats) -> ParityProcess:
        """With the most likely kernel."""
        kernel = fitted_kernel(parity, signs, part)
        factor = kernel.factor(signs)
        scale, _ = _mean_squares(parity, factor, part, len(signs))
        # A kernel fits the pairs that it was learnt on better than others: by how much, each half
        # of the pairs says of the other.
        places = np.arange(len(signs))
        for fold in (0, 1):
            held_out = (places % 2 == fold) & (places > 0)
            learnt_on = places[~held_out]
            order = np.concatenate([learnt_on, places[held_out]])
            half_kernel = fitted_kernel(parity, signs[learnt_on], part[learnt_on])
            seen, missed = _mean_squares(
                parity, half_kernel.factor(signs[order]), part[order], len(learnt_on)
            )
            scale = scale * np.sqrt(np.maximum(missed, seen) / np.maximum(seen, _SMALLEST))
        return ParityProcess(kernel, signs, part, (factor, True), scale, len(signs) // 2)

    def interactions(self, sets: Ids, rule: Quadrature) -> tuple[Floats, Floats]:
        """Values and standard errors of an index for sets [sets, size], [sets, outputs] each."""
        size = sets.shape[1]
        symmetric = symmetrised(rule, self.kernel.parity * (-1) ** size)
        shares = self._shares(sets, symmetric)
        trend = np.ones((len(self.signs), 1 if self.kernel.parity == 1 else 0))
        solved = cho_solve(self.factor, np.concatenate([trend, self.part, shares], 1))
        columns, outputs = trend.shape[1], self.part.shape[1]
        of_trend, of_part = solved[:, :columns], solved[:, columns : columns + outputs]
        of_shares = solved[:, columns + outputs :]
        precision = trend.T @ of_trend
        constant = np.linalg.solve(precision, trend.T @ of_part)
        values = shares.T @ (of_part - of_trend @ constant)
        in_trend = trend.T @ of_shares
        left = self._prior(sets, rule, symmetric) - (shares * of_shares).sum(0)
        left += (in_trend * np.linalg.solve(precision, in_trend)).sum(0)
        wider = stdtrit(self.held_out, 0.975) / stdtrit(np.inf, 0.975)
        errors = wider * np.sqrt(np.maximum(left, 0)[:, None] * self.scale)
        if size == 1 and not (symmetric.nodes % 1).any():
            self._set_known(sets[:, 0], rule, values, errors)
        return values, errors

    def _set_known(self, players: Ids, rule: Quadrature, values: Floats, errors: Floats) -> None:
        """Replace slopes at the ends by differences of coalitions where these were played."""
        size = self.signs.sum(1)
        weight = rule.weights[rule.nodes == 0].sum()
        weight -= self.kernel.parity * rule.weights[rule.nodes == 1].sum()
        empty = self.kernel.parity * self.part[0]
        for sign in (1, -1):
            for pair in np.flatnonzero(size == sign * (2 - self.signs.shape[1])):
                place = players == np.flatnonzero(self.signs[pair] == sign)[0]
                alone = self.part[pair] * (1 if sign == 1 else self.kernel.parity)
                values[place], errors[place] = weight * (alone - empty), 0.0

    def _shares(self, sets: Ids, rule: Quadrature) -> Floats:
        """The index of the kernel as a function of its first coalition, [pairs, sets].

        The multilinear extension of exp(-d(S, T)) is the product over players of m(q) =
        1 - (1 - q) c for those in T and 1 - q c for others, c = 1 - exp(-theta).
        """
        shares = np.zeros((len(self.signs), len(sets)))
        for height, moved in self.kernel.moved():
            slopes = self.signs * moved
            for node, weight in zip(*rule, strict=True):
                factors = np.where(self.signs > 0, 1 - (1 - node) * moved, 1 - node * moved)
                total = height * weight * factors.prod(1)
                shares += total[:, None] * _products(slopes / factors, sets)
        return shares

    def _prior(self, sets: Ids, rule: Quadrature, symmetric: Quadrature) -> Floats:
        """Variance of the index before anything is known of the game, [sets]."""
        p, q = rule.nodes[:, None], symmetric.nodes
        apart = (p + q - 2 * p * q).reshape(-1)
        weights = (rule.weights[:, None] * symmetric.weights).reshape(-1)
        variance = np.zeros(len(sets))
        for height, moved in self.kernel.moved():
            factors = 1 - moved * apart[:, None]
            total = height * weights * factors.prod(1)
            variance += total @ _products(2 * moved / factors, sets)
        return variance


def _products(columns: Floats, sets: Ids) -> Floats:
    """Products of the columns of each set, [rows, sets]."""
    products: Floats = columns[:, sets[:, 0]]
    for place in range(1, sets.shape[1]):
        products *= columns[:, sets[:, place]]
    return products


def _mean_squares(parity: Parity, factor: Floats, part: Floats, seen: int) -> tuple[Floats, Floats]:
    """Of the standardised errors of the first `seen` pairs, and of the others given these."""
    degrees = seen
    if parity == 1:
        leading, degrees = factor[:seen, :seen], seen - 1
        ones = solve_triangular(leading, np.ones(seen), lower=True)
        mean = ones @ solve_triangular(leading, part[:seen], lower=True) / (ones @ ones)
        part = part - mean
    squares = solve_triangular(factor, part, lower=True) ** 2
    others = max(len(part) - seen, 1)
    return squares[:seen].sum(0) / max(degrees, 1), squares[seen:].sum(0) / others


def symmetrised(rule: Quadrature, sign: int) -> Quadrature:
    """g(q) + sign g(1 - q), without nodes of no weight."""
    mirrored = np.concatenate([rule.nodes, 1 - rule.nodes])
    _, place = np.unique(np.round(mirrored, _SAME_NODE), return_inverse=True)
    weights = np.zeros(place.max(initial=-1) + 1)
    np.add.at(weights, place, np.concatenate([rule.weights, sign * rule.weights]))
    counts = np.abs(weights) > 1e-12
    nodes = np.bincount(place, mirrored) / np.bincount(place)
    return Quadrature(nodes[counts], weights[counts])
