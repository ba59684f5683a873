"""Tables of the states of nodes: control variates for games on whole graphs.

A function of the state of a node (`engine.node_states`) has Shapley values in closed form, so that
a sum of such functions may be subtracted from a game, as in `estimators.controls`. A table has an
entry for each state, more than can be fitted without seeing its own noise in the values: tables of
one half of the drawn pairs are subtracted from the other half.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.engine.node_states import LocalStates
from graphsvx.masks.base import Masks

Number = TypeVar("Number", np.float32, np.float64)

_FITTED = 1 << 15  # pairs of a half that its tables are fitted to


@dataclass(frozen=True, eq=False)
class StateTables:
    """g(S) = sum over nodes of t(state in S) - t(state in N \\ S): an odd game."""

    local: tuple[LocalStates, ...]
    tables: list[Floats]
    """[states, outputs] for each node and round."""

    def at_full(self) -> Floats:
        """g at the full coalition, [outputs]."""
        changes = [
            table[states.number[1]] - table[states.number[0]]
            for states, table in zip(self.local, self.tables, strict=True)
        ]
        total: Floats = np.sum(changes, axis=0)
        return total

    def credit(self) -> Floats:
        """Shapley values of g, [outputs, M]; the second part has those of the first."""
        parts = zip(self.local, self.tables, strict=True)
        credit: Floats = np.sum([states.subcubes.credit(table) for states, table in parts], axis=0)
        return 2 * credit.T


@dataclass(frozen=True, eq=False)
class Half:
    """Half of the drawn pairs, and tables that were fitted to the other half."""

    pairs: Ids
    """Enumerated pairs, then those of the half."""
    tables: StateTables
    rest: Floats
    """What the tables leave of one coalition of each pair, [pairs, outputs]."""

    def of(self, masks: Masks) -> Masks:
        """These pairs alone, with weights that make up for the others."""
        if masks.pair is None or masks.unseen is None:
            raise ValueError("these rows were not drawn as pairs")
        rows = (2 * self.pairs[:, None] + np.arange(2)).reshape(-1)
        players = masks.rows.shape[1]
        size = masks.rows[::2].sum(1)
        stratum = np.minimum(size, players - size)
        is_drawn = drawn_pairs(masks)
        mine = self.pairs[is_drawn[self.pairs]]
        in_all = np.bincount(stratum[is_drawn], None, players)
        present = np.bincount(stratum[mine], None, players)
        factor = np.where(is_drawn, (in_all / np.maximum(present, 1))[stratum], 1.0)
        factor = factor[self.pairs].repeat(2)
        return Masks(
            masks.rows[rows],
            masks.states[rows],
            masks.weights[rows] * factor,
            pair=masks.pair[rows],
            unseen=1 - (1 - masks.unseen[rows]) / factor,
        )


def crossed_halves(masks: Masks, missed: Floats) -> list[Half]:
    """Both halves of the drawn pairs; `missed` [pairs, outputs]: half differences to explain."""
    drawn_ids = np.flatnonzero(drawn_pairs(masks))
    listed = len(missed) - len(drawn_ids)
    missed = missed.copy()
    missed[drawn_ids] = without_sizes(missed[drawn_ids], masks.rows[::2][drawn_ids])
    halves = [_OpenHalf.of(missed, drawn_ids[start::2], listed) for start in range(2)]
    for states in masks.local:
        numbers = [half.numbers(states) for half in halves]
        for half, other in ((0, 1), (1, 0)):
            table = halves[half].fit(*numbers[half], states.count)
            halves[half].tables.append(table)
            halves[other].subtract(table, *numbers[other])
    return [
        Half(
            halves[half].pairs, StateTables(masks.local, halves[1 - half].tables), halves[half].rest
        )
        for half in range(2)
    ]


@dataclass(frozen=True, eq=False)
class _OpenHalf:
    """Half of the drawn pairs while tables are fitted, one after another."""

    pairs: Ids
    listed: int
    """Number of enumerated pairs, which come first."""
    rest: Floats
    """What the tables of the other half leave, [pairs, outputs]."""
    left: Floats
    """What its own tables leave of the pairs that they are fitted to."""
    tables: list[Floats] = field(default_factory=list)

    @staticmethod
    def of(missed: Floats, drawn_ids: Ids, listed: int) -> _OpenHalf:
        pairs = np.concatenate([np.arange(listed), drawn_ids])
        return _OpenHalf(pairs, listed, missed[pairs], missed[drawn_ids[:_FITTED]])

    def numbers(self, states: LocalStates) -> tuple[Ids, Ids]:
        """States of a node in one coalition of each pair, and in its complement."""
        first, second = states.number[2::2], states.number[3::2]
        return first.take(self.pairs).astype(np.intp), second.take(self.pairs).astype(np.intp)

    def fit(self, first: Ids, second: Ids, count: int) -> Floats:
        """The table of a node, [states, outputs], fitted to what the others leave."""
        seen = slice(self.listed, self.listed + _FITTED)
        a, b = first[seen], second[seen]
        seen_in: Ids = np.bincount(a, None, count) + np.bincount(b, None, count)
        table = np.empty((count, self.left.shape[1]))
        for output in range(table.shape[1]):
            residual = self.left[:, output]
            sums = np.bincount(a, residual, count) - np.bincount(b, residual, count)
            total: Floats = np.asarray(sums, dtype=np.float64)
            column = total / (seen_in + _shrinkage(total, seen_in, float(residual @ residual)))
            residual -= column.take(a) - column.take(b)
            table[:, output] = column
        return table

    def subtract(self, table: Floats, first: Ids, second: Ids) -> None:
        """Take a table of the other half off."""
        for output, column in enumerate(np.ascontiguousarray(table.T)):
            self.rest[:, output] -= column.take(first) - column.take(second)


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
    size = members.sum(1)
    stratum = np.minimum(size, players - size)
    # +1 for a coalition, -1 for a complement of one; halves are both.
    side = np.sign(players - 2 * size).astype(np.float32)
    indicators = np.zeros((len(members), players // 2 + 1), dtype=np.float32)
    indicators[np.arange(len(members)), stratum] = side
    counts = np.maximum(np.bincount(stratum, None, indicators.shape[1]), 1)
    means = indicators.T @ terms.astype(np.float32) / counts[:, None].astype(np.float32)
    return terms - (indicators @ means).astype(terms.dtype)


def _shrinkage(total: Floats, counts: Ids, squares: float) -> float:
    """Variance of residuals over that of the effects of states: empirical Bayes.

    The sum of residuals over n coalitions has the variance n noise + n^2 effect.
    """
    seen, coalitions = counts > 0, float(counts.sum())
    noise = 2 * squares / max(coalitions, 1e-300)
    excess = float((total[seen] ** 2 / counts[seen] - noise).sum())
    return noise * coalitions / excess if excess > 0 else np.inf
