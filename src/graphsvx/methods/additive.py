"""Exact values of whole graphs whose score is a sum over nodes.

Where embeddings are added up (or averaged) and what follows is affine, the score of a coalition is
a constant plus a function of the state of each node (`engine.states`). A state is a set of
coalitions: those that contain the switched-on nodes within reach, R, and avoid the switched-off
ones next to these, B. Shapley values and interactions of such sets have a closed form, so that
those of the game are exact wherever the states of all nodes can be listed, however many coalitions
there are.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, allclose
from graphsvx.engine.state_graph import TooManyStatesError
from graphsvx.games.base import empty_and_full, fitting_coalitions
from graphsvx.games.lookup_game import MOST_LOOK_UPS, LookupGame
from graphsvx.generators import Isolate
from graphsvx.masks.base import Masks
from graphsvx.masks.exact import Subcubes, connected_masks, connected_sets

_CHECKED = 64  # random coalitions that must have the sum over their nodes
_PROBES = 16  # random pooled embeddings on which the head must be affine
_STATE_BYTES = 96  # of a state and player: sets, credit in float64, look-ups of embeddings


def additive_states(game: LookupGame, budget: int, seed: int) -> tuple[Masks, Tensor] | None:
    """Rows whose credit is exact, and values of the empty and the full coalition and of these rows.

    The rows are states with what a node in this state adds to the score; a row with what rounding
    leaves of the gain, shared evenly; and random coalitions, which have no part in the credit.
    None: the score is no sum over nodes, or has too many states.
    """
    if not _may_be_additive(game, budget):
        return None
    game.budget = budget
    rng = np.random.default_rng(seed)
    listed = _listed_states(game, budget) if _head_is_affine(game, rng) else None
    if listed is None:
        return None
    node, subcubes = listed
    players = game.players
    inner = rng.random((_CHECKED, players)) < rng.random((_CHECKED, 1))
    checked = np.concatenate([empty_and_full(players), inner])
    try:
        scores = game.values(game.states(checked))
        worth = _worth(game, node[subcubes.state], subcubes.members)
    except TooManyStatesError:
        return None
    sums = _matching(subcubes, checked).T @ worth.numpy()
    if not _same(game, torch.from_numpy(sums - sums[0]) + scores[0], scores, scores):
        return None
    masks = connected_masks(game, subcubes.members, subcubes.boundary)
    credit = cast(Tensor, masks.credit)
    left = scores[1] - scores[0] - worth.t() @ credit.sum(1)
    share = torch.full((1, players), 1 / players, dtype=credit.dtype)
    no_part = torch.zeros(_CHECKED, players, dtype=credit.dtype)
    rows = np.concatenate([masks.rows, np.zeros((1, players), dtype=bool), inner])
    weights = np.concatenate([np.zeros(len(masks.rows) + 1), np.ones(_CHECKED)])
    credit = torch.cat([credit, share, no_part])
    exact = Masks(rows, game.states(rows), weights, exact=True, credit=credit)
    return exact, torch.cat([scores[:2], worth, left[None], scores[2:]])


def _may_be_additive(game: LookupGame, budget: int) -> bool:
    all_fit = 1 << min(game.players, 62) <= budget * MOST_LOOK_UPS  # then they are exact anyway
    plain_nodes = game.side == "nodes" and isinstance(game.generator, Isolate)
    local = plain_nodes and not game.setup.field.boundary
    return local and not all_fit and not game.probabilities and game.query.decoder is None


def _scores(game: LookupGame, pooled: list[Tensor]) -> Tensor:
    """Explained scores of pooled embeddings, [graphs, width] for each pooling."""
    head = game.lookup.pooled_model.head
    return game.query.scores(head(pooled)[:, None].cpu())


def _head_is_affine(game: LookupGame, rng: np.random.Generator) -> bool:
    """Whether all poolings are sums or means, and the score is affine in random results of them."""
    ends = game.embeddings(empty_and_full(game.players))
    if not all(pooling.reduction in ("sum", "mean") for pooling in ends.poolings):
        return False
    sizes = [torch.cat(tables).abs().sum(0) for tables in ends.tables]
    first, second = (
        [
            size * torch.from_numpy(rng.standard_normal((_PROBES, len(size)))).to(size)
            for size in sizes
        ]
        for _ in range(2)
    )
    zero = [torch.zeros_like(part[:1]) for part in first]
    joined = [a + b for a, b in zip(first, second, strict=True)]
    at_zero, *scores = (_scores(game, pooled) for pooled in (zero, first, second, joined))
    of_first, of_second, of_both = scores
    return _same(game, of_first + of_second - at_zero, of_both, torch.cat([at_zero, *scores]))


def _same(game: LookupGame, scores: Tensor, others: Tensor, like: Tensor) -> bool:
    """Whether scores agree up to the rounding of the graph's numbers."""
    return allclose(scores, others, like.to(game.query.graph.x.dtype))


def _listed_states(game: LookupGame, budget: int) -> tuple[Ids, Subcubes] | None:
    """The node of each state, and the subcubes of all states in terms of players."""
    field, players = game.setup.field, game.setup.players
    senders = np.zeros((field.size, field.size), dtype=bool)
    senders[field.target, field.source] = True
    np.fill_diagonal(senders, val=False)
    reach = game.lookup.states.depth + game.lookup.states.reads_degrees
    left = min(budget * field.size, fitting_coalitions(game, _STATE_BYTES))
    node, members, boundary = [], [], []
    for u in range(field.size):
        edges = np.concatenate([senders, senders[u : u + 1]])
        edges[:, u] = False  # it is on
        sets = connected_sets(edges, left, reach)
        if sets is None:
            return None
        inside, outside = (np.pad(part, ((0, 1), (0, 0))) for part in sets)
        inside[:-1, u] = True
        outside[-1, u] = True  # the last state: it is off
        left -= len(inside)
        node.append(np.full(len(inside), u))
        members.append(inside)
        boundary.append(outside)
    owner = np.zeros((field.size, players.nodes), dtype=bool)
    owner[players.node_members, players.node_owner] = True
    nodes = np.concatenate(node)
    subcubes = Subcubes(np.arange(len(nodes)), np.concatenate(members), np.concatenate(boundary))
    return nodes, subcubes.of_players(owner)


def _worth(game: LookupGame, node: Ids, members: Bools) -> Tensor:
    """What each node adds to the score in the coalition of its state, [states, outputs]."""
    states = game.states(members)
    _, first, place = np.unique(states, return_index=True, return_inverse=True)
    embedded = game.embeddings(members[first])
    counts = [len(table) for table in embedded.tables[0]]
    pooled = [
        torch.cat(tables) / (len(tables) if pooling.reduction == "mean" else 1)
        for tables, pooling in zip(embedded.tables, embedded.poolings, strict=True)
    ]
    zero = [torch.zeros_like(part[:1]) for part in pooled]
    # Of each state of each node, [states, outputs].
    parts = torch.split(_scores(game, pooled) - _scores(game, zero), counts)
    worth = parts[0].new_zeros(len(node), parts[0].shape[1])
    for u, part in enumerate(parts):
        mine = np.flatnonzero(node == u)
        number = embedded.numbers[u][place.reshape(-1)[mine]]
        worth[torch.from_numpy(mine)] = part[torch.from_numpy(number).long()]
    return worth


def _matching(subcubes: Subcubes, coalitions: Bools) -> Floats:
    """1 where a coalition is in a subcube, [subcubes, coalitions]."""
    on = coalitions.T.astype(np.float32)
    outside = subcubes.members.astype(np.float32) @ (1 - on)
    outside += subcubes.boundary.astype(np.float32) @ on
    return (outside == 0).astype(np.float64)
