"""Masks that give the Shapley values themselves, and the one that decides when to use them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import gammaln

from graphsvx.engine.states import Bools
from graphsvx.errors import BudgetError
from graphsvx.masks.base import Game, Mask, Masks, all_rows, kernel_masks
from graphsvx.masks.paired import Paired

MOST_PLAYERS = 24
"""All 2^M coalitions of more players than this do not fit in memory."""


@dataclass(frozen=True)
class All:
    """All 2^M coalitions of one joint game over features and nodes (the paper's ALL).

    `separate=True` enumerates the two games of relative efficiency instead. The budget is not
    looked at: this is the reference that others are measured against.
    """

    separate: bool = False

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:  # noqa: ARG002  (a mask's arguments)
        """Every coalition, weighted by the kernel."""
        if game.players > MOST_PLAYERS:
            raise BudgetError(
                f"All needs at most {MOST_PLAYERS} players, got {game.players} (2^{game.players} "
                f"coalitions); use Auto() or Paired()"
            )
        masks = kernel_masks(game, all_rows(game.players))
        return Masks(masks.rows, masks.states, masks.weights, exact=True)


@dataclass(frozen=True)
class Connected:
    """Exact values from connected sets alone, where the score depends on nothing else.

    Without the indirect effect, the explained node sees only the switched-on nodes that can
    reach it through switched-on nodes. One such set R with boundary B (the switched-off nodes
    that send into it) stands for all coalitions that contain R and avoid B, and these have
    closed-form weights: (r-1)! b! / (r+b)! for a member, -r! (b-1)! / (r+b)! for the boundary.
    """

    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:  # noqa: ARG002  (a mask's arguments)
        """All connected sets; a BudgetError if they are more than the budget."""
        found = connected_sets(game.senders(), budget, game.reach)
        if found is None:
            raise BudgetError(
                f"the connected sets of this game do not fit {budget} model calls, or it is not "
                f"a game on nodes; use Auto() or Paired(), or allow more samples"
            )
        return connected_masks(game, *found)


@dataclass(frozen=True)
class Auto:
    """Exact where the distinct states of a game fit its budget, `otherwise` (Paired) where not."""

    otherwise: Mask = Paired()  # noqa: RUF009  (a frozen record)
    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """The cheapest exact way that fits, or an estimate."""
        found = connected_sets(game.senders(), budget, game.reach)
        if found is not None:
            return connected_masks(game, *found)
        if game.players <= MOST_PLAYERS and 1 << game.players <= budget:
            return All(separate=True)(game, budget, rng)
        return self.otherwise(game, budget, rng)


def connected_sets(
    senders: Bools | None, most: int, reach: int | None = None
) -> tuple[Bools, Bools] | None:
    """All sets that are connected to the explained node, with their boundaries, or None.

    None if there are more than `most`, or no structure is known. Ring by ring: each unfinished
    set branches on the first node of its next ring, which is either let in or kept out for good.
    Beyond `reach` rings nothing can matter, so nothing is decided there.
    """
    if senders is None:
        return None
    players = senders.shape[1]
    # Every set of nodes that send to the explained one is connected.
    if 1 << min(int(senders[-1].sum()), 62) > most and reach != 0:
        return None
    if players <= 63:
        return _connected_words(senders, most, reach)
    among = senders[:-1].astype(np.float32)
    sets, bounds = [], []
    inside = np.zeros((1, players), dtype=bool)
    outside, ring = inside.copy(), inside.copy()
    heard = senders[-1:].copy()
    rings = np.ones(1, dtype=np.int64)
    leaves = 0
    while len(inside):
        open_ = heard & ~inside & ~outside
        while True:  # where a ring is decided, go on to the one that sends to it
            step = ~open_.any(1) & ring.any(1)
            if reach is not None:
                step &= rings < reach
            if not step.any():
                break
            heard[step] = ring[step].astype(np.float32) @ among > 0
            ring[step] = False
            rings[step] += 1
            open_[step] = heard[step] & ~inside[step] & ~outside[step]
        more = open_.any(1)
        sets.append(inside[~more])
        bounds.append(outside[~more])
        leaves += int((~more).sum())
        # Each unfinished set has at least two descendants that are finished.
        if leaves + 2 * int(more.sum()) > most:
            return None
        branch = open_[more].argmax(1)
        at = np.arange(len(branch))
        inside, outside, ring, heard = (part[more] for part in (inside, outside, ring, heard))
        with_it, without_it, further = inside.copy(), outside.copy(), ring.copy()
        with_it[at, branch] = True
        without_it[at, branch] = True
        further[at, branch] = True
        inside = np.concatenate([with_it, inside])
        outside = np.concatenate([outside, without_it])
        ring = np.concatenate([further, ring])
        heard = np.concatenate([heard, heard])
        rings = np.concatenate([rings[more], rings[more]])
    return np.concatenate(sets), np.concatenate(bounds)


def _connected_words(
    senders: Bools, most: int, reach: int | None
) -> tuple[Bools, Bools] | None:  # fmt: skip
    """The same for few players: a set is a word, player i its bit i."""
    players = senders.shape[1]
    bit = np.uint64(1) << np.arange(players, dtype=np.uint64)
    by_player = (senders * bit).sum(1, dtype=np.uint64)
    nothing = np.zeros(1, dtype=np.uint64)
    inside, outside, following = nothing, nothing, nothing
    heard = nothing | by_player[-1]
    rings = np.ones(1, dtype=np.int64)
    sets, bounds = [], []
    leaves = 0
    while len(inside):
        open_ = heard & ~(inside | outside)
        while True:  # where a ring is decided, go on to the one that sends to it
            step = (open_ == 0) & (following != 0)
            if reach is not None:
                step &= rings < reach
            if not step.any():
                break
            heard = np.where(step, following, heard)
            following = np.where(step, 0, following).astype(np.uint64)
            rings = rings + step
            open_ = np.where(step, heard & ~(inside | outside), open_)
        more = open_ != 0
        done = ~more
        sets.append(inside[done])
        bounds.append(outside[done])
        leaves += len(sets[-1])
        # Each unfinished set has at least two descendants that are finished.
        if leaves + 2 * (len(inside) - len(sets[-1])) > most:
            return None
        lowest = open_[more] & (~open_[more] + np.uint64(1))
        sent = by_player[np.searchsorted(bit, lowest)]
        inside, outside, following, heard, rings = (
            part[more] for part in (inside, outside, following, heard, rings)
        )
        inside = np.concatenate([inside | lowest, inside])
        outside = np.concatenate([outside, outside | lowest])
        following = np.concatenate([following | sent, following])
        heard = np.concatenate([heard, heard])
        rings = np.concatenate([rings, rings])
    return tuple((np.concatenate(some)[:, None] & bit) != 0 for some in (sets, bounds))


def connected_masks(game: Game, sets: Bools, bounds: Bools) -> Masks:
    """Connected sets as rows, with the map from their values to exact credit."""
    r = sets.sum(1).astype(np.float64)
    b = bounds.sum(1).astype(np.float64)
    whole = gammaln(r + b + 1)
    member = np.exp(gammaln(np.maximum(r, 1)) + gammaln(b + 1) - whole)
    border = np.exp(gammaln(r + 1) + gammaln(np.maximum(b, 1)) - whole)
    credit = np.where(sets, member[:, None], 0.0) - np.where(bounds, border[:, None], 0.0)
    return Masks(
        rows=sets,
        states=game.states(sets),
        weights=np.ones(len(sets)),
        exact=True,
        credit=torch.from_numpy(credit),
    )
