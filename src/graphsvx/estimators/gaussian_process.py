"""Gaussian process surrogate g of a game, and the Shapley values of g in closed form.

The odd part of the game, which is all that Shapley values depend on, is taken for a draw from a
Gaussian process with one of the covariances of `kernels`; g is what a process expects that has
seen the pairs. Several processes that explain the pairs about as well are averaged. All pairs
known, g is the game and its values are the game's: the estimate is consistent. What else is known
of a game takes part as further evidence (`evidence`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.special import stdtrit
from torch import Tensor

from graphsvx.core.arrays import Floats
from graphsvx.estimators.covariance import LEAST, Coalitions, cholesky, diagonal
from graphsvx.estimators.evidence import Evidence, by_precision, combine, of_derivatives
from graphsvx.estimators.least_squares import WLS, Fit, PlayedRows
from graphsvx.estimators.logits import MOST_ENTRIES, fit_logits, memory_of_logits, simulated_shapley
from graphsvx.estimators.process import BLOCK, average_processes, corrected
from graphsvx.games.base import PlayerPrior, fits_memory
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked, Range
from graphsvx.utils.context import components, optional

_LEAST_PAIRS, _MOST_PAIRS = 512, 2048  # that g interpolates by default,
_PAIRS_A_PLAYER = 8  # and not more than these
_LEAST_FOR_LOGITS = 128  # coalitions that a model of logits is fitted to,
_MOST_FOR_LOGITS = 16  # and for each player at most
_MOST_DIRECT, _MOST_LOGITS = 512, 64  # beyond which its simulation takes seconds
_LEAST_SHARE = 0.01  # of the relevance of players whose credit is known by derivatives


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a game beside the explained values of coalitions."""

    prior: PlayerPrior | None = None
    derivatives: ExpectedCredit | None = None
    outcomes: tuple[Floats, slice] | None = None
    """Probabilities of all outputs, [2 + rows, outputs], of the empty, the full and the drawn
    coalitions, and the explained columns."""
    memory: int | None = None
    """Bytes that a fit to them may take; None: unlimited."""


_NOTHING = Known()


@dataclass(frozen=True)
class GaussianProcess(Checked):
    """A Gaussian process where rows are pairs of coalitions, least squares (`WLS`) elsewhere.

    Error bars: the posterior variance, scaled by how far pairs were missed that the covariance
    had not been learnt on, plus the differences between the processes that are averaged; wider
    where few pairs tell the scale, as the quantiles of Student's t distribution are.
    """

    pairs: Annotated[int | None, Range(8, 100_000)] = None
    """Pairs that g interpolates; least squares on the others corrects its residuals. None: a
    quarter of them, at least 512 and at most 2,048, or 8 for each player."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: several matrices of pairs and players, or least squares'.

        Without a model of logits, which is left out where memory does not allow it.
        """
        pairs = coalitions // 2
        interpolated = self._interpolated(pairs, players)
        if interpolated * players > MOST_ENTRIES:
            return WLS().memory(coalitions, players)
        return 8 * (players * (14 * interpolated + 2 * pairs) + 6 * interpolated**2)

    def _interpolated(self, pairs: int, players: int) -> int:
        """How many of the pairs g interpolates."""
        if self.pairs is not None:
            return min(pairs, self.pairs)
        most = min(_MOST_PAIRS, _PAIRS_A_PLAYER * players, MOST_ENTRIES // max(players, 1))
        return min(pairs, max(_LEAST_PAIRS, min(pairs // 4, most)))

    def __call__(
        self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor, knowledge: Known = _NOTHING
    ) -> Fit:
        """Credit from g, errors from held-out pairs; with whatever else is known of the game."""
        game = PlayedRows(masks, values, empty, full)
        if masks.exact or masks.pair is None:
            return WLS()(*game)
        evidence = self._with_derivatives(game, knowledge)
        around_logits = self._around_logits(game, knowledge)
        if around_logits is not None:
            evidence = by_precision([evidence, around_logits])
        return evidence.fit(game)

    def _around_logits(self, game: PlayedRows, knowledge: Known) -> Evidence | None:
        """Credit of a model of logits, and that of the game which is left without it.

        None: too few coalitions to tell logits, so many that they are not needed, or no memory.
        """
        prior, derivatives, outcomes = knowledge.prior, knowledge.derivatives, knowledge.outcomes
        coalitions, players = game.masks.rows.shape
        if prior is None or outcomes is None or not components().logits:
            return None
        needed = self.memory(coalitions, players) + memory_of_logits(coalitions, players)
        # With few coalitions logits are not told, with very many they are not needed.
        if (
            not _LEAST_FOR_LOGITS <= coalitions <= _MOST_FOR_LOGITS * players
            or not 2 <= np.count_nonzero(prior.direct) <= _MOST_DIRECT
            or outcomes[0].shape[1] > _MOST_LOGITS
            or not fits_memory(knowledge.memory, needed)
        ):
            return None
        logits = fit_logits(game.masks, prior, *outcomes)
        if logits is None:
            return None
        model, logit_scores = logits
        credit, variance = simulated_shapley(model, coalitions)
        if derivatives is not None:
            left = np.where(derivatives.players[:, None], derivatives.values - credit, 0.0)
            derivatives = replace(derivatives, values=left)
        scores = torch.from_numpy(logit_scores)
        rest = self._with_derivatives(_without(game, scores), Known(prior, derivatives))
        if rest.held_out_r2 is not None:
            unexplained = _odd_squares(game.values - scores[2:]) / _odd_squares(game.values)
            rest = replace(rest, held_out_r2=1 - unexplained * (1 - rest.held_out_r2))
        return rest.plus(credit.T, variance.T, "logits of messages")

    def _with_derivatives(self, game: PlayedRows, knowledge: Known) -> Evidence:
        """Credit by derivatives, combined with that of the game which is left without it."""
        derivatives, prior = knowledge.derivatives, knowledge.prior
        if derivatives is None:
            return self._of_values(game, prior)
        credit = torch.from_numpy(derivatives.values)
        ends = torch.stack([torch.zeros_like(credit[0]), credit.sum(0)])
        blocks = torch.split(torch.from_numpy(game.masks.rows), BLOCK)
        shared = torch.cat([ends, *(rows.to(credit.dtype) @ credit for rows in blocks)])
        left = None if prior is None else _without_known(prior, derivatives)
        rest = self._of_values(_without(game, shared), left)
        of_values = rest.plus(derivatives.values.T, np.zeros_like(derivatives.values.T))
        return combine(of_values, of_derivatives(derivatives))

    def _of_values(self, game: PlayedRows, prior: PlayerPrior | None) -> Evidence:
        """Credit from g alone, or from least squares where these explain everything."""
        coalitions, players = game.masks.rows.shape
        # More would take gigabytes: least squares see players in blocks.
        fits = self._interpolated(coalitions // 2, players) * players <= MOST_ENTRIES
        if players >= 3 and fits:
            # Raised for pairs that no kernel can tell apart.
            with optional("credit is of weighted least squares", np.linalg.LinAlgError):
                evidence = self._processed(game, prior)
                if evidence is not None:
                    return evidence
        return Evidence.of(WLS()(*game))

    def _processed(self, game: PlayedRows, prior: PlayerPrior | None) -> Evidence | None:
        """By processes; None where least squares explain everything."""
        masks, values, empty, full = game
        odd = _odd_part(values, empty, full)
        count = self._interpolated(len(odd) - 1, masks.rows.shape[1])
        signs = np.ones((count + 1, masks.rows.shape[1]))
        signs[1:] = 2.0 * masks.rows[: 2 * count : 2] - 1
        if _is_linear(signs, odd[: count + 1]):
            return None
        direct = None if prior is None else prior.direct
        relevance = prior.relevance if prior is not None and components().walk_prior else None
        seen = odd[: count + 1]
        likeliest, evidence = average_processes(Coalitions.of(signs, direct), seen, relevance)
        if count + 1 < len(odd) and components().residuals:
            evidence = corrected(likeliest, evidence, masks, odd)
        wider = float(stdtrit(count + 2, 0.975) / stdtrit(np.inf, 0.975))
        evidence = evidence.widened(np.full(odd.shape[1], wider**2))
        # Spread the rounding error evenly, so that credit is efficient.
        missing = 2 * odd[0] - evidence.credit.sum(1)
        return replace(evidence, credit=evidence.credit + missing[:, None] / len(signs.T))


def _without(game: PlayedRows, other: Tensor) -> PlayedRows:
    """The game less another one, given by its values [2 + rows, outputs]; both ends come first."""
    return PlayedRows(
        game.masks, game.values - other[2:], game.empty - other[0], game.full - other[1]
    )


def _without_known(prior: PlayerPrior, derivatives: ExpectedCredit) -> PlayerPrior:
    """The prior of the game that is left when credit by derivatives is subtracted."""
    on = derivatives.players
    usual = float(np.sqrt((prior.relevance[on] ** 2).mean()))
    left = np.maximum(derivatives.open_share, _LEAST_SHARE) * usual
    return PlayerPrior(np.where(on, left, prior.relevance), prior.direct)


def _odd_part(values: Tensor, empty: Tensor, full: Tensor) -> Floats:
    """Half the difference of the two values of each pair, [pairs, outputs].

    The first pair is the full and the empty coalition, which makes g efficient.
    """
    y = values.numpy()
    odd: Floats = np.concatenate([(full - empty).numpy()[None], y[::2] - y[1::2]]) / 2
    return odd


def _odd_squares(values: Tensor) -> Floats:
    """Sums of the squares of the differences of pairs, [outputs]."""
    squares: Floats = (values[::2] - values[1::2]).square().sum(0).clamp(min=LEAST).numpy()
    return squares


def _is_linear(signs: Floats, odd: Floats) -> bool:
    """Whether some credit explains all of many pairs to rounding."""
    if len(signs) < 2 * signs.shape[1]:
        return False
    gram = signs.T @ signs
    diagonal(gram)[:] *= 1 + 1e-12
    credit, _ = lapack.dpotrs(cholesky(gram), signs.T @ odd, lower=1)
    left = np.abs(odd - signs @ credit).max(0)
    return bool((left <= 1e-9 * np.abs(odd).max(0) + 1e-12).all())
