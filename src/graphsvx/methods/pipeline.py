"""Games with their evaluated coalitions (MASK) and the credit of their players (EXPL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, derive_rng
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.state_graph import TooManyStatesError
from graphsvx.errors import BudgetError
from graphsvx.estimators import (
    WLR,
    WLS,
    ControlledWLS,
    Estimator,
    Fit,
    GaussianProcess,
    Known,
    Lasso,
    PlayedRows,
)
from graphsvx.games import Game, GraphGame, LookupGame, require_memory
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.games.graph_game import MOST_LOOK_UPS
from graphsvx.masks import Auto, Mask, Masks, Paired
from graphsvx.masks.base import split_budget
from graphsvx.utils.context import components, give_up
from graphsvx.utils.exclusive import stop_if_unwanted

_FEW_EVEN_PAIRS = 128  # where derivatives tell of far players: neighbours need small sizes
_FITTING = 0.9  # of the coalitions whose states fitted: another draw has others
_MANY_ROWS = 1 << 14

_LINEAR = (GaussianProcess, WLS, WLR)  # exact where rows have their own credit

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

    @property
    def row(self) -> int:
        """Position of the target among the explained outputs."""
        return self.outputs.index(self.target)


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
        values = self.values[:, columns_of(outputs)]
        return PlayedRows(self.masks, values[2:], values[0], values[1])

    def known(self, outputs: Sequence[int]) -> Known:
        """What is known of the chosen outputs beside the values of coalitions."""
        columns, derivatives = columns_of(outputs), self.derivatives
        if derivatives is not None and derivatives.columns != columns:
            derivatives = None
        outcomes = (self.values.numpy(), columns) if self.game.probabilities else None
        return Known(self.game.player_prior(), derivatives, outcomes, self.game.memory)


def columns_of(outputs: Sequence[int]) -> slice:
    """The columns of the explained outputs: one of them, or all."""
    return slice(outputs[0], outputs[-1] + 1)


def explained_values(game: PlayableGame, outputs: Sequence[int]) -> Callable[[Bools], Floats]:
    """The function of coalitions to the chosen outputs."""

    def values(rows: Bools) -> Floats:
        stop_if_unwanted()
        return game.values(game.states(rows))[:, columns_of(outputs)].detach().double().numpy()

    return values


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedGame(PlayedGame):
    """A played game with the credit of its players."""

    fit: Fit
    measured: int = 0
    """Coalitions more, at which differences that players make were measured."""
    seconds: float = 0.0
    """How long its last increment took, with the fit; for limits by the clock only."""


# --- MASK and EXPL of the games of an explanation, within a shared budget of model calls ---


@dataclass(frozen=True, eq=False)
class Sampling:
    """MASK and EXPL: how coalitions of games are chosen, and credit is estimated from them."""

    mask: Mask
    estimator: Estimator
    seed: int

    def exact_within(self, game: PlayableGame, calls: int) -> bool:
        """Whether so many calls make a game exact."""
        return isinstance(self.mask, Auto) and self.mask.exact_within(game, calls)

    @property
    def selective(self) -> bool:
        """Whether few players are chosen, and the others get no credit."""
        return isinstance(self.estimator, Lasso)

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
        memory = getattr(self._estimator_for(masks), "memory", None)
        if memory is not None and masks.credit is None:
            require_memory(game.memory, memory(*masks.rows.shape), *masks.rows.shape)
        values = game.values(np.concatenate([game.end_states(), masks.states]))
        return PlayedGame(game, masks, values, budget, derivatives)

    def _choose(self, game: PlayableGame, coalitions: int) -> tuple[Masks, ExpectedCredit | None]:
        """Coalitions of a game, and credit by derivatives, whose calls are part of the budget.

        Derivatives take no part where coalitions make the game exact.
        """
        rng, derivatives, paired = derive_rng(self.seed, game.side), None, self.pairs_for_process
        if (
            paired is not None
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
        """Every game with its credit; a Lasso selects players over all games together."""
        if isinstance(self.estimator, Lasso):
            fits = self.estimator.over([game.rows(outputs) for game in played])
        else:
            fits = [self._fit(game, outputs) for game in played]
        return [FittedGame(**vars(game), fit=fit) for game, fit in zip(played, fits, strict=True)]

    def _fit(self, game: PlayedGame, outputs: Sequence[int]) -> Fit:
        stop_if_unwanted()
        estimator = self._estimator_for(game.masks)
        if isinstance(estimator, GaussianProcess):
            return estimator(*game.rows(outputs), game.known(outputs))
        return estimator(*game.rows(outputs))

    def _estimator_for(self, masks: Masks) -> Estimator:
        """The estimator; least squares in place of a Gaussian process with too many rows.

        So many coalitions, which only look-ups have, leave it nothing to add, and cost it seconds.
        """
        many = len(masks.rows) > _MANY_ROWS and self.fits_process
        return ControlledWLS() if many else self.estimator
