"""Control variates that are fitted to one half of the drawn pairs and subtracted from the other.

Waves and tables of states have more coefficients than can be fitted without seeing their own
noise in the values. What they leave of pairs that they have not seen is honest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphsvx.core.arrays import Bools, Floats, Ids, by_size, row_sizes
from graphsvx.estimators.state_tables import StateTables, fit_table
from graphsvx.estimators.waves import WAVES, signs_of, train_waves
from graphsvx.masks.base import Masks

_FITTED = 1 << 15  # pairs of a half that its controls are fitted to


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
        fitted = min(coalitions // 2, 2 * _FITTED)
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
    fitted = min(_FITTED, *(len(half) for half in halves))
    waves = train_waves(
        np.stack([signs_of(on[half[:fitted]]) for half in halves]),
        *(
            np.stack([part[half[:fitted]] for half in halves]).astype(np.float32)
            for part in (missed, even)
        ),
    )
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
