"""Tables of the states of nodes: control variates for games on whole graphs.

A function of the state of a node (`engine.node_states`) has Shapley values in closed form, so that
a sum of such functions may be subtracted from a game, as in `estimators.controls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from graphsvx.core.arrays import Bools, Floats, Ids, row_sizes
from graphsvx.engine.state_graph import LocalStates
from graphsvx.masks.base import Masks

Number = TypeVar("Number", np.float32, np.float64)
Sum = TypeVar("Sum", np.int64, np.float64)


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


def fit_table(first: Ids, second: Ids, left: Floats, count: int) -> Floats:
    """The table of a node, [states, outputs], fitted to what other controls leave of pairs.

    The node has the states `first` in one coalition of each pair and `second` in its complement.
    What the table explains is taken off `left` [pairs, outputs].
    """
    ones = np.ones(len(first), dtype=np.int64)
    seen_in = _sums(first, ones, count) + _sums(second, ones, count)
    table = np.empty((count, left.shape[1]))
    for output in range(left.shape[1]):
        residual = left[:, output]
        total = _sums(first, residual, count) - _sums(second, residual, count)
        column = total / (seen_in + _shrinkage(total, seen_in, float(residual @ residual)))
        residual -= column.take(first) - column.take(second)
        table[:, output] = column
    return table


def _sums(places: Ids, values: NDArray[Sum], count: int) -> NDArray[Sum]:
    """`np.bincount(places, values, count)` in two thirds of the time."""
    summands = torch.from_numpy(np.ascontiguousarray(values))
    totals = summands.new_zeros(count).scatter_add_(0, torch.from_numpy(places), summands)
    sums: NDArray[Sum] = totals.numpy()
    return sums


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
    size = row_sizes(members)
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
