"""Gaussian process surrogate g of a game, and the Shapley values of g in closed form.

The odd part of the game, which is all that Shapley values depend on, is taken for a draw from a
Gaussian process with one of the covariances of `kernels`; g is what a process expects that has
seen the pairs. Several processes that explain the pairs about as well are averaged. All pairs
known, g is the game and its values are the game's: the estimate is consistent.
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
from graphsvx.estimators.averaged import averaged, with_known
from graphsvx.estimators.cholesky import cholesky, diagonal
from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.joined import Joined
from graphsvx.estimators.least_squares import WLS, Fit, surrogate
from graphsvx.estimators.log_odds import expected_square
from graphsvx.estimators.logit_model import fit_logits, memory_of_logits
from graphsvx.estimators.logit_shapley import simulated_shapley
from graphsvx.estimators.process_average import Average, Corrected, Pairs, average_processes
from graphsvx.estimators.walks import MOST_ENTRIES, Walks
from graphsvx.games.base import fits_memory
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked, Range
from graphsvx.utils.given_up import optional

_LEAST_PAIRS, _MOST_PAIRS = 512, 2048  # that g interpolates by default,
_PAIRS_A_PLAYER = 8  # and not more than these
_ROWS_AT_ONCE = 512
# Pairs that are interpolated times players: more would take gigabytes, and are left to least
# squares, which sees players in blocks.
_MOST_ENTRIES = 1 << 21
_LEAST_FOR_LOGITS = 128  # coalitions that a model of logits is fitted to,
_MOST_FOR_LOGITS = 16  # and for each player at most
_MOST_DIRECT, _MOST_LOGITS = 512, 64  # beyond which its simulation takes seconds


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
        if interpolated * players > _MOST_ENTRIES:
            return WLS().memory(coalitions, players)
        return 8 * (players * (14 * interpolated + 2 * pairs) + 3 * interpolated**2)

    def _interpolated(self, pairs: int, players: int) -> int:
        """How many of the pairs g interpolates."""
        if self.pairs is not None:
            return min(pairs, self.pairs)
        most = min(_MOST_PAIRS, _PAIRS_A_PLAYER * players, _MOST_ENTRIES // max(players, 1))
        return min(pairs, max(_LEAST_PAIRS, min(pairs // 4, most)))

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit from g, errors from held-out pairs; averaged with a model of logits, if any."""
        fit = self._fitted(masks, values, empty, full)
        other = self._around_logits(masks, values, empty, full)
        return fit if other is None else averaged(masks, values, empty, [fit, other])

    def _around_logits(
        self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor
    ) -> Fit | None:
        """Credit of a model of logits, and that of the game which is left without it.

        None: too few coalitions to tell logits, so many that they are not needed, or no memory.
        """
        prior, outcomes = masks.prior, masks.outcomes
        coalitions, players = masks.rows.shape
        if prior is None or outcomes is None or masks.pair is None or masks.exact:
            return None
        if not _tells_logits(coalitions, players):
            return None
        if not 2 <= np.count_nonzero(prior.direct) <= _MOST_DIRECT:
            return None
        needed = self.memory(coalitions, players) + memory_of_logits(coalitions, players)
        many = outcomes.probabilities.shape[1] > _MOST_LOGITS
        if many or not fits_memory(outcomes.memory, needed):
            return None
        logits = fit_logits(masks, outcomes.probabilities, outcomes.columns)
        if logits is None:
            return None
        credit, variance = simulated_shapley(logits.model, coalitions)
        if prior.expected is not None:
            left = np.where(prior.expected.players[:, None], prior.expected.values - credit, 0.0)
            prior = replace(prior, expected=replace(prior.expected, values=left))
        left_of = torch.from_numpy(logits.scores)
        rest = self._fitted(
            replace(masks, prior=prior, probabilities=False),
            values - left_of[2:], empty - left_of[0], full - left_of[1],
        )  # fmt: skip
        return with_known(rest, credit, variance, values, left_of[2:])

    def _fitted(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit from g alone."""
        if masks.prior is not None and masks.prior.expected is not None:
            return self._around(masks.prior.expected, masks, values, empty, full)
        coalitions, players = masks.rows.shape
        fits = self._interpolated(coalitions // 2, players) * players <= _MOST_ENTRIES
        if masks.pair is not None and not masks.exact and players >= 3 and fits:
            # Raised for pairs that no kernel can tell apart.
            with optional("credit is of weighted least squares", np.linalg.LinAlgError):
                fit = self._processed(masks, values, empty, full)
                if fit is not None:
                    return fit
        return WLS()(masks, values, empty, full)

    def _around(
        self, expected: ExpectedCredit, masks: Masks, values: Tensor, empty: Tensor, full: Tensor
    ) -> Fit:
        """Credit that is expected, and that of the game which is left without it."""
        rows, credit = masks.rows, torch.from_numpy(expected.values)
        shared = torch.empty_like(values)
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            part = torch.from_numpy(rows[first : first + _ROWS_AT_ONCE]).to(credit.dtype)
            shared[first : first + _ROWS_AT_ONCE] = part @ credit
        prior = None if masks.prior is None else masks.prior.without_expected()
        rest = self._fitted(
            replace(masks, prior=prior, probabilities=False),
            values - shared, empty, full - credit.sum(0),
        )  # fmt: skip
        joined = Joined.of(expected, rest)
        fit = surrogate(
            masks, values, empty, torch.from_numpy(joined.credit),
            torch.from_numpy(np.sqrt(joined.variance)),
        )  # fmt: skip
        return replace(
            fit,
            model=f"derivatives at {expected.coalitions} coalitions for "
            f"{np.count_nonzero(expected.players):,} players; {rest.model or 'linear'}",
            held_out_r2=rest.held_out_r2,
            variance_of_sums=joined.variance_of_sums if rest.variance_of_sums else None,
        )

    def _processed(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit | None:
        """The fit; None where least squares explain everything."""
        odd = _odd_part(values, empty, full)
        count = self._interpolated(len(odd) - 1, masks.rows.shape[1])
        signs = np.ones((count + 1, masks.rows.shape[1]))
        signs[1:] = 2.0 * masks.rows[: 2 * count : 2] - 1
        if _is_linear(signs, odd[: count + 1]):
            return None
        prior = masks.prior
        direct, relevance, walks = None, None, None
        if prior is not None:
            direct, relevance = prior.direct, prior.relevance
            if prior.passed is not None and prior.passed.size <= MOST_ENTRIES:
                walks = Walks.of(np.flatnonzero(direct), prior.passed)
        coalitions = Coalitions.of(signs, direct, walks)
        square = None
        if masks.probabilities:
            square = expected_square(
                np.concatenate([[empty.numpy(), full.numpy()], values.numpy()])
            )
        pairs = Pairs(coalitions, odd[: count + 1], _pair_weights(masks, count), square)
        average = average_processes(pairs, relevance)
        posterior: Average | Corrected = average
        if count + 1 < len(odd):
            posterior = Corrected.of(average, masks, odd)
        wider = float(stdtrit(count + 2, 0.975) / stdtrit(np.inf, 0.975))
        credit = posterior.credit
        # Spread the rounding error evenly, so that credit is efficient.
        credit = credit + (2 * odd[0] - credit.sum(0)) / len(credit)
        fit = surrogate(
            masks, values, empty, torch.from_numpy(credit.T.copy()),
            torch.from_numpy(wider * np.sqrt(posterior.variance.T)),
        )  # fmt: skip
        return replace(
            fit,
            model=average.description(),
            held_out_r2=torch.from_numpy(average.held_out_r2),
            variance_of_sums=lambda weights: wider**2 * posterior.variance_of_sums(weights),
        )


def _tells_logits(coalitions: int, players: int) -> bool:
    """Whether a model of logits is worth its time: not with few coalitions, nor with very many."""
    return _LEAST_FOR_LOGITS <= coalitions <= _MOST_FOR_LOGITS * players


def _pair_weights(masks: Masks, count: int) -> Floats:
    """Regression weights of the first `count` pairs, after 0 for the full coalition."""
    return np.append(0.0, masks.weights[: 2 * count : 2])


def _odd_part(values: Tensor, empty: Tensor, full: Tensor) -> Floats:
    """Half the difference of the two values of each pair, [pairs, outputs].

    The first pair is the full and the empty coalition, which makes g efficient.
    """
    y = values.numpy()
    odd: Floats = np.concatenate([(full - empty).numpy()[None], y[::2] - y[1::2]]) / 2
    return odd


def _is_linear(signs: Floats, odd: Floats) -> bool:
    """Whether some credit explains all of many pairs to rounding."""
    if len(signs) < 2 * signs.shape[1]:
        return False
    gram = signs.T @ signs
    diagonal(gram)[:] *= 1 + 1e-12
    credit, _ = lapack.dpotrs(cholesky(gram), signs.T @ odd, lower=1)
    left = np.abs(odd - signs @ credit).max(0)
    return bool((left <= 1e-9 * np.abs(odd).max(0) + 1e-12).all())
