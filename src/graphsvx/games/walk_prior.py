"""How much nodes and edges are expected to matter: random walks from the explained nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.core.field import Field
from graphsvx.core.players import Players
from graphsvx.games.base import PlayerPrior

_MOST_PASSED = 1 << 22  # entries of a matrix of direct players by players


def prior_of_nodes(field: Field, players: Players, steps: int) -> PlayerPrior | None:
    """Walk mass of node players, and what they pass on; None: no walk meets a player."""
    visits, _ = _walk_masses(field, steps)
    members, owner = players.node_members, players.node_owner
    prior = _prior(owner, visits[members], field.hops[members] <= 1, players.nodes)
    if prior is None or steps < 2 or len(owner) != players.nodes:
        return prior
    direct = np.flatnonzero(prior.direct)
    received = _messages(field)[members[direct]]
    return replace(prior, passed=_passed_on(field, members, direct), received=received)


def prior_of_edges(field: Field, players: Players, steps: int) -> PlayerPrior | None:
    """Walk mass of edge players; None: no walk takes one."""
    _, uses = _walk_masses(field, steps)
    members = players.edge_members
    mass = uses[np.searchsorted(field.inner_edges, members)]
    return _prior(players.edge_owner, mass, field.target[members] < field.centres, players.edges)


def _prior(owner: Ids, mass: Floats, direct: Bools, players: int) -> PlayerPrior | None:
    """Sums over the members of each player; those without mass get a tenth of the least mass."""
    relevance = np.bincount(owner, mass, players)
    if not relevance.any():
        return None
    least = relevance[relevance > 0].min()
    return PlayerPrior(np.maximum(relevance, least / 10), np.bincount(owner, direct, players) > 0)


def _passed_on(field: Field, members: Ids, direct: Ids) -> Floats | None:
    """Share of messages to each direct player that comes from each player, [direct, players]."""
    if not len(direct) or len(direct) * len(members) > _MOST_PASSED:
        return None
    place = np.full(field.size, -1)
    place[members] = np.arange(len(members))
    row = np.full(field.size, -1)
    row[members[direct]] = np.arange(len(direct))
    source, target = field.source[field.inner_edges], field.target[field.inner_edges]
    used = (row[target] >= 0) & (place[source] >= 0) & (source != target)
    in_degree = _messages(field)
    passed = np.zeros((len(direct), len(members)))
    np.add.at(passed, (row[target[used]], place[source[used]]), 1 / in_degree[target[used]])
    return passed


def _messages(field: Field) -> Floats:
    """Number of messages that each node of the field combines, its own included."""
    in_degree: Floats = np.bincount(field.target, minlength=field.size).astype(np.float64)
    return 1 + in_degree[: field.size]


def _walk_masses(field: Field, steps: int) -> tuple[Floats, Floats]:
    """How often a random walk against the edges from the centres is at each node of the field,
    and how often it takes each inner edge, within `steps` steps; it may also stay where it is.

    In expectation, the influence of a node's features on the output of a message-passing network
    goes with this mass (Xu et al. 2018, theorem 1).
    """
    source, target = field.source[field.inner_edges], field.target[field.inner_edges]
    leave = 1 / _messages(field)
    at = np.zeros(field.size)
    at[: field.centres] = 1 / field.centres
    visits, uses = np.zeros(field.size), np.zeros(len(source))
    for _ in range(steps):
        moving = at * leave
        uses += moving[target]
        at = moving + np.bincount(source, moving[target], field.size)
        visits += at
    return visits, uses
