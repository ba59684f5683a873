"""Evaluation of the games of an explanation within a shared budget of model calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from torch import Tensor

from graphsvx.core.random import derive_rng
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
from graphsvx.methods.additive import additive_states
from graphsvx.results.certificate import GameReport
from graphsvx.utils.components import components
from graphsvx.utils.given_up import give_up
from graphsvx.utils.interruption import stop_if_unwanted

_MANY_ROWS = 1 << 14
_FITTING = 0.9  # of the coalitions whose states fitted: another draw has others

_LINEAR = (GaussianProcess, WLS, WLR, ControlledWLS)  # exact where rows have their own credit

PlayableGame = GraphGame | LookupGame


@dataclass(frozen=True, eq=False)
class PlayedGame:
    """A game with its evaluated coalitions; the empty and the full one come first in `values`."""

    game: PlayableGame
    masks: Masks
    values: Tensor
    budget: int
    measured: int = 0
    """Coalitions more, at which differences that players make were measured."""
    derivatives: ExpectedCredit | None = None
    """Credit of far players, of some outputs."""
    seconds: float = 0.0
    """How long its last increment took, with the fit; for limits by the clock only."""

    def estimator_rows(self, outputs: Sequence[int]) -> PlayedRows:
        """Input of an estimator, for the chosen outputs."""
        values = self.values[:, outputs[0] : outputs[-1] + 1]  # one of them, or all
        return PlayedRows(self.masks, values[2:], values[0], values[1])

    def known(self, outputs: Sequence[int]) -> Known:
        """What is known of the chosen outputs beside the values of coalitions."""
        columns = slice(outputs[0], outputs[-1] + 1)
        derivatives, outcomes = self.derivatives, None
        if derivatives is not None and derivatives.columns != columns:
            derivatives = None
        if self.game.probabilities:
            outcomes = Outcomes(self.values.numpy(), columns, self.game.memory)
        return Known(self.game.player_prior(), derivatives, outcomes)

    def report(self, fit: Fit, row: int, mask: str) -> GameReport:
        """The game's entry in the certificate; `row`: position of the target among the outputs."""
        players, replayed = self.game.players, self.game.replayed
        # Exact rows alone do not make Shapley values: a Lasso leaves players out.
        no_estimate = self.masks.exact and not bool(fit.errors.any())
        proved = self.game.evaluator.checks.proved
        return GameReport(
            name=self.game.side,
            players=players,
            exact=no_estimate and proved,
            exact_if_shortcuts_hold=no_estimate and not proved,
            replayed=0 if proved else replayed,
            budget=self.budget,
            calls=self.game.calls,
            coalitions=len(self.masks.rows) + 2 + self.measured,
            r2=float(fit.r2[row]),
            mask=mask,
            model=fit.model,
            held_out_r2=None if fit.held_out_r2 is None else float(fit.held_out_r2[row]),
        )


def play(
    game: PlayableGame,
    mask: Mask,
    estimator: Estimator,
    budget: int,
    seed: int,
    most_calls: int | None = None,
) -> PlayedGame:
    """Choose and evaluate coalitions of one game; a BudgetError if they exceed its memory.

    `most_calls` bounds the calls of the game with those of earlier increments: coalitions of a
    larger budget need not contain those of a smaller one.
    """
    if isinstance(game, GraphGame) and most_calls is not None:
        masks, _ = _choose(game, mask, estimator, budget, seed)
        if game.calls + game.count_new(masks.states) > most_calls:
            budget = max(2, most_calls - game.calls)
    if isinstance(game, LookupGame) and isinstance(mask, Auto) and isinstance(estimator, _LINEAR):
        additive = additive_states(game, budget, seed)
        if additive is not None:
            return PlayedGame(game, additive.masks, additive.values, budget)
    *larger, fewest = game.coalitions_for(budget)
    most = larger[0] if larger else fewest
    for coalitions in larger:
        if most <= fewest:
            break
        try:
            return _play(game, mask, estimator, min(coalitions, most), budget, seed)
        except TooManyStatesError as error:
            most = max(int(_FITTING * error.fitting), fewest)
        except BudgetError as error:
            give_up(f"fewer than {min(coalitions, most):,} coalitions were evaluated", error)
    return _play(game, mask, estimator, fewest, budget, seed)


def _play(
    game: PlayableGame, mask: Mask, estimator: Estimator, coalitions: int, budget: int, seed: int
) -> PlayedGame:
    masks, derivatives = _choose(game, mask, estimator, coalitions, seed)
    _require_memory_of_fit(game, masks, estimator)
    ends = game.end_states()
    game.record_output_of(int(ends[1]))
    states = np.concatenate([ends, masks.states])
    return PlayedGame(game, masks, game.values(states), budget, derivatives=derivatives)


def _choose(
    game: PlayableGame, mask: Mask, estimator: Estimator, coalitions: int, seed: int
) -> tuple[Masks, ExpectedCredit | None]:
    """Coalitions of a game, and credit by derivatives, whose calls are part of the budget."""
    if game.players == 0:
        none = np.zeros((0, 0), dtype=bool)
        return Masks(none, game.states(none), np.zeros(0), exact=True), None
    rng = derive_rng(seed, game.side)
    derivatives = None
    if _uses_derivatives(game, mask, estimator, coalitions):
        derivatives = game.expected_credit(coalitions, rng.initial_seed())
    if derivatives is not None:
        coalitions = max(4, coalitions - derivatives.calls - derivatives.evaluated)
        derivatives = derivatives if derivatives.players.any() else None
    return mask(game, coalitions, rng), derivatives


def _uses_derivatives(
    game: PlayableGame, mask: Mask, estimator: Estimator, coalitions: int
) -> TypeGuard[GraphGame]:
    """Whether credit by derivatives takes part: not where coalitions make the game exact."""
    paired = isinstance(mask.otherwise if isinstance(mask, Auto) else mask, Paired)
    if not (paired and isinstance(game, GraphGame) and isinstance(estimator, GaussianProcess)):
        return False
    if not components().derivatives or game.players < 2 or game.player_prior() is None:
        return False
    return not (isinstance(mask, Auto) and exact_within(game, coalitions))


def _require_memory_of_fit(game: PlayableGame, masks: Masks, estimator: Estimator) -> None:
    estimator = _estimator_of(estimator, masks)
    memory: Callable[[int, int], int] | None = getattr(estimator, "memory", None)
    if memory is not None and masks.credit is None:
        coalitions, players = masks.rows.shape
        require_memory(game.memory, memory(coalitions, players), coalitions, players)


def play_all(
    games: Sequence[PlayableGame],
    mask: Mask,
    estimator: Estimator,
    samples: int,
    share: float | None,
    seed: int,
    exact_by_look_ups: bool = False,
) -> list[PlayedGame]:
    """Evaluate each game with its share of the budget; unused calls go to the other game.

    With `exact_by_look_ups`, a game that look-ups make exact is given them, beside the budget.
    """

    def play_one(game: PlayableGame, budget: int) -> PlayedGame:
        if exact_by_look_ups and isinstance(game, GraphGame) and isinstance(mask, Auto):
            budget = _exact_by_look_ups(game, budget) or budget
        return play(game, mask, estimator, budget, seed)

    if len(games) == 1:
        return [play_one(games[0], samples)]
    features, nodes = games
    part = split_budget(samples, features.players, nodes.players, share)
    if features.players < 30 and 1 << features.players <= part:
        first = play_one(features, part)
        return [first, play_one(nodes, max(2, samples - features.calls))]
    second = play_one(nodes, max(2, samples - part))
    return [play_one(features, max(2, part, samples - nodes.calls)), second]


def _exact_by_look_ups(game: GraphGame, budget: int) -> int | None:
    """Calls that make a game exact, if the budget does not and they are look-ups."""
    # In this order: only games that may be exact are probed.
    if exact_within(game, budget) or not exact_within(game, MOST_LOOK_UPS):
        return None
    return game.most_look_ups if exact_within(game, game.most_look_ups) else None


def fit_all(played: list[PlayedGame], estimator: Estimator, outputs: Sequence[int]) -> list[Fit]:
    """Credit in every game; a Lasso selects players over all games together."""
    rows = [game.estimator_rows(outputs) for game in played]
    if isinstance(estimator, Lasso):
        return estimator.over(rows)
    fits = []
    for game, part in zip(played, rows, strict=True):
        stop_if_unwanted()
        of_game = _estimator_of(estimator, part.masks)
        if isinstance(of_game, GaussianProcess):
            fits.append(of_game(*part, game.known(outputs)))
        else:
            fits.append(of_game(*part))
    return fits


def _estimator_of(estimator: Estimator, masks: Masks) -> Estimator:
    """The estimator; least squares in place of a Gaussian process that would see too many rows.

    So many coalitions, which only look-ups have, leave it nothing to add, and cost it seconds.
    """
    many = len(masks.rows) > _MANY_ROWS and isinstance(estimator, GaussianProcess)
    return ControlledWLS() if many else estimator


def score_alone(played: list[PlayedGame], fits: list[Fit], row: int, output: int) -> float:
    """The model's score with only the players active that have credit."""
    score = 0.0
    for i, (game, fit) in enumerate(zip(played, fits, strict=True)):
        selected = (fit.values[row] != 0).numpy()[None]
        value = float(game.game.values(game.game.states(selected))[0, output])
        score += value if i == 0 else value - float(game.values[0, output])
    return score
