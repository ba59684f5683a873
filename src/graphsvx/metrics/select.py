"""The top players of an explanation: from credit to a set of nodes, edges or features."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.estimators.direct import as_edges, as_nodes
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation

Level = Literal["nodes", "edges", "features"]
Key = int | tuple[int, int]


def level_of(explanation: Explanation) -> Level:
    """The default level of an explanation: nodes if it has any, else edges, else features."""
    if explanation.node_credit.players:
        return "nodes"
    return "edges" if explanation.edge_credit.players else "features"


def scores(explanation: Explanation, level: Level) -> tuple[list[Key], Tensor]:
    """Players of a level and their credit [players]; converts node to edge credit and back."""
    if level == "nodes":
        explanation = as_nodes(explanation)
        return explanation.node_ids.tolist(), explanation.node_values
    if level == "edges":
        explanation = as_edges(explanation)
        pairs = explanation.edge_ids.reshape(2, -1).t().tolist()
        return [(u, v) for u, v in pairs], explanation.edge_values
    if level == "features":
        return explanation.feature_ids.tolist(), explanation.feature_values
    raise InputError(f'level must be "nodes", "edges" or "features", got {level!r}')


def strength(values: Tensor, by: Ranking) -> Tensor:
    """The ranking criterion: the signed values or their magnitudes."""
    if by not in ("value", "absolute"):
        raise InputError(f'by must be "value" or "absolute", got {by!r}')
    return values.abs() if by == "absolute" else values


def top_count(top: float, players: int) -> int:
    """`top` as a number of players; a float below 1 is a share of them (at least one player)."""
    if isinstance(top, bool) or not top > 0:
        raise InputError(f"top must be a number of players or a share between 0 and 1, got {top!r}")
    if isinstance(top, float) and top < 1:
        return min(players, max(1, round(top * players)))
    if int(top) != top:
        raise InputError(f"top must be a whole number or a share below 1, got {top!r}")
    return min(players, int(top))


def top_positions(values: Tensor, top: float, by: Ranking) -> Tensor:
    """Positions of the `top` players, best first.

    Players with credit 0 are left out, so there may be fewer. Ties are broken by a fixed
    permutation: players are stored nearest first, and that order must not affect the ranking.
    """
    rng = torch.Generator().manual_seed(len(values))
    shuffled = torch.randperm(len(values), generator=rng)
    ranked = shuffled[torch.argsort(strength(values, by)[shuffled], descending=True, stable=True)]
    ranked = ranked[: top_count(top, len(values))]
    return ranked[values[ranked] != 0]


def top_keys(explanation: Explanation, top: float, by: Ranking, level: Level) -> list[Key]:
    """The `top` players of an explanation, best first."""
    keys, values = scores(explanation, level)
    return [keys[i] for i in top_positions(values, top, by).tolist()] if keys else []
