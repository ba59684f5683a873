"""States of the nodes of perturbed graphs: numbers, and the coalitions that each stands for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from graphsvx.core.arrays import Bools, Floats, Ids, row_sizes, taken

Numbers = NDArray[np.int32]

LARGEST_TABLE = 1 << 22
"""Keys that are numbered by a table; more are sorted."""
_CACHED = 1 << 16  # keys whose table fits into the caches of a core
_FIRST_KEYS = 1 << 12  # that are numbered before the others


@dataclass(frozen=True, eq=False)
class Subcubes:
    """Sets of coalitions: all that contain some players (or nodes) and avoid others."""

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

    def take(self, places: Ids) -> Subcubes:
        """Some of them."""
        members, boundary = (
            part.T.take(places, axis=1).T for part in (self.members, self.boundary)
        )
        return Subcubes(self.state[places], members, boundary)

    def credit(self, values: Floats) -> Floats:
        """Shapley values [M, outputs] of a function of the state, [states, outputs]."""
        r, b = row_sizes(self.members), row_sizes(self.boundary)
        logs = gammaln(np.arange(1.0, self.members.shape[1] + 2))  # of factorials
        shared = np.exp(logs[r] + logs[b] - logs[r + b])[:, None] * values[self.state]
        inside: Floats = self.members.T @ (shared / np.maximum(r, 1)[:, None])
        return inside - self.boundary.T @ (shared / np.maximum(b, 1)[:, None])


@dataclass(frozen=True, eq=False)
class LocalStates:
    """The states of one node in a batch of coalitions, and the coalitions that have each."""

    number: Numbers
    """Of each coalition."""
    count: int
    subcubes: Subcubes


@dataclass(frozen=True, eq=False)
class NodeStates:
    """The states of one node in a batch of perturbed graphs."""

    number: Numbers
    """Of each graph."""
    example: Ids
    """The first graph in which the node has each state."""


def column(states: NodeStates) -> tuple[Numbers, int]:
    """State numbers with their bound."""
    return states.number, len(states.example)


def number_states(parts: list[tuple[Numbers, int]], count: int) -> NodeStates:
    """Numbers of the distinct rows of columns, each given with a bound of its values."""
    keys, distinct = np.zeros(count, dtype=np.int32), 1
    for values, bound in parts:
        if bound == 1:
            continue
        if distinct * bound > _CACHED:
            compact = number_keys(keys, distinct)
            keys, distinct = compact.number, len(compact.example)
        if distinct * bound > LARGEST_TABLE:
            pairs = keys * np.int64(bound) + values
            met, inverse = np.unique(pairs, return_inverse=True)
            keys, distinct = inverse.reshape(-1).astype(np.int32), len(met)
        else:
            keys *= np.int32(bound)
            keys += values
            distinct *= bound
    return number_keys(keys, distinct)


def number_keys(keys: Numbers, bound: int) -> NodeStates:
    """The distinct keys, numbered in the order in which they come."""
    if bound == 1:
        return NodeStates(np.zeros_like(keys), np.arange(min(1, len(keys))))
    table = np.full(bound, -1, dtype=np.int32)
    # Distinct keys are nearly all met among the first ones.
    example = _first_places(keys[:_FIRST_KEYS], table, 0)
    number = taken(table, keys)
    if number.min(initial=0) < 0:
        rest = np.flatnonzero(number < 0)
        new = _first_places(keys[rest], table, len(example))
        number[rest] = taken(table, keys[rest])
        example = np.concatenate([example, rest[new]])
    return NodeStates(number, example)


def _first_places(keys: Numbers, table: Numbers, start: int) -> Ids:
    """Where each distinct key comes first; the table gets their numbers, from `start` on."""
    places = keys.astype(np.intp)
    # From the last to the first, so that the first is written last.
    table[places[::-1]] = np.arange(len(keys) - 1, -1, -1, dtype=np.int32)
    first = np.flatnonzero(table.take(places) == np.arange(len(keys), dtype=np.int32))
    table[places[first]] = np.arange(start, start + len(first), dtype=np.int32)
    return first


def subcubes_of_states(
    node: Ids, active: Bools, rounds: int, senders: Bools, shows_itself: Bools
) -> Subcubes:
    """Switched-on nodes that make up the state of a node after some rounds, for many states.

    `node` [states] has state i in a graph with the nodes `active[i]`; `senders` [nodes, nodes] has
    the edges into each node. The state is that of all graphs with the same nodes on within reach.
    Unless a node `shows_itself` by a loop or its features, it has the same state without
    neighbours as switched off.
    """
    state = np.arange(len(node))
    members, boundary = _within_reach(node, active, rounds, senders)
    twofold = np.flatnonzero(~shows_itself[node] & (row_sizes(members) <= 1))
    nodes = node[twofold]
    is_on = active[twofold, nodes][:, None]
    alone = np.eye(len(senders), dtype=bool)[nodes]
    other_members = alone & ~is_on
    other_boundary = np.where(is_on, alone, senders[nodes])
    return Subcubes(
        np.concatenate([state, twofold]),
        np.concatenate([members.T, other_members.T], axis=1).T,
        np.concatenate([boundary.T, other_boundary.T], axis=1).T,
    )


def _within_reach(node: Ids, active: Bools, rounds: int, senders: Bools) -> tuple[Bools, Bools]:
    """Active nodes from which messages reach a node in some rounds, and others next to them."""
    # By node: each has few neighbours, and the columns of all states are long.
    on = np.ascontiguousarray(active.T)
    start = np.zeros_like(on)
    start[node, np.arange(len(node))] = True
    targets = [np.flatnonzero(column) for column in senders.T]
    members, boundary = start & on, start & ~on
    for _ in range(rounds):
        neighbours = np.stack([members[into].any(0) for into in targets])
        boundary |= neighbours & ~on
        members |= neighbours & on
    return members.T, boundary.T
