"""Games with their evaluated coalitions, and EXPL: the credit of their players."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from graphsvx.core.arrays import Bools, Floats
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.estimators import Estimator, Fit, GaussianProcess
from graphsvx.estimators.controls import ControlledWLS
from graphsvx.estimators.gaussian_process import Known
from graphsvx.estimators.lasso import Lasso
from graphsvx.estimators.least_squares import PlayedRows
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.games.graph_game import GraphGame
from graphsvx.games.lookup_game import LookupGame
from graphsvx.masks import Masks
from graphsvx.utils.exclusive import stop_if_unwanted

_MANY_ROWS = 1 << 14

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


def fit_games(
    played: Sequence[PlayedGame], estimator: Estimator, outputs: Sequence[int]
) -> list[FittedGame]:
    """Every game with its credit; a Lasso selects players over all games together."""
    if isinstance(estimator, Lasso):
        fits = estimator.over([game.rows(outputs) for game in played])
    else:
        fits = [_fit(game, estimator_for(game.masks, estimator), outputs) for game in played]
    return [FittedGame(**vars(game), fit=fit) for game, fit in zip(played, fits, strict=True)]


def _fit(game: PlayedGame, estimator: Estimator, outputs: Sequence[int]) -> Fit:
    stop_if_unwanted()
    if isinstance(estimator, GaussianProcess):
        return estimator(*game.rows(outputs), game.known(outputs))
    return estimator(*game.rows(outputs))


def estimator_for(masks: Masks, estimator: Estimator) -> Estimator:
    """The estimator; least squares in place of a Gaussian process with too many rows.

    So many coalitions, which only look-ups have, leave it nothing to add, and cost it seconds.
    """
    many = len(masks.rows) > _MANY_ROWS and isinstance(estimator, GaussianProcess)
    return ControlledWLS() if many else estimator
