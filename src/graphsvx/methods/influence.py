"""Whether any player changes the output, and what to try where none does."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphsvx.core.query import Query
from graphsvx.generators import RemoveRows
from graphsvx.generators.base import GeneratorSetting
from graphsvx.methods.pipeline import PlayedGame

_ROUNDING = 64  # units in the last place that values of the same output may differ by
_MOST_ROUNDING = 1e-4  # of the value: in half precision, more is influence


def no_influence(
    query: Query, generator: GeneratorSetting, played: Sequence[PlayedGame], outputs: Sequence[int]
) -> str | None:
    """The reason why no player changes the explained outputs; None: one does, or none plays.

    Features may have none where nodes have: only if they play alone this is said of them.
    """
    games = [game for game in played if game.game.players]
    flat = [game for game in games if _is_flat(game, outputs)]
    kinds = {game.game.side for game in flat}
    if not flat or (kinds == {"features"} and len(flat) < len(games)):
        return None
    kind = {"features": "feature", "edges": "edge"}.get(flat[-1].game.side, "node")
    fact = f"no {kind} changes the output"
    scores = flat[-1].values[1, list(outputs)]
    if query.model.scale == "probability" and bool(((scores < 1e-9) | (scores > 1 - 1e-9)).all()):
        return f'{fact}: the probability is {float(scores[0]):.0f} throughout; use scale="log_odds"'
    if kind == "feature":
        return f"{fact}: the model does not read x, or only where it is the reference"
    if isinstance(generator, RemoveRows):
        return f"{fact}, although switched-off nodes are removed: the model ignores them"
    takes = ", ".join(sorted(query.model.plan.attributes))
    return (
        f"{fact}: the model, which takes {takes}, gives the same output whatever edges are cut; "
        f"if it makes edges of its own (from positions or features) or mixes all nodes, use "
        f'GraphSVX(erase="rows")'
    )


def _is_flat(game: PlayedGame, outputs: Sequence[int]) -> bool:
    """Whether all coalitions have the same values, but for rounding."""
    values = game.values[:, list(outputs)]
    size = values.abs().amax(0)
    dtype = game.game.played().dtype
    unit = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    rounding = min(_MOST_ROUNDING, _ROUNDING * unit)
    return bool((values.amax(0) - values.amin(0) <= rounding * size).all())
