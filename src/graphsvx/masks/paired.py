"""Paired sampling of coalitions with their complements (Covert and Lee 2021), by strata of size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, islice
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import comb

from graphsvx.core.arrays import Bools, Floats, Ids, RowIds
from graphsvx.games.base import Game, require_memory
from graphsvx.games.derivatives import GOLDEN
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked, Range

_NOISE = 1 << 31
_EVEN_PAIRS = 512  # as many as the default estimator fits its model to
_MORE = 1.05  # pairs than the share of distinct states suggests
_STRETCHED_PAIRS = 8192  # more for the same calls are not worth the time of a fit
# Random numbers that are drawn at once: bounds the memory of games with very many players.
_NOISE_ITEMS = 1 << 21


@dataclass(frozen=True)
class Paired(Checked):
    """Coalitions and their complements, small and large sizes whole, the rest drawn.

    Sizes s and M - s form a stratum. Strata that would be drawn more often than they have pairs
    are enumerated; the others are drawn without replacement, each pair with the weight that makes
    the regression consistent. The first pairs, which a model of the game is fitted to, have sizes
    drawn evenly; those after them, which correct it, by the square root of the kernel mass: it is
    in between that and the mass itself, so that no pair weighs much more than another. A
    golden-ratio sequence spreads any number of draws evenly. Budgets count distinct states: where
    coalitions share a perturbed graph, up to `stretch` times as many are drawn for the same calls.
    """

    stretch: Annotated[int, Range(1, 1000)] = 4
    separate = True

    def __call__(
        self, game: Game, budget: int, rng: torch.Generator, even_pairs: int = _EVEN_PAIRS
    ) -> Masks:
        """Pairs of rows whose distinct states fit the budget.

        `even_pairs`: how many come first, with sizes drawn evenly.
        """
        players = game.players
        if players < 2:
            none = np.zeros((0, players), dtype=bool)
            return Masks(none, game.states(none), np.zeros(0), exact=True)
        calls = max(2, budget - 2)
        strata = _strata(players, even_pairs)
        listed = strata.enumerable(calls // 2)
        pairs = most = 0
        if listed < strata.count:
            pairs = most = calls // 2
            if game.player_edges() is not None:  # coalitions may share a perturbed graph
                most = max(pairs, min(pairs * self.stretch, _STRETCHED_PAIRS))
        coalitions = 2 * most + (calls if listed else 0)
        require_memory(game.memory, 3 * coalitions * players, coalitions, players)
        few, stratum = strata.pairs_of(listed)
        enumerated = len(few)
        rows = _with_complements(few)
        states = game.states(rows)
        start = rng.get_state()
        while pairs:
            rng.set_state(start)  # the beginning is drawn again
            sampled, sizes = strata.draw(listed, pairs, rng)
            rows = np.concatenate([rows[: 2 * enumerated], _with_complements(sampled)])
            stratum = np.concatenate([stratum[:enumerated], sizes])
            states = np.concatenate([states, game.states(rows[len(states) :])])
            distinct = int(np.count_nonzero(np.bincount(states)))
            if distinct > calls or pairs == most:
                break
            pairs = min(most, int(pairs * _MORE * calls / distinct) + 1)
        fits = _within(states, calls) // 2
        rows, states, stratum = rows[: 2 * fits], states[: 2 * fits], stratum[:fits]
        pair = np.maximum(np.arange(len(stratum)) - enumerated, -1)
        drawn_pairs = np.bincount(stratum[enumerated:], None, strata.count)
        weights, unseen = strata.weigh(
            listed, drawn_pairs, strata.shares(len(stratum) - enumerated)
        )
        return Masks(
            rows,
            states,
            weights[stratum].repeat(2),
            exact=bool((unseen == 0).all()),
            pair=pair.repeat(2),
            unseen=unseen[stratum].repeat(2),
        )


def _within(states: Ids, most: int) -> int:
    """Number of leading rows with at most `most` distinct states."""
    first = np.sort(np.unique(states, return_index=True)[1])
    return int(first[most]) if most < len(first) else len(states)


class _Strata:
    """Coalitions of M players by the smaller of their size and their complement's.

    The first `even_pairs` draws go evenly over the sizes, the others by the root of the kernel.
    """

    def __init__(self, players: int, even_pairs: int = _EVEN_PAIRS) -> None:
        self.players, self.even_pairs = players, even_pairs
        self.count = players // 2
        sizes = np.arange(1, self.count + 1)
        # A stratum has two sizes; the one in the middle has one, which counts half.
        size_share = np.where(2 * sizes == players, 0.5, 1.0)
        self.pair_counts: Floats = np.rint(size_share * comb(players, sizes))
        """Pairs of each stratum; infinity: very many."""
        # Kernel mass of all coalitions of a size: (M - 1) / (s (M - s)).
        self.mass = _shares(size_share / (sizes * (players - sizes)))
        self.even = _shares(size_share)
        # Both sizes of a stratum, each with the root of its mass.
        self.root = _shares(np.sqrt(self.mass * 2 * size_share))

    def enumerable(self, pairs: int) -> int:
        """How many strata, from the outside in, would be drawn more often than they have pairs."""
        left, rest, shares = float(pairs), 1.0, self.shares(pairs)
        for stratum, needed in enumerate(self.pair_counts):
            if needed > left * shares[stratum] / rest + 1e-9:
                return stratum
            left -= needed
            rest -= shares[stratum]
        return self.count

    def shares(self, pairs: int) -> Floats:
        """Expected shares of the strata in so many draws."""
        first = min(pairs, self.even_pairs) / max(pairs, 1)
        return first * self.even + (1 - first) * self.root

    def pairs_of(self, listed: int) -> tuple[Bools, Ids]:
        """One coalition of all pairs of the first strata, and their strata."""
        counts = self.pair_counts[:listed].astype(np.int64)
        stratum = np.arange(listed).repeat(counts)
        few = np.zeros((len(stratum), self.players), dtype=bool)
        subsets = (
            islice(combinations(range(self.players), size), count)
            for size, count in enumerate(counts.tolist(), start=1)
        )
        members = chain.from_iterable(chain.from_iterable(subsets))
        few[np.arange(len(few)).repeat(stratum + 1), np.fromiter(members, np.int64)] = True
        return few, stratum

    def draw(self, listed: int, pairs: int, rng: torch.Generator) -> tuple[Bools, Ids]:
        """One coalition of distinct random pairs of the other strata, and their strata.

        Any beginning of them is a fair sample, and the beginning of a larger one.
        """
        start = _noise(rng, (1, 1)).item() / _NOISE
        # Draws of all strata, without those that are enumerated: the same ones for any budget.
        share = min(self.even[listed:].sum(), self.root[listed:].sum())
        spread: Floats = np.arange(int(pairs / share) + self.players, dtype=np.float64)
        spread = (start + GOLDEN * spread) % 1.0
        strata = np.concatenate(
            [
                _strata_at(self.even, spread[: self.even_pairs]),
                _strata_at(self.root, spread[self.even_pairs :]),
            ]
        )
        places = np.flatnonzero(strata >= listed)[:pairs]
        stratum = strata[places]
        few = np.empty((len(places), self.players), dtype=bool)
        step = max(1, _NOISE_ITEMS // self.players)
        for begin in range(0, int(places[-1]) + 1, step):
            noise = _noise(rng, (min(step, int(places[-1]) + 1 - begin), self.players))
            part = slice(*np.searchsorted(places, [begin, begin + len(noise)]))
            noise = noise[places[part] - begin]
            # The s smallest of M random numbers; sorting values is far faster than positions.
            last = np.sort(noise, axis=1)[np.arange(len(noise)), stratum[part]]
            np.less_equal(noise, last[:, None], out=few[part])
        if self.players % 2 == 0:
            # In the middle a coalition and its complement are drawn as the same pair.
            middle = (stratum + 1) * 2 == self.players
            few ^= (middle & ~few[:, 0])[:, None]
        if self.pair_counts[listed] < 1e7:
            _, new = RowIds().add(few)
            few, stratum = few[new], stratum[new]
        return few, stratum

    def weigh(self, listed: int, sampled: Ids, shares: Floats) -> tuple[Floats, Floats]:
        """Weight of a pair of each stratum, and the share of the stratum that was not `sampled`.

        A stratum that has enough draws, or few pairs, carries its mass; the others carry theirs
        together, each draw by its mass over the share that was expected to be drawn.
        """
        evaluated = sampled.astype(np.float64)
        evaluated[:listed] = self.pair_counts[:listed]
        unseen = 1 - evaluated / self.pair_counts
        estimated = (evaluated >= 4) | (unseen == 0)
        rest = ~estimated
        weights = self.mass / np.where(estimated, evaluated, 1.0)
        if evaluated[rest].sum() > 0:
            weights[rest] = self.mass[rest] / shares[rest]
            weights[rest] *= self.mass[rest].sum() / (evaluated[rest] @ weights[rest])
        elif rest.any() and estimated.any():
            # Nothing drawn from the rest: the nearest stratum stands for it.
            last = int(np.flatnonzero(estimated)[-1])
            weights[last] += self.mass[rest].sum() / evaluated[last]
        return weights, unseen


@lru_cache
def _strata(players: int, even_pairs: int) -> _Strata:
    return _Strata(players, even_pairs)


def _shares(amounts: Floats) -> Floats:
    return amounts / amounts.sum()


def _strata_at(shares: Floats, spread: Floats) -> Ids:
    """Strata at places of [0, 1), of which each takes its share."""
    ends = np.cumsum(shares)
    return np.minimum(np.searchsorted(ends, spread * ends[-1], side="right"), len(ends) - 1)


def _noise(rng: torch.Generator, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """Random numbers below 2^31: of M such, the s-th is there twice once in 2^31 / M rows."""
    return torch.empty(shape, dtype=torch.int32).random_(generator=rng).numpy()


def _with_complements(few: Bools) -> Bools:
    return np.stack([few, ~few], 1).reshape(-1, few.shape[1])
