"""MASK and EXPL of the games of an explanation, within a shared budget of model calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from graphsvx.core.arrays import derive_rng
from graphsvx.engine.states import TooManyStatesError
from graphsvx.errors import BudgetError
from graphsvx.estimators import WLR, WLS, Estimator, GaussianProcess, Lasso
from graphsvx.games.base import Game, require_memory
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.games.graph_game import MOST_LOOK_UPS, GraphGame
from graphsvx.games.lookup_game import LookupGame
from graphsvx.masks import Auto, Mask, Masks, Paired
from graphsvx.masks.base import split_budget
from graphsvx.methods.played import FittedGame, PlayableGame, PlayedGame, estimator_for, fit_games
from graphsvx.utils.context import components, give_up

_FEW_EVEN_PAIRS = 128  # where derivatives tell of far players: neighbours need small sizes
_FITTING = 0.9  # of the coalitions whose states fitted: another draw has others

_LINEAR = (GaussianProcess, WLS, WLR)  # exact where rows have their own credit


@dataclass(frozen=True, eq=False)
class Sampling:
    """MASK and EXPL: how coalitions of games are chosen, and credit is estimated from them."""

    mask: Mask
    estimator: Estimator
    seed: int

    def rng(self, purpose: str) -> torch.Generator:
        """The random numbers for a purpose."""
        return derive_rng(self.seed, purpose)

    def exact_within(self, game: PlayableGame, calls: int) -> bool:
        """Whether so many calls make a game exact."""
        return isinstance(self.mask, Auto) and self.mask.exact_within(game, calls)

    @property
    def selective(self) -> bool:
        """Whether few players are chosen, and the others get no credit."""
        return isinstance(self.estimator, Lasso)

    @property
    def looks_up(self) -> bool:
        """Whether the mask takes as many coalitions of whole graphs as can be looked up."""
        return isinstance(self.mask, (Auto, Paired))

    @property
    def fits_process(self) -> bool:
        """Whether credit is that of a Gaussian process where a game is not exact."""
        return isinstance(self.estimator, GaussianProcess)

    @property
    def pairs_for_process(self) -> Paired | None:
        """The mask, if a Gaussian process is fitted to its pairs where a game is not exact."""
        mask = self.mask.otherwise if isinstance(self.mask, Auto) else self.mask
        return mask if isinstance(mask, Paired) and self.fits_process else None

    def play(self, game: PlayableGame, budget: int, most_calls: int | None = None) -> PlayedGame:
        """Choose and evaluate coalitions of one game; a BudgetError if they exceed its memory.

        `most_calls` bounds the calls of the game with those of earlier increments: coalitions of a
        larger budget need not contain those of a smaller one.
        """
        if isinstance(game, LookupGame):
            if isinstance(self.mask, Auto) and isinstance(self.estimator, _LINEAR):
                from graphsvx.methods.additive import additive_states  # noqa: PLC0415  (graphs only)

                additive = additive_states(game, budget, self.seed)
                if additive is not None:
                    return PlayedGame(game, *additive, budget)
        elif most_calls is not None:
            masks, _ = self._choose(game, budget)
            if game.calls + game.count_new(masks.states) > most_calls:
                budget = max(2, most_calls - game.calls)
        *larger, fewest = game.coalitions_for(budget)
        most = larger[0] if larger else fewest
        for coalitions in larger:
            if most <= fewest:
                break
            try:
                return self._play(game, min(coalitions, most), budget)
            except TooManyStatesError as error:
                most = max(int(_FITTING * error.fitting), fewest)
            except BudgetError as error:
                give_up(f"fewer than {min(coalitions, most):,} coalitions were evaluated", error)
        return self._play(game, fewest, budget)

    def _play(self, game: PlayableGame, coalitions: int, budget: int) -> PlayedGame:
        masks, derivatives = self._choose(game, coalitions)
        memory = getattr(estimator_for(masks, self.estimator), "memory", None)
        if memory is not None and masks.credit is None:
            require_memory(game.memory, memory(*masks.rows.shape), *masks.rows.shape)
        values = game.values(np.concatenate([game.end_states(), masks.states]))
        return PlayedGame(game, masks, values, budget, derivatives)

    def _choose(self, game: PlayableGame, coalitions: int) -> tuple[Masks, ExpectedCredit | None]:
        """Coalitions of a game, and credit by derivatives, whose calls are part of the budget.

        Derivatives take no part where coalitions make the game exact.
        """
        rng, derivatives, paired = self.rng(game.side), None, self.pairs_for_process
        if (
            isinstance(game, GraphGame)
            and paired is not None
            and components().derivatives
            and game.players >= 2
            and game.player_prior() is not None
            and not self.exact_within(game, coalitions)
        ):
            derivatives = game.expected_credit(coalitions, rng.initial_seed())
        if derivatives is not None:
            coalitions = max(4, coalitions - derivatives.calls - derivatives.evaluated)
            derivatives = derivatives if derivatives.players.any() else None
        if derivatives is not None and type(paired) is Paired:  # another class has other arguments
            return paired(game, coalitions, rng, _FEW_EVEN_PAIRS), derivatives
        return self.draw(game, coalitions, rng), derivatives

    def draw(self, game: Game, coalitions: int, rng: torch.Generator) -> Masks:
        """Coalitions of a game; none where nobody plays."""
        if game.players:
            return self.mask(game, coalitions, rng)
        none = np.zeros((0, 0), dtype=bool)
        return Masks(none, game.states(none), np.zeros(0), exact=True)

    def play_all(
        self,
        games: Sequence[PlayableGame],
        samples: int,
        share: float | None,
        exact_by_look_ups: bool = False,
    ) -> list[PlayedGame]:
        """Evaluate each game with its share of the budget; unused calls go to the other game.

        With `exact_by_look_ups`, a game that look-ups make exact is given them, beside the budget.
        """

        def play_one(game: PlayableGame, budget: int) -> PlayedGame:
            # In this order: only games that may be exact are probed.
            if (
                exact_by_look_ups
                and not game.looks_up
                and not self.exact_within(game, budget)
                and self.exact_within(game, MOST_LOOK_UPS)
                and self.exact_within(game, game.most_look_ups)
            ):
                budget = game.most_look_ups
            return self.play(game, budget)

        if len(games) == 1:
            return [play_one(games[0], samples)]
        features, nodes = games
        part = split_budget(samples, features.players, nodes.players, share)
        if features.players < 30 and 1 << features.players <= part:
            first = play_one(features, part)
            return [first, play_one(nodes, max(2, samples - features.calls))]
        second = play_one(nodes, max(2, samples - part))
        return [play_one(features, max(2, part, samples - nodes.calls)), second]

    def fit_all(self, played: Sequence[PlayedGame], outputs: Sequence[int]) -> list[FittedGame]:
        """Every game with its credit."""
        return fit_games(played, self.estimator, outputs)
