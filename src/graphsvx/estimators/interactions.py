"""Interactions of players: exact from the states of a game, estimated from pairs elsewhere.

A *state* (R, B) of a game stands for all coalitions that contain R and avoid B; where states cover
all coalitions, each index is a weighted sum over them, with closed-form weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import stdtrit
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.errors import UnsupportedError
from graphsvx.estimators.covariance import LEAST, inverse_from_cholesky
from graphsvx.estimators.indices import KSII, SII, Index, Quadrature
from graphsvx.masks.base import Masks

MOST_PLAYERS = {2: 64, 3: 24}
"""Players whose pairs, or pairs and triples, are listed: the heaviest."""
_SEEN = 768  # pairs of coalitions that a process sees
# Triples are differences of eight values, of which held-out pairs tell less: chosen on other games
# than those that coverage is measured on.
_WIDER_WITH_TRIPLES = 1.5
_FITTED_PAIRS = 320  # pairs of coalitions that a kernel is chosen by
_MEAN_LENGTHS = np.geomspace(0.02, 3.0, 8)  # mean theta that is tried
_JITTER = 1e-10
_STEPS = 30  # of L-BFGS: more change little
_LOG_LENGTHS = (-7.0, 2.5)  # bounds of log theta: no effect, and none but at once
_APART, _LEVEL = 1.0, 9.0  # variances of log theta among players, and of its mean

Parity = Literal[1, -1]
"""1: the even part of a game, -1: its odd part."""


@dataclass(frozen=True, eq=False)
class SetValues:
    """Values of an index for sets of players of one size."""

    members: Ids
    """[sets, size], ascending in each row."""
    values: Floats
    """[sets, outputs]."""
    errors: Floats
    """Standard errors, [sets, outputs]: 0 where exact."""


def interactions(
    masks: Masks,
    values: Tensor,
    empty: Tensor,
    full: Tensor,
    *,
    index: Index,
    order: int,
    credit: Floats,
    errors: Floats,
) -> list[SetValues]:
    """Interactions of up to `order` players, by size, from the evaluated coalitions of a game.

    `credit` and `errors` [M, outputs] are the Shapley values, which choose the players whose sets
    are listed where there are many. Where coalitions do not tell the index, the even and the odd
    part of the game are taken for draws of two Gaussian processes.
    """
    y, at_empty, at_full, players = values.numpy(), empty.numpy(), full.numpy(), len(credit)
    listed = heaviest(credit, MOST_PLAYERS.get(order, players))
    states = _states(masks, y, at_empty, at_full)
    if states is not None:
        return exact_interactions(*states, index=index, order=order, listed=listed)
    if masks.pair is None:
        raise UnsupportedError(
            "interactions are estimated from pairs of coalitions and their complements; "
            "use mask=Auto() or Paired()"
        )
    rows, first, second = masks.rows[: 2 * _SEEN : 2], y[: 2 * _SEEN : 2], y[1 : 2 * _SEEN : 2]
    signs = np.concatenate([np.ones((1, players)), 2.0 * rows - 1])
    process: dict[Parity, ParityProcess] = {}

    def part_of_index(parity: Parity, sets: Ids) -> tuple[Floats, Floats]:
        size = sets.shape[1]
        rule = index(size, order).quadrature()
        symmetric = symmetrised(rule, parity * (-1) ** size)
        if not len(symmetric.nodes):
            return np.zeros((len(sets), y.shape[1])), np.zeros(y.shape[1])
        if (size, parity) == (1, -1) and _same(symmetric, symmetrised(SII()(1, 1).quadrature(), 1)):
            return credit, errors  # Shapley values depend on the odd part alone
        if parity not in process:
            ends = (at_full + parity * at_empty)[None]
            part = np.concatenate([ends, first + parity * second]) / 2
            process[parity] = ParityProcess.fitted(parity, signs, part)
        return process[parity].interactions(sets, rule)

    by_size = []
    for size in range(1, order + 1):
        sets = _sets(listed if size > 1 else np.arange(players), size)
        even, even_errors = part_of_index(1, sets)
        odd, odd_errors = part_of_index(-1, sets)
        total_errors = np.hypot(even_errors, odd_errors)
        if size == 3 or (isinstance(index, KSII) and size == 1 and order == 3):
            total_errors *= _WIDER_WITH_TRIPLES  # they are, or contain, triples
        by_size.append(SetValues(sets, even + odd, total_errors))
    return by_size


def heaviest(credit: Floats, most: int) -> Ids:
    """The players with the most absolute credit, ascending ids."""
    weight = np.abs(credit).max(1, initial=0.0)
    return np.sort(np.argsort(-weight, kind="stable")[:most])


def _states(
    masks: Masks, values: Floats, empty: Floats, full: Floats
) -> tuple[Bools, Bools, Floats] | None:
    """Members, boundary and values of states that cover all coalitions; None: they do not."""
    if masks.credit is not None:
        counts = masks.credit.any(1).numpy()
        return masks.rows[counts], (masks.credit < 0).numpy()[counts], values[counts]
    if not masks.exact:
        return None
    ends = np.zeros((2, masks.rows.shape[1]), dtype=bool)
    ends[1] = True
    rows = np.concatenate([ends, masks.rows])
    return rows, ~rows, np.concatenate([empty[None], full[None], values])


def exact_interactions(
    members: Bools, boundary: Bools, values: Floats, *, index: Index, order: int, listed: Ids
) -> list[SetValues]:
    """The index for all sets of up to `order` of the listed players, from states.

    members, boundary: [states, M]; values: [states, outputs]. Sets of one player are listed for
    all players.
    """
    r, b = members.sum(1), boundary.sum(1)

    def weights(size: int) -> list[Floats]:
        """(-1)^outside W of states with 0, 1, ... `size` of a set's players in R, others in B."""
        by_inside = []
        for inside in range(size + 1):
            x, y = r - inside, b - (size - inside)
            weight = index(size, order).of_states(np.maximum(x, 0), np.maximum(y, 0))
            signed = (-1.0) ** (size - inside) * weight
            by_inside.append(np.where((x >= 0) & (y >= 0), signed, 0.0))
        return by_inside

    outside, inside = (weight[:, None] * values for weight in weights(1))
    everyone = np.arange(members.shape[1])[:, None]
    by_size = [(everyone, members.T @ inside + boundary.T @ outside)]
    on, off = members[:, listed].astype(np.float64), boundary[:, listed].astype(np.float64)
    for size in range(2, order + 1):
        places = _sets(np.arange(len(listed)), size)
        sums = [_sums(on, off, [w * y for w in weights(size)], places) for y in values.T]
        by_size.append((listed[places], np.stack(sums, 1)))
    return [SetValues(sets, values, np.zeros_like(values)) for sets, values in by_size]


def _sets(listed: Ids, size: int) -> Ids:
    return np.array(list(combinations(listed.tolist(), size)), dtype=np.int64).reshape(-1, size)


def _sums(on: Floats, off: Floats, weights: list[Floats], sets: Ids) -> Floats:
    """Sums over states of weights by the number of a set's players that are members, [sets]."""
    if sets.shape[1] == 2:
        none, mixed, two = (weight[:, None] for weight in weights)
        across = on.T @ (mixed * off)
        pairs: Floats = on.T @ (two * on) + off.T @ (none * off) + across + across.T
        return pairs[tuple(sets.T)]
    sums = np.zeros(len(sets))
    for player in np.unique(sets[:, 0]):
        mine = sets[:, 0] == player
        left = [on[:, player] * w + off[:, player] * v for v, w in pairwise(weights)]
        sums[mine] = _sums(on, off, left, sets[mine, 1:])
    return sums


def _same(first: Quadrature, second: Quadrature) -> bool:
    return all(
        a.shape == b.shape and np.allclose(a, b, atol=1e-12)
        for a, b in zip(first, second, strict=True)
    )


# A Gaussian process on the even or the odd part of a game, and the interactions of its draws.
#
# The complement of coalitions maps d_T f(q) to (-1)^|T| d_T f(1 - q). An index with the density g
# sees the even part e(S) = (v(S) + v(N - S)) / 2 of a game through g(q) + (-1)^|T| g(1 - q) alone,
# and the odd part o(S) = (v(S) - v(N - S)) / 2 through g(q) - (-1)^|T| g(1 - q).


@dataclass(frozen=True, eq=False)
class ParityKernel:
    """Covariance of one part: a product over players, with the sign of its parity.

    k(S, T) = exp(-d(S, T)) + parity exp(-d(S, N - T)), where the distance d adds theta_i where S
    and T differ in player i.
    """

    parity: Parity
    lengths: Floats
    """theta, [M]: how fast the game changes with each player."""

    @staticmethod
    def fitted(parity: Parity, signs: Floats, part: Floats) -> ParityKernel:
        """The most likely one for values of one part of a game, [pairs, outputs].

        By L-BFGS, from the best of some: players change the game alike or as much as its values
        say, and fast or slowly. Logarithms of theta scatter about their first mean.
        """
        count, players = signs.shape
        seen = np.unique(np.linspace(0, count - 1, min(count, _FITTED_PAIRS)).astype(np.int64))
        signs, part = signs[seen], part[seen]
        part = part[:, np.ptp(part, 0) > 0]
        relevance = _relevance(parity, signs, part)
        kernels = [
            ParityKernel(parity, players * mean * shape / shape.sum())
            for shape in (np.ones(players), np.sqrt(relevance), relevance)
            for mean in _MEAN_LENGTHS
        ]
        if not part.shape[1]:  # the same at all pairs
            return kernels[0]
        start = np.log(min(kernels, key=lambda kernel: kernel.misfit(signs, part)[0]).lengths)

        def loss(logs: Floats) -> tuple[float, Floats]:
            misfit, slope = ParityKernel(parity, np.exp(logs)).misfit(signs, part, slopes=True)
            centred, level = logs - logs.mean(), logs.mean() - start.mean()
            misfit += (centred @ centred / _APART + level**2 / _LEVEL) / 2
            return misfit, slope + centred / _APART + level / (_LEVEL * players)

        from scipy.optimize import minimize  # noqa: PLC0415  (slow to import, seldom needed)

        bounds, most = [_LOG_LENGTHS] * players, {"maxiter": _STEPS}
        start = start.clip(*_LOG_LENGTHS)
        fitted = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=most)
        return ParityKernel(parity, np.exp(fitted.x))

    def products(self, signs: Floats) -> tuple[Floats, Floats]:
        """exp(-d(S, T)) and parity exp(-d(S, N - T)) of coalitions, as signs [pairs, M]."""
        inner, total = (signs * self.lengths) @ signs.T, self.lengths.sum()
        return np.exp((inner - total) / 2), self.parity * np.exp((-inner - total) / 2)

    def factor(self, signs: Floats) -> Floats:
        """Lower Cholesky factor of the covariance of coalitions."""
        gram = np.add(*self.products(signs)) + _JITTER * np.eye(len(signs))
        return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)

    @property
    def moved(self) -> Floats:
        """1 - exp(-theta), [M]; below 1, so that each player's factor can be divided by."""
        moved: Floats = -np.expm1(-self.lengths)
        return moved

    def misfit(self, signs: Floats, part: Floats, slopes: bool = False) -> tuple[float, Floats]:
        """Negative log likelihood, scale (and mean, if even) integrated out, and its slopes.

        By log theta, [M]; zeros if they are not wanted.
        """
        none = np.zeros(len(self.lengths))
        try:
            factor = self.factor(signs)
        except np.linalg.LinAlgError:
            return 1e10, none
        rest, length = _whitened(self.parity, factor, part)
        energy, count = np.maximum((rest**2).sum(0), LEAST), len(signs) - (self.parity == 1)
        misfit = np.log(factor.diagonal()).sum() + np.log(length) / 2
        misfit += np.log(energy).mean() * count / 2
        if not slopes:
            return float(misfit), none
        inverse = inverse_from_cholesky(factor)
        if self.parity == 1:
            inverse = inverse - np.multiply.outer(inverse.sum(0), inverse.sum(0)) / length
        solved = inverse @ part
        pull = (inverse - count * (solved / energy) @ solved.T / part.shape[1]) / 2
        same, opposite = self.products(signs)
        differing = np.einsum("ki,ki->i", signs, ((same - opposite) * pull) @ signs)
        slope = self.lengths / 2 * (differing - ((same + opposite) * pull).sum())
        return float(misfit), slope


def _whitened(
    parity: Parity, factor: Floats, columns: Floats, seen: int | None = None
) -> tuple[Floats, float]:
    """factor^-1 columns, and the precision of a constant, which is taken off an even part.

    The constant is fitted to the first `seen` pairs; None: to all. An odd part has none.
    """
    ones = np.ones((len(factor), 1))
    whitened = solve_triangular(factor, np.concatenate([ones, columns], 1), lower=True)
    trend, rest = whitened[:, :1], whitened[:, 1:]
    if parity == -1:
        return rest, 1.0
    length = float((trend[:seen] ** 2).sum())
    return rest - trend * (trend[:seen].T @ rest[:seen] / length), length


def _relevance(parity: Parity, signs: Floats, part: Floats) -> Floats:
    """How much the part changes with each player: alone (odd), or in products with others."""
    centred = part - part.mean(0) if parity == 1 else part
    others = signs.sum(1, keepdims=True) if parity == 1 else 1.0
    slopes = (signs * others).T @ centred / len(signs)
    weight = np.sqrt((slopes**2).sum(1))
    relevance: Floats = weight / max(weight.max(), LEAST) + 0.05
    return relevance


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
    factor: Floats
    scale: Floats
    """Variance of the process, [outputs], from held-out pairs."""
    held_out: int

    @staticmethod
    def fitted(parity: Parity, signs: Floats, part: Floats) -> ParityProcess:
        """With the most likely kernel."""
        kernel = ParityKernel.fitted(parity, signs, part)
        factor = kernel.factor(signs)
        scale, _ = _mean_squares(parity, factor, part, len(signs))
        # A kernel fits the pairs that it was learnt on better than others: by how much, each half
        # of the pairs says of the other.
        places = np.arange(len(signs))
        for fold in (0, 1):
            held_out = (places % 2 == fold) & (places > 0)
            learnt_on = places[~held_out]
            order = np.concatenate([learnt_on, places[held_out]])
            half_kernel = ParityKernel.fitted(parity, signs[learnt_on], part[learnt_on])
            seen, missed = _mean_squares(
                parity, half_kernel.factor(signs[order]), part[order], len(learnt_on)
            )
            scale = scale * np.sqrt(np.maximum(missed, seen) / np.maximum(seen, LEAST))
        return ParityProcess(kernel, signs, part, factor, scale, len(signs) // 2)

    def interactions(self, sets: Ids, rule: Quadrature) -> tuple[Floats, Floats]:
        """Values and standard errors of an index for sets [sets, size], [sets, outputs] each."""
        size = sets.shape[1]
        symmetric = symmetrised(rule, self.kernel.parity * (-1) ** size)
        columns = np.concatenate([self._shares(sets, symmetric), self.part], 1)
        whitened, _ = _whitened(self.kernel.parity, self.factor, columns)
        shares, part = whitened[:, : len(sets)], whitened[:, len(sets) :]
        left = self._prior(sets, rule, symmetric) - (shares**2).sum(0)
        wider = stdtrit(self.held_out, 0.975) / stdtrit(np.inf, 0.975)
        return shares.T @ part, wider * np.sqrt(np.maximum(left, 0)[:, None] * self.scale)

    def _shares(self, sets: Ids, rule: Quadrature) -> Floats:
        """The index of the kernel as a function of its first coalition, [pairs, sets].

        The multilinear extension of exp(-d(S, T)) is the product over players of m(q) =
        1 - (1 - q) c for those in T and 1 - q c for others, c = 1 - exp(-theta).
        """
        shares, moved = np.zeros((len(self.signs), len(sets))), self.kernel.moved
        for node, weight in zip(*rule, strict=True):
            factors = np.where(self.signs > 0, 1 - (1 - node) * moved, 1 - node * moved)
            products = (self.signs * moved / factors)[:, sets].prod(2)
            shares += (weight * factors.prod(1))[:, None] * products
        return shares

    def _prior(self, sets: Ids, rule: Quadrature, symmetric: Quadrature) -> Floats:
        """Variance of the index before anything is known of the game, [sets]."""
        p, q = rule.nodes[:, None], symmetric.nodes
        apart = (p + q - 2 * p * q).reshape(-1)
        weights = (rule.weights[:, None] * symmetric.weights).reshape(-1)
        factors = 1 - self.kernel.moved * apart[:, None]
        products = (2 * self.kernel.moved / factors)[:, sets].prod(2)
        variance: Floats = (weights * factors.prod(1)) @ products
        return variance


def _mean_squares(parity: Parity, factor: Floats, part: Floats, seen: int) -> tuple[Floats, Floats]:
    """Of the standardised errors of the first `seen` pairs, and of the others given these."""
    squares = _whitened(parity, factor, part, seen)[0] ** 2
    return (
        squares[:seen].sum(0) / max(seen - (parity == 1), 1),
        squares[seen:].sum(0) / max(len(part) - seen, 1),
    )


def symmetrised(rule: Quadrature, sign: int) -> Quadrature:
    """g(q) + sign g(1 - q), without nodes of no weight."""
    mirrored = np.concatenate([rule.nodes, 1 - rule.nodes])
    _, place = np.unique(np.round(mirrored, 10), return_inverse=True)  # but for rounding
    weights = np.zeros(place.max(initial=-1) + 1)
    np.add.at(weights, place, np.concatenate([rule.weights, sign * rule.weights]))
    counts = np.abs(weights) > 1e-12
    nodes = np.bincount(place, mirrored) / np.bincount(place)
    return Quadrature(nodes[counts], weights[counts])
