"""Interactions of players: exact from the states of a game, estimated from pairs elsewhere.

A *state* (R, B) of a game stands for all coalitions that contain R and avoid B; where states cover
all coalitions, each index is a weighted sum over them, with closed-form weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import bernoulli, roots_legendre, stdtrit
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.errors import BudgetError, UnsupportedError
from graphsvx.estimators.indices import KSII, SII, Index
from graphsvx.masks.base import Masks

MOST_PLAYERS = {2: 64, 3: 24}
"""Players whose pairs, or pairs and triples, are listed: the heaviest."""
_FITTED_PAIRS = 160  # pairs of coalitions that lengthscales are learnt on
_SEEN = 768  # pairs of coalitions that the process sees
_NODES = 12  # of the quadrature over q


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
    masks: Masks, values: Tensor, empty: Tensor, full: Tensor, *,
    index: Index, order: int, credit: Floats, errors: Floats,
) -> list[SetValues]:  # fmt: skip
    """Interactions of up to `order` players, by size, from the evaluated coalitions of a game.

    `credit` and `errors` [M, outputs] are the Shapley values, which choose the players whose sets
    are listed where there are many.
    """
    y = values.numpy()
    players = len(credit)
    listed = heaviest(credit, MOST_PLAYERS.get(order, players))
    states = _states(masks, y, empty.numpy(), full.numpy())
    if states is not None:
        return exact_interactions(*states, index=index, order=order, listed=listed)
    if order > 2 or not isinstance(index, SII):
        raise UnsupportedError(
            f"{index.name} of order {order} needs a game that is played exactly, and this one has "
            f"{players} players; use order=2 with KSII() or SII(), more samples=, or groups="
        )
    if masks.pair is None:
        raise UnsupportedError(
            "interactions are estimated from pairs of coalitions and their complements; "
            "use mask=Auto() or Paired()"
        )
    return estimated_pairs(masks, y, empty.numpy(), full.numpy(), index, listed, credit, errors)


def heaviest(credit: Floats, most: int) -> Ids:
    """The players with the most absolute credit, ascending ids."""
    weight = np.abs(credit).max(1, initial=0.0)
    return np.sort(np.argsort(-weight, kind="stable")[:most])


def _states(
    masks: Masks, values: Floats, empty: Floats, full: Floats
) -> tuple[Bools, Bools, Floats] | None:
    """Members, boundary and values of states that cover all coalitions; None: they do not."""
    if masks.credit is not None:
        return masks.rows, (masks.credit < 0).numpy(), values
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
    sums = _StateSums(members, boundary, values, index, order)
    singles = sums.singles()
    if order > 2 and len(listed) < len(singles):
        raise BudgetError(
            f"interactions of three players are listed for at most {MOST_PLAYERS[3]} players, got "
            f"{len(singles)}; use order=2, or fewer players (hops=, groups=)"
        )
    by_size = [(np.arange(len(singles))[:, None], singles)]
    pairs = sums.pairs(listed) if order > 1 else None
    if pairs is not None:
        sets = _sets(listed, 2)
        by_size.append((sets, pairs[tuple(np.searchsorted(listed, sets).T)]))
    if order > 2:
        sets = _sets(listed, 3)
        by_size.append((sets, sums.triples(sets)))
    if isinstance(index, KSII):
        by_size = _aggregated(by_size, sums.row_sums() if order == 2 else None)
    return [SetValues(sets, values, np.zeros_like(values)) for sets, values in by_size]


def _sets(listed: Ids, size: int) -> Ids:
    return np.array(list(combinations(listed.tolist(), size)), dtype=np.int64).reshape(-1, size)


def _aggregated(
    by_size: list[tuple[Ids, Floats]], row_sums: Floats | None
) -> list[tuple[Ids, Floats]]:
    """k-SII(S) = sum over T of B_|T| SII(S + T), B the Bernoulli numbers."""
    factors = bernoulli(len(by_size))
    if row_sums is not None:  # pairs of players that are not listed count too
        (sets, singles), pairs = by_size
        return [(sets, singles + factors[1] * row_sums), pairs]
    totals = [values.copy() for _, values in by_size]
    place = [{tuple(members): i for i, members in enumerate(sets.tolist())} for sets, _ in by_size]
    for size, (sets, values) in enumerate(by_size):
        for members, value in zip(sets.tolist(), values, strict=True):
            for smaller in range(1, size + 1):
                for part in combinations(members, smaller):
                    row = place[smaller - 1][part]
                    totals[smaller - 1][row] += factors[size + 1 - smaller] * value
    return [(sets, total) for (sets, _), total in zip(by_size, totals, strict=True)]


@dataclass(frozen=True, eq=False)
class _StateSums:
    """Sums over states of values times the weights of an index."""

    members: Bools
    boundary: Bools
    values: Floats
    index: Index
    order: int

    def weights(self, inside: int, outside: int) -> Floats:
        """(-1)^outside W for sets with so many members of R and of B, [states]."""
        r, b = self.members.sum(1) - inside, self.boundary.sum(1) - outside
        weights = self.index(inside + outside, self.order, np.maximum(r, 0), np.maximum(b, 0))
        return np.where((r >= 0) & (b >= 0), (-1.0) ** outside * weights, 0.0)

    def singles(self) -> Floats:
        """[M, outputs]."""
        inside, outside = (
            self.weights(*shape)[:, None] * self.values for shape in ((1, 0), (0, 1))
        )
        return self.members.T @ inside + self.boundary.T @ outside

    def row_sums(self) -> Floats:
        """Sum over j of the pairs (i, j), [M, outputs]."""
        r, b = self.members.sum(1), self.boundary.sum(1)
        two, mixed, none = (self.weights(*shape) for shape in ((2, 0), (1, 1), (0, 2)))
        inside = ((r - 1) * two + b * mixed)[:, None] * self.values
        outside = (r * mixed + (b - 1) * none)[:, None] * self.values
        return self.members.T @ inside + self.boundary.T @ outside

    def pairs(self, listed: Ids) -> Floats:
        """[listed, listed, outputs], symmetric."""
        on, off = (part[:, listed].astype(np.float64) for part in (self.members, self.boundary))
        shapes = [self.weights(*shape) for shape in ((2, 0), (1, 1), (0, 2))]
        return np.stack([_products(on, off, *(w * y for w in shapes)) for y in self.values.T], -1)

    def triples(self, sets: Ids) -> Floats:
        """[sets, outputs]."""
        on, off = self.members.astype(np.float64), self.boundary.astype(np.float64)
        w3, w2, w1, w0 = (self.weights(*shape) for shape in ((3, 0), (2, 1), (1, 2), (0, 3)))
        triple_values = np.zeros((len(sets), self.values.shape[1]))
        for player in np.unique(sets[:, 0]):
            mine = sets[:, 0] == player
            i_on, i_off = on[:, player], off[:, player]
            for output, y in enumerate(self.values.T):
                with_player = _products(
                    on, off, y * (i_on * w3 + i_off * w2), y * (i_on * w2 + i_off * w1),
                    y * (i_on * w1 + i_off * w0),
                )  # fmt: skip
                triple_values[mine, output] = with_player[sets[mine, 1], sets[mine, 2]]
        return triple_values


def _products(on: Floats, off: Floats, two: Floats, mixed: Floats, none: Floats) -> Floats:
    """on' two on + on' mixed off + off' mixed on + off' none off; weights of states."""
    across = on.T @ (mixed[:, None] * off)
    return on.T @ (two[:, None] * on) + off.T @ (none[:, None] * off) + across + across.T


def estimated_pairs(
    masks: Masks, values: Floats, empty: Floats, full: Floats, index: Index, listed: Ids,
    credit: Floats, errors: Floats,
) -> list[SetValues]:  # fmt: skip
    """k-SII or SII of order 2 from pairs of coalitions and their complements.

    Pairs of players depend on the *even* part of the game alone, e(S) = (v(S) + v(N - S)) / 2. It
    is taken for a draw from a Gaussian process with the kernel k(S, T) = exp(-d(S, T)) +
    exp(-d(S, N - T)) and an unknown constant, which has no interactions. Error bars are posterior
    standard deviations, scaled by how far held-out pairs are missed.
    """
    signs = np.ones((len(values) // 2 + 1, masks.rows.shape[1]))
    signs[1:] = 2.0 * masks.rows[::2] - 1
    even = np.concatenate([(empty + full)[None], values[::2] + values[1::2]]) / 2
    seen = slice(0, _SEEN + 1)
    process = _EvenProcess.fitted(signs[seen], even[seen])
    pair_values, deviations = process.pairs(listed)
    sets = _sets(listed, 2)
    row, column = np.searchsorted(listed, sets).T
    pairs = SetValues(sets, pair_values[row, column], deviations[row, column])
    singles = SetValues(np.arange(len(credit))[:, None], credit, errors)
    if isinstance(index, KSII):
        sums, spread = process.row_sums(masks, values, empty, full)
        singles = SetValues(singles.members, credit - sums / 2, np.sqrt(errors**2 + spread**2 / 4))
    return [singles, pairs]


@dataclass(frozen=True, eq=False)
class _EvenProcess:
    """A Gaussian process with an unknown mean that has seen the even part of a game."""

    signs: Floats
    """[pairs, M]: a coalition of each pair."""
    even: Floats
    lengths: Floats
    """theta, [M]: how fast the game changes with each player."""
    factor: tuple[Floats, bool]
    scale: Floats
    """Variance of the process, [outputs], from held-out pairs."""
    held_out: int

    @staticmethod
    def fitted(signs: Floats, even: Floats) -> _EvenProcess:
        """The most likely relevance of players, by the values' spread, and a common length."""
        count, players = signs.shape
        learnt_on = np.unique(np.linspace(0, count - 1, min(count, _FITTED_PAIRS)).astype(np.int64))
        relevance = _relevance(signs, even)
        best = max(
            (
                (
                    _evidence(signs[learnt_on], even[learnt_on], total * shape / shape.sum()),
                    total,
                    tilt,
                )
                for tilt in (0.0, 0.5, 1.0)
                for shape in [relevance**tilt]
                for total in players * np.geomspace(0.02, 3.0, 8)
            ),
            key=lambda candidate: candidate[0],
        )
        shape = relevance ** best[2]
        lengths = best[1] * shape / shape.sum()
        # What the first half of the pairs predicts of the second gives the scale.
        half = max(2, count // 2)
        scale = _missed(signs, even, lengths, half)
        return _EvenProcess(signs, even, lengths, _factor(signs, lengths), scale, count - half)

    def pairs(self, listed: Ids) -> tuple[Floats, Floats]:
        """SII of pairs of the listed players and standard errors, [listed, listed, outputs]."""
        nodes, weights = roots_legendre(_NODES)
        q, w = (nodes + 1) / 2, weights / 2
        moved = 1 - np.exp(-self.lengths)
        # m[q, pair, player]: 1 - (1 - q) d where the player is on, 1 - q d where not.
        on = self.signs > 0
        factors = [np.where(on, 1 - (1 - x) * moved, 1 - x * moved) for x in q]
        totals = [part.prod(1) for part in factors]
        count, size = len(self.signs), len(listed)
        slopes = self.signs[:, listed] * moved[listed]
        shares = np.zeros((count, size, size))
        for weight, part, total in zip(w, factors, totals, strict=True):
            inverse = 1 / part[:, listed]
            shares += (2 * weight * total)[:, None, None] * inverse[:, :, None] * inverse[:, None]
        shares *= slopes[:, :, None] * slopes[:, None]
        flat = shares.reshape(count, -1)
        ones = np.ones((count, 1))
        solved = cho_solve(self.factor, np.concatenate([ones, self.even, flat], 1))
        weight_one, outputs = solved[:, :1], self.even.shape[1]
        precision = (ones.T @ weight_one).item()
        mean = (ones.T @ solved[:, 1 : 1 + outputs]) / precision
        pair_values = flat.T @ (solved[:, 1 : 1 + outputs] - weight_one * mean)
        explained = (flat * solved[:, 1 + outputs :]).sum(0)
        constant = (ones.T @ solved[:, 1 + outputs :])[0]
        left = self._prior(listed, q, w).reshape(-1) - explained + constant**2 / precision
        variance = np.maximum(left, 0)[:, None] * self.scale
        wider = stdtrit(self.held_out, 0.975) / stdtrit(np.inf, 0.975)
        shape = (size, size, outputs)
        return pair_values.reshape(shape), (wider * np.sqrt(variance)).reshape(shape)

    def _prior(self, listed: Ids, q: Floats, w: Floats) -> Floats:
        """8 d_i d_j times the double integral of the product over the other players."""
        moved = 1 - np.exp(-self.lengths)
        apart = (q[:, None] + q - 2 * q[:, None] * q).reshape(-1)
        weight = (w[:, None] * w).reshape(-1)
        part = 1 - moved * apart[:, None]
        total = part.prod(1) * weight
        inverse = 1 / part[:, listed]
        d = moved[listed]
        return 8 * d[:, None] * d * ((inverse * total[:, None]).T @ inverse)

    def row_sums(
        self, masks: Masks, values: Floats, empty: Floats, full: Floats
    ) -> tuple[Floats, Floats]:
        """Sum over j of SII(i, j) and its error, [M, outputs].

        It is v(N) - v(N - i) - v(i) + v(0): exact where these coalitions were played, otherwise
        what the process predicts of them.
        """
        players, outputs = self.signs.shape[1], self.even.shape[1]
        single = -np.ones((players, players)) + 2 * np.eye(players)
        across = _kernel(single, self.signs, self.lengths)
        ones = np.ones((len(self.signs), 1))
        solved = cho_solve(self.factor, np.concatenate([ones, self.even, across.T], 1))
        precision = (ones.T @ solved[:, :1]).item()
        mean = (ones.T @ solved[:, 1 : 1 + outputs]) / precision
        predicted = mean + across @ (solved[:, 1 : 1 + outputs] - solved[:, :1] * mean)
        prior_variance = 1 + np.exp(-self.lengths.sum())
        left = prior_variance - (across.T * solved[:, 1 + outputs :]).sum(0)
        left += (1 - (ones.T @ solved[:, 1 + outputs :])[0]) ** 2 / precision
        spread = 2 * np.sqrt(np.maximum(left, 0)[:, None] * self.scale)
        size = masks.rows[::2].sum(1)
        for coalition_size in (1, players - 1):
            for pair in np.flatnonzero(size == coalition_size):
                row = masks.rows[2 * pair]
                player = int(np.flatnonzero(row if coalition_size == 1 else ~row)[0])
                predicted[player] = (values[2 * pair] + values[2 * pair + 1]) / 2
                spread[player] = 0
        return empty + full - 2 * predicted, spread


def _kernel(first: Floats, second: Floats, lengths: Floats) -> Floats:
    """exp(-d(S, T)) + exp(-d(S, N - T)) of coalitions as signs, d the weighted distance."""
    inner = (first * lengths) @ second.T
    total = lengths.sum()
    return np.exp((inner - total) / 2) + np.exp((-inner - total) / 2)


def _factor(signs: Floats, lengths: Floats) -> tuple[Floats, bool]:
    gram = _kernel(signs, signs, lengths)
    gram[np.diag_indices(len(gram))] += 1e-10
    return np.asarray(np.linalg.cholesky(gram), dtype=np.float64), True


def _relevance(signs: Floats, even: Floats) -> Floats:
    """How much the even part changes with each player, from products of signs with others."""
    centred = even - even.mean(0)
    size = signs.sum(1, keepdims=True)
    slopes = (signs * size).T @ centred / len(signs)
    weight = np.sqrt((slopes**2).sum(1))
    return weight / max(weight.max(), 1e-300) + 0.05


def _evidence(signs: Floats, even: Floats, lengths: Floats) -> float:
    """Log likelihood of a process with these lengthscales, its scale and mean integrated out."""
    try:
        factor = _factor(signs, lengths)
    except np.linalg.LinAlgError:
        return -np.inf
    ones = np.ones((len(signs), 1))
    solved = cho_solve(factor, np.concatenate([ones, even], 1))
    precision = (ones.T @ solved[:, :1]).item()
    mean = (ones.T @ solved[:, 1:]) / precision
    left = ((even - mean) * (solved[:, 1:] - solved[:, :1] * mean)).sum(0)
    count = len(signs) - 1
    spread = np.log(np.maximum(left, 1e-300)).sum() * count / 2
    return float(
        -spread - even.shape[1] * (np.log(np.diag(factor[0])).sum() + np.log(precision) / 2)
    )


def _missed(signs: Floats, even: Floats, lengths: Floats, half: int) -> Floats:
    """Mean squared standardised error of the pairs from `half` on, [outputs]."""
    factor = _factor(signs, lengths)[0]
    leading = factor[:half, :half]
    ones = solve_triangular(leading, np.ones(half), lower=True)
    first = solve_triangular(leading, even[:half], lower=True)
    mean = (ones @ first) / (ones @ ones)
    whitened = solve_triangular(factor, even - mean, lower=True)
    return (whitened[half:] ** 2).mean(0)
