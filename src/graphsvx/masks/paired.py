"""Our estimator: consistent, with error bars, and with the small and large coalitions first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb, log

import numpy as np
import torch
from scipy.special import gammaln

from graphsvx.engine.numbers import keys
from graphsvx.engine.states import Bools
from graphsvx.graph import Ids
from graphsvx.masks.base import Floats, Game, Masks

_GOLDEN = 0.6180339887498949
# Random numbers that are drawn at once: bounds the memory of games with very many players.
_NOISE_ITEMS = 1 << 21


@dataclass(frozen=True)
class Paired:
    """Coalitions and their complements, small and large sizes whole, the rest drawn.

    Sizes s and M - s form a stratum. Strata that would be drawn more often than they have pairs
    are enumerated; the others are drawn without replacement, sizes by a golden-ratio sequence
    over their kernel mass (so that any number of draws is spread evenly), each pair with the
    weight that makes the regression consistent. Budgets count distinct states: where coalitions
    share a perturbed graph, up to `stretch` times as many are drawn for the same calls.
    """

    stretch: int = 4
    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """Pairs of rows whose distinct states fit the budget."""
        players = game.players
        if players < 2:
            none = np.zeros((0, players), dtype=bool)
            return Masks(none, game.states(none), np.zeros(0), exact=True)
        strata = _Strata(players)
        calls = max(2, budget - 2)
        listed = strata.enumerable(calls // 2)
        rows = strata.pairs_of(listed)
        states = game.states(rows)
        left = calls - len(np.unique(states))
        pair = np.full(len(rows), -1, dtype=np.int64)
        size = rows.sum(1)
        if listed < strata.count and left >= 2:
            merging = game.senders() is not None
            drawn = strata.draw(listed, left // 2 * (self.stretch if merging else 1), rng)
            seen = game.states(drawn)
            fits = _within(states, seen, calls) // 2 * 2 if merging else len(drawn)
            rows = np.concatenate([rows, drawn[:fits]])
            states = np.concatenate([states, seen[:fits]])
            pair = np.concatenate([pair, np.repeat(np.arange(fits // 2), 2)])
            size = rows.sum(1)
        weights, unseen = strata.weigh(np.minimum(size, players - size), pair, listed)
        return Masks(
            rows,
            states,
            weights,
            exact=bool((unseen == 0).all()) and strata.complete(size, pair, listed),
            pair=pair,
            unseen=unseen,
        )


def _within(known: Ids, new: Ids, most: int) -> int:
    """How many of `new` can be played before more than `most` distinct states are."""
    both = np.concatenate([known, new])
    _, first = np.unique(both, return_index=True)
    fresh = np.zeros(len(both), dtype=np.int64)
    fresh[first] = 1
    return int(np.searchsorted(np.cumsum(fresh), most, side="right")) - len(known)


class _Strata:
    """Coalitions of M players by the smaller of their size and their complement's."""

    def __init__(self, players: int) -> None:
        self.players = players
        self.count = players // 2
        sizes = np.arange(1, self.count + 1)
        # Kernel mass of all coalitions of a size: (M - 1) / (s (M - s)); both sizes of a stratum.
        mass = 2.0 / (sizes * (players - sizes))
        if players % 2 == 0:
            mass[-1] /= 2
        self.mass: Floats = mass / mass.sum()
        m = float(players)
        self.log_pairs: Floats = gammaln(m + 1) - gammaln(sizes + 1.0) - gammaln(m - sizes + 1)
        if players % 2 == 0:
            self.log_pairs[-1] -= log(2)

    def pairs(self, stratum: int) -> int:
        """How many pairs a stratum (counted from 0) has."""
        size = stratum + 1
        both = comb(self.players, size)
        return both // 2 if 2 * size == self.players else both

    def enumerable(self, pairs: int) -> int:
        """How many strata, from the outside in, would be drawn more often than they have pairs."""
        left, mass = float(pairs), 1.0
        for stratum in range(self.count):
            if self.log_pairs[stratum] > 40:
                return stratum
            wanted = self.pairs(stratum)
            if wanted > left * self.mass[stratum] / mass + 1e-9:
                return stratum
            left -= wanted
            mass -= self.mass[stratum]
        return self.count

    def pairs_of(self, listed: int) -> Bools:
        """All pairs of the first strata, a coalition and its complement in turn."""
        blocks = [np.zeros((0, self.players), dtype=bool)]
        for stratum in range(listed):
            size = stratum + 1
            chosen = combinations(range(self.players), size)
            members = np.array(list(chosen), dtype=np.int64)[: self.pairs(stratum)]
            few = np.zeros((len(members), self.players), dtype=bool)
            np.put_along_axis(few, members, True, axis=1)
            blocks.append(_with_complements(few))
        return np.concatenate(blocks)

    def draw(self, listed: int, pairs: int, rng: torch.Generator) -> Bools:
        """Distinct random pairs of the other strata; any beginning of them is a fair sample."""
        mass = np.cumsum(self.mass[listed:])
        start = float(torch.rand((), generator=rng, dtype=torch.float64))
        spread = (start + _GOLDEN * np.arange(pairs)) % 1.0 * mass[-1]
        stratum = np.minimum(np.searchsorted(mass, spread, side="right"), len(mass) - 1) + listed
        few = np.empty((pairs, self.players), dtype=bool)
        step = max(1, _NOISE_ITEMS // self.players)
        for begin in range(0, pairs, step):
            part = slice(begin, begin + step)
            shape = few[part].shape
            noise = torch.rand(shape, generator=rng, dtype=torch.float64).numpy()
            # The s smallest of M random numbers; sorting values is far faster than positions.
            last = np.take_along_axis(np.sort(noise, axis=1), stratum[part, None], axis=1)
            few[part] = noise <= last
        if self.players % 2 == 0:
            # In the middle a coalition and its complement are drawn as the same pair.
            middle = (stratum + 1) * 2 == self.players
            few ^= (middle & ~few[:, 0])[:, None]
        if self.log_pairs[listed] < log(1e7):
            _, first = np.unique(np.asarray(keys(few)), return_index=True)
            few = few[np.sort(first)]
        return _with_complements(few)

    def weigh(self, small: Ids, pair: Ids, listed: int) -> tuple[Floats, Floats]:
        """Weight of each row, and the share of its stratum that was not drawn.

        A stratum that has enough draws, or few pairs, carries its mass; the others carry theirs
        together, each draw alike.
        """
        stratum = small - 1
        drawn = np.bincount(stratum[pair >= 0], minlength=self.count) / 2
        unseen = np.ones(self.count)
        unseen[:listed] = 0
        pairs = np.exp(np.minimum(self.log_pairs, 600))
        unseen[listed:] = 1 - np.minimum(1.0, drawn[listed:] / pairs[listed:])
        held = np.where(np.arange(self.count) < listed, pairs, drawn)
        own = (held >= 4) | (np.arange(self.count) < listed) | (unseen == 0)
        own &= held > 0
        per_pair = np.zeros(self.count)
        per_pair[own] = self.mass[own] / held[own]
        rest = ~own
        if held[rest].sum() > 0:
            per_pair[rest] = self.mass[rest].sum() / held[rest].sum()
        elif rest.any() and own.any():
            # Nothing drawn from the rest: the nearest stratum stands for it.
            last = int(np.flatnonzero(own)[-1])
            per_pair[last] += self.mass[rest].sum() / held[last]
        return per_pair[stratum], unseen[stratum]

    def complete(self, size: Ids, pair: Ids, listed: int) -> bool:
        """Whether every pair of every stratum is there."""
        if listed == self.count:
            return True
        small = np.minimum(size, self.players - size)[pair >= 0]
        drawn = np.bincount(small - 1, minlength=self.count) // 2
        return all(drawn[s] >= self.pairs(s) for s in range(listed, self.count))


def _with_complements(few: Bools) -> Bools:
    both = np.empty((2 * len(few), few.shape[1]), dtype=bool)
    both[::2] = few
    both[1::2] = ~few
    return both
