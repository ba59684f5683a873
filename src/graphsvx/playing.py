"""Playing games: coalitions chosen, played, and the budget shared between games."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphsvx.certificate import GameReport
from graphsvx.explain.regression import Fit, Regression
from graphsvx.explain.selective import Lasso, Rows
from graphsvx.game import GraphGame
from graphsvx.masks import Mask, Masks
from graphsvx.masks.smart import split_budget


@dataclass(frozen=True, eq=False)
class Played:
    """A game's chosen rows with their values: the empty and the full coalition first."""

    game: GraphGame
    masks: Masks
    values: Tensor
    budget: int

    def rows(self, outputs: Sequence[int]) -> Rows:
        """What a regression gets, for some of the outputs."""
        chosen = self.values[:, outputs[0] : outputs[-1] + 1]  # one of them, or all
        return Rows(self.masks, chosen[2:], chosen[0], chosen[1])

    def report(self, fit: Fit, row: int, mask: str) -> GameReport:
        """The game's lines in the certificate; `row`: the output that is spoken of."""
        return GameReport(
            name=self.game.side,
            players=self.game.players,
            # Exact rows alone do not make Shapley values: a Lasso leaves players out.
            exact=self.masks.exact and not bool(fit.errors.any()),
            asked=self.budget,
            made=self.game.calls,
            rows=len(self.masks.rows) + 2,
            r2=float(fit.r2[row]),
            mask=mask,
        )


def stream(seed: int, purpose: str) -> torch.Generator:
    """A stream of its own for each purpose, so that no budget changes another's draws."""
    number = int.from_bytes(purpose.encode()[:7], "little")
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)


def play(game: GraphGame, mask: Mask, budget: int, seed: int) -> Played:
    """One game within its budget."""
    none = np.zeros((0, game.players), dtype=bool)
    if game.players == 0:
        masks = Masks(none, game.states(none), np.zeros(0), exact=True)
    else:
        masks = mask(game, budget, stream(seed, game.side))
    ends = game.ends()
    game.watch(int(ends[1]))
    values = game.values(np.concatenate([ends, masks.states]))
    return Played(game, masks, values, budget)


def play_all(
    games: list[GraphGame], mask: Mask, samples: int, share: float | None, seed: int
) -> list[Played]:
    """Each game with its share of the samples; what one leaves goes to the other."""
    if len(games) == 1:
        return [play(games[0], mask, samples, seed)]
    features, nodes = games
    part = split_budget(samples, features.players, nodes.players, share)
    if features.players < 30 and 1 << features.players <= part:
        first = play(features, mask, part, seed)
        return [first, play(nodes, mask, max(2, samples - features.calls), seed)]
    second = play(nodes, mask, max(2, samples - part), seed)
    return [play(features, mask, max(2, samples - nodes.calls), seed), second]


def fit_all(played: list[Played], regression: Regression, outputs: Sequence[int]) -> list[Fit]:
    """Credit in every game, by one choice over all of them where the regression chooses."""
    rows = [one.rows(outputs) for one in played]
    if isinstance(regression, Lasso):
        return regression.over(rows)
    return [regression(*one) for one in rows]


def play_until_sure(
    played: list[Played], fits: list[Fit], *, mask: Mask, regression: Regression,
    outputs: Sequence[int], tolerance: float, most: int, seed: int,
) -> tuple[list[Played], list[Fit], bool]:  # fmt: skip
    """Double the budget of each game until its errors are below the tolerance."""

    def sure(fit: Fit) -> bool:
        return bool((fit.errors <= tolerance).all())  # NaN is not sure

    played, fits = list(played), list(fits)
    for i, one in enumerate(played):
        budget = max(one.budget, 4)
        ceiling = most // len(played)
        while not sure(fits[i]) and budget < ceiling:
            budget = min(2 * budget, ceiling)
            played[i] = play(one.game, mask, budget, seed)
            fits[i] = fit_all([played[i]], regression, outputs)[0]
    return played, fits, all(sure(fit) for fit in fits)


def score_alone(played: list[Played], fits: list[Fit], row: int, output: int) -> float:
    """The model's score with only the players on that have credit: what the chosen ones can do."""
    score = 0.0
    for i, (one, fit) in enumerate(zip(played, fits, strict=True)):
        chosen = (fit.values[row] != 0).numpy()[None]
        value = float(one.game.values(one.game.states(chosen))[0, output])
        score += value if i == 0 else value - float(one.values[0, output])
    return score
