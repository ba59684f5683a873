"""Evaluation of the games of an explanation within a shared budget of model calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from graphsvx.core.query import Query
from graphsvx.core.random import derive_rng
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.states import TooManyStatesError
from graphsvx.errors import BudgetError
from graphsvx.estimators.controls import ControlledWLS
from graphsvx.estimators.gaussian_process import GaussianProcess, Known, Outcomes
from graphsvx.estimators.lasso import Lasso
from graphsvx.estimators.least_squares import WLR, WLS, Estimator, Fit, PlayedRows
from graphsvx.games.base import require_memory
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.games.graph_game import MOST_LOOK_UPS, GraphGame
from graphsvx.games.lookup_game import LookupGame
from graphsvx.masks import Auto, Mask, Masks, Paired
from graphsvx.masks.exact import exact_within
from graphsvx.masks.paper import split_budget
from graphsvx.utils.components import components
from graphsvx.utils.exclusive import stop_if_unwanted
from graphsvx.utils.given_up import give_up

_MANY_ROWS = 1 << 14
_FITTING = 0.9  # of the coalitions whose states fitted: another draw has others

_LINEAR = (GaussianProcess, WLS, WLR, ControlledWLS)  # exact where rows have their own credit

PlayableGame = GraphGame | LookupGame


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is explained: the scores of the unperturbed graph, and which of them."""

    query: Query
    evaluator: Evaluator
    scores: Tensor
    """Of all outputs, [outputs]."""
    outputs: tuple[int, ...]
    """Those that are explained."""
    target: int

    @staticmethod
    def of(query: Query, evaluator: Evaluator, scores: Tensor) -> Prediction:
        """The prediction with the outputs that the query asks for."""
        return Prediction(query, evaluator, scores, *query.choose_outputs(scores))


@dataclass(frozen=True, eq=False)
class PlayedGame:
    """A game with its evaluated coalitions; the empty and the full one come first in `values`."""

    game: PlayableGame
    masks: Masks
    values: Tensor
    budget: int
    derivatives: ExpectedCredit | None = None
    """Credit of far players, of some outputs."""

    def rows(self, outputs: Sequence[int]) -> PlayedRows:
        """Input of an estimator, for the chosen outputs."""
        values = self.values[:, _columns(outputs)]
        return PlayedRows(self.masks, values[2:], values[0], values[1])

    def known(self, outputs: Sequence[int]) -> Known:
        """What is known of the chosen outputs beside the values of coalitions."""
        columns, derivatives, outcomes = _columns(outputs), self.derivatives, None
        if derivatives is not None and derivatives.columns != columns:
            derivatives = None
        if self.game.probabilities:
            outcomes = Outcomes(self.values.numpy(), columns, self.game.memory)
        return Known(self.game.player_prior(), derivatives, outcomes)


def _columns(outputs: Sequence[int]) -> slice:
    return slice(outputs[0], outputs[-1] + 1)  # one of them, or all


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedGame(PlayedGame):
    """A played game with the credit of its players."""

    fit: Fit
    measured: int = 0
    """Coalitions more, at which differences that players make were measured."""
    seconds: float = 0.0
    """How long its last increment took, with the fit; for limits by the clock only."""


@dataclass(frozen=True, eq=False)
class Sampling:
    """MASK and EXPL: how coalitions of games are chosen, and credit is estimated from them."""

    mask: Mask
    estimator: Estimator
    seed: int

    def exact_within(self, game: PlayableGame, calls: int) -> bool:
        """Whether so many calls make a game exact."""
        return isinstance(self.mask, Auto) and exact_within(game, calls)

    @property
    def pairs_for_process(self) -> bool:
        """Whether a Gaussian process is fitted to pairs of coalitions, or the game is exact."""
        mask = self.mask.otherwise if isinstance(self.mask, Auto) else self.mask
        return isinstance(mask, Paired) and isinstance(self.estimator, GaussianProcess)

    def play(self, game: PlayableGame, budget: int, most_calls: int | None = None) -> PlayedGame:
        """Choose and evaluate coalitions of one game; a BudgetError if they exceed its memory.

        `most_calls` bounds the calls of the game with those of earlier increments: coalitions of a
        larger budget need not contain those of a smaller one.
        """
        if isinstance(game, GraphGame):
            if most_calls is not None:
                masks, _ = self._choose(game, budget)
                if game.calls + game.count_new(masks.states) > most_calls:
                    budget = max(2, most_calls - game.calls)
        elif isinstance(self.mask, Auto) and isinstance(self.estimator, _LINEAR):
            from graphsvx.methods.additive import additive_states  # noqa: PLC0415  (graphs only)

            additive = additive_states(game, budget, self.seed)
            if additive is not None:
                return PlayedGame(game, *additive, budget)
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
        estimator = self._estimator_of(masks)
        memory: Callable[[int, int], int] | None = getattr(estimator, "memory", None)
        if memory is not None and masks.credit is None:
            require_memory(game.memory, memory(*masks.rows.shape), *masks.rows.shape)
        ends = game.end_states()
        game.record_output_of(int(ends[1]))
        states = np.concatenate([ends, masks.states])
        return PlayedGame(game, masks, game.values(states), budget, derivatives)

    def _choose(self, game: PlayableGame, coalitions: int) -> tuple[Masks, ExpectedCredit | None]:
        """Coalitions of a game, and credit by derivatives, whose calls are part of the budget.

        Derivatives take no part where coalitions make the game exact.
        """
        if game.players == 0:
            none = np.zeros((0, 0), dtype=bool)
            return Masks(none, game.states(none), np.zeros(0), exact=True), None
        rng, derivatives = derive_rng(self.seed, game.side), None
        if (
            self.pairs_for_process
            and isinstance(game, GraphGame)
            and components().derivatives
            and game.players >= 2
            and game.player_prior() is not None
            and not self.exact_within(game, coalitions)
        ):
            derivatives = game.expected_credit(coalitions, rng.initial_seed())
        if derivatives is not None:
            coalitions = max(4, coalitions - derivatives.calls - derivatives.evaluated)
            derivatives = derivatives if derivatives.players.any() else None
        return self.mask(game, coalitions, rng), derivatives

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
                and isinstance(game, GraphGame)
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
        """Every game with its credit; a Lasso selects players over all games together."""
        if isinstance(self.estimator, Lasso):
            fits = self.estimator.over([game.rows(outputs) for game in played])
        else:
            fits = [self._fit(game, outputs) for game in played]
        return [FittedGame(**vars(game), fit=fit) for game, fit in zip(played, fits, strict=True)]

    def _fit(self, game: PlayedGame, outputs: Sequence[int]) -> Fit:
        stop_if_unwanted()
        estimator, rows = self._estimator_of(game.masks), game.rows(outputs)
        if isinstance(estimator, GaussianProcess):
            return estimator(*rows, game.known(outputs))
        return estimator(*rows)

    def _estimator_of(self, masks: Masks) -> Estimator:
        """The estimator; least squares in place of a Gaussian process with too many rows.

        So many coalitions, which only look-ups have, leave it nothing to add, and cost it seconds.
        """
        many = len(masks.rows) > _MANY_ROWS and isinstance(self.estimator, GaussianProcess)
        return ControlledWLS() if many else self.estimator
