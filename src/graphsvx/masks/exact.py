"""Masks that determine the Shapley values exactly, and Auto, which uses them where they fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import gammaln

from graphsvx.core.arrays import Bools, Floats, Ids, row_sizes
from graphsvx.errors import BudgetError
from graphsvx.games.base import Game, fitting_coalitions, require_memory
from graphsvx.masks.base import Masks, MaskSetting, all_rows, kernel_masks
from graphsvx.masks.paired import Paired
from graphsvx.utils.constraints import Checked

MOST_PLAYERS = 24
"""All 2^M coalitions of more players than this do not fit in memory."""
_VAST = 40  # 2^40 is more than any budget
_SET_BYTES = 32  # of a connected set and player: members, boundary, and credit in float64


@dataclass(frozen=True)
class All(Checked):
    """All 2^M coalitions of one joint game over features and nodes (the paper's ALL).

    `separate=True` enumerates the two games of relative efficiency instead. The budget is
    ignored: this is the reference for the other masks.
    """

    separate: bool = False

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:  # noqa: ARG002  (a mask's arguments)
        """Every coalition, weighted by the kernel."""
        if game.players > MOST_PLAYERS:
            raise BudgetError(
                f"All needs at most {MOST_PLAYERS} players, got {game.players} (2^{game.players} "
                f"coalitions); use Auto() or Paired()"
            )
        count = 1 << game.players
        require_memory(game.memory, 4 * count * game.players, count, game.players)
        return replace(kernel_masks(game, all_rows(game.players)), exact=True)


@dataclass(frozen=True)
class Connected(Checked):
    """Exact values from connected sets alone, where the score depends on nothing else.

    Without the indirect effect, the explained node sees only the switched-on nodes that can
    reach it through switched-on nodes. One such set R with boundary B (the switched-off nodes
    that send into it) stands for all coalitions that contain R and avoid B, and these have
    closed-form weights: (r-1)! b! / (r+b)! for a member, -r! (b-1)! / (r+b)! for the boundary.
    """

    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:  # noqa: ARG002  (a mask's arguments)
        """All connected sets; a BudgetError if they are more than the budget."""
        sets = _connected_sets_of(game, budget)
        if sets is None:
            raise BudgetError(
                f"the connected sets of this game do not fit {budget} model calls, or it is not "
                f"a game on nodes; use Auto() or Paired(), or allow more samples"
            )
        return connected_masks(game, *sets)


@dataclass(frozen=True)
class Auto(Checked):
    """Exact where the distinct states of a game fit its budget, `otherwise` (Paired) where not."""

    otherwise: MaskSetting = Paired()
    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """The cheapest exact way that fits, or an estimate."""
        sets = _connected_sets_of(game, budget)
        if sets is not None:
            return connected_masks(game, *sets)
        if _enumerable(game, budget):
            return All(separate=True)(game, budget, rng)
        return self.otherwise(game, budget, rng)

    def exact_within(self, game: Game, budget: int) -> bool:
        """Whether so many calls make a game exact."""
        return _enumerable(game, budget) or _connected_sets_of(game, budget) is not None


def _enumerable(game: Game, budget: int) -> bool:
    return game.players <= MOST_PLAYERS and 1 << game.players <= budget


def _connected_sets_of(game: Game, budget: int) -> tuple[Bools, Bools] | None:
    """The connected sets of a game if they fit its budget and, with their credit, its memory."""
    most = min(budget, fitting_coalitions(game, _SET_BYTES))
    return connected_sets(game.player_edges(), most, game.reach)


def connected_sets(
    player_edges: Bools | None, most: int, reach: int | None = None
) -> tuple[Bools, Bools] | None:
    """All sets that are connected to the explained node, with their boundaries, or None.

    None if there are more than `most`, or no structure is known. Ring by ring: a set goes on with
    every choice from the undecided nodes that send to its last ring; those not chosen are kept
    out for good. Beyond `reach` rings nothing can matter, so nothing is decided there.
    """
    if player_edges is None:
        return None
    players = player_edges.shape[1]
    among = player_edges[:-1].astype(np.float32)
    sets = decided = np.zeros((1, players), dtype=bool)
    undecided = player_edges[-1:]
    for _ in range(players if reach is None else reach):
        # Each choice leads to at least one set.
        choices = 1 << np.minimum(undecided.sum(1), _VAST)
        if int(choices.sum()) > most:
            return None
        if not undecided.any():
            break
        parent, added = _choices(undecided, choices)
        sets = sets.take(parent, 0) | added
        decided = (decided | undecided).take(parent, 0)
        undecided = (added.astype(np.float32) @ among > 0) & ~decided
    return sets, decided & ~sets


def _choices(undecided: Bools, count: Ids) -> tuple[Ids, Bools]:
    """All `count` subsets of each row's members: the row that each is of, and its members."""
    parent = np.arange(len(count)).repeat(count)
    number = np.arange(len(parent)) - (count.cumsum() - count).take(parent)
    # Bit k of a subset's number is for the k-th member of its row.
    bits = undecided << (undecided.cumsum(1) - undecided)
    return parent, (bits.take(parent, 0) & number[:, None]) != 0


def connected_masks(game: Game, sets: Bools, bounds: Bools) -> Masks:
    """Connected sets as rows, with the map from their values to exact credit."""
    member, boundary = _weights(sets, bounds)
    return Masks(
        rows=sets,
        states=game.states(sets),
        weights=np.ones(len(sets)),
        exact=True,
        credit=torch.from_numpy(sets * member[:, None] - bounds * boundary[:, None]),
    )


def _weights(members: Bools, boundary: Bools) -> tuple[Floats, Floats]:
    """Even parts of r! b! / (r + b)! for each member, and for each of the boundary."""
    r, b = row_sizes(members), row_sizes(boundary)
    logs = gammaln(np.arange(1.0, members.shape[1] + 2))  # of factorials
    shared = np.exp(logs[r] + logs[b] - logs[r + b])
    return shared / np.maximum(r, 1), shared / np.maximum(b, 1)


@dataclass(frozen=True, eq=False)
class Subcubes:
    """Sets of coalitions in which a node has a state: all that contain some players, avoid others.

    Connected sets with their boundaries, of players or of nodes.
    """

    state: Ids
    """The state that each belongs to; a state may have two."""
    members: Bools
    """[subcubes, players]: contained. Column by column in memory where there are many."""
    boundary: Bools
    """[subcubes, players]: avoided."""

    def of_players(self, owner: Bools) -> Subcubes:
        """In terms of players, from nodes; `owner` [nodes, players]. Impossible ones are left out.

        Nodes that nobody owns are always on.
        """
        if np.array_equal(owner, np.eye(len(owner), dtype=bool)):
            return self  # nodes are players
        owners = owner.astype(np.float32)
        members, boundary = (
            part.astype(np.float32) @ owners > 0 for part in (self.members, self.boundary)
        )
        always_on = ~owner.any(1)
        possible = ~(self.boundary[:, always_on].any(1) | (members & boundary).any(1))
        return Subcubes(self.state[possible], members[possible], boundary[possible])

    def credit(self, values: Floats) -> Floats:
        """Shapley values [M, outputs] of a function of the state, [states, outputs]."""
        member, boundary = _weights(self.members, self.boundary)
        shares = values[self.state]
        inside: Floats = self.members.T @ (member[:, None] * shares)
        return inside - self.boundary.T @ (boundary[:, None] * shares)
