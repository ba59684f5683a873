"""How many coalitions of a game around a node may be look-ups of the states of nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphsvx.core.arrays import Bools
from graphsvx.core.perturbation import Perturbations
from graphsvx.engine.cost import counted_seconds
from graphsvx.engine.state_graph import StateGraphs

FEWEST_LOOK_UPS, MOST_LOOK_UPS = 1 << 15, 1 << 18
"""Coalitions that are looked up by default, where few leave large errors."""
_WORK = 1 << 25  # edges whose senders are numbered, and players of a fit: about half a second
_SECONDS = 0.5  # the same, by a count, of layers without kernels
_PROBES = 1 << 12  # coalitions that show how many states there are,
_COUNTED = 1 << 9  # and what a state costs


def most_look_ups(
    states: StateGraphs, players: int, perturb: Callable[[Bools], Perturbations]
) -> int:
    """How many coalitions take about half a second as look-ups.

    0: fewer than are worth it, or random coalitions have too many states.
    """
    most = min(MOST_LOOK_UPS, _WORK // (states.work + players))
    if most < FEWEST_LOOK_UPS or not states.may_have_few(FEWEST_LOOK_UPS):
        return 0
    rng = np.random.default_rng(0)
    rows = rng.random((_PROBES, players)) < rng.random((_PROBES, 1))
    numbered = states.number_few(perturb(rows), 2 * _PROBES)
    if numbered is None:
        return 0
    if not states.has_kernels:
        counted = states.number(perturb(rows[:_COUNTED]))
        seconds = counted_seconds(lambda: states.evaluate(counted, states.model))
        # The last round is computed for each coalition, the others for each state.
        affordable = counted.count(counted.levels) * _SECONDS / max(seconds, 1e-9)
        most = min(most, int(affordable) - numbered.count(numbered.levels[:-1]))
    return most if most >= FEWEST_LOOK_UPS else 0
