"""Gaussian process surrogate g of a game, and the Shapley values of g in closed form.

The odd part of the game, which is all that Shapley values depend on, is taken for a draw from a
Gaussian process with one of the covariances of `kernels`; g is what a process expects that has
seen the pairs. Several processes that explain the pairs about as well are averaged. All pairs
known, g is the game and its values are the game's: the estimate is consistent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.special import expit, logit, stdtrit
from torch import Tensor

from graphsvx.core.arrays import Floats
from graphsvx.estimators.cholesky import cholesky, diagonal
from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.least_squares import WLS, Fit, surrogate
from graphsvx.estimators.logit_model import fit_logits, memory_of_logits
from graphsvx.estimators.logit_shapley import simulated_shapley
from graphsvx.estimators.process_average import Average, Corrected, Pairs, average_processes
from graphsvx.estimators.walks import MOST_ENTRIES, Walks
from graphsvx.games.base import fits_memory
from graphsvx.games.derivatives import DOUBT_OF_SLOPES, ExpectedCredit
from graphsvx.masks.base import Masks
from graphsvx.utils.components import components
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
        if not (components().logits and _tells_logits(coalitions, players)):
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
            direct = prior.direct
            relevance = prior.relevance if components().walk_prior else None
            small = prior.passed is not None and prior.passed.size <= MOST_ENTRIES
            if prior.passed is not None and small and components().walk_kernel:
                walks = Walks.of(np.flatnonzero(direct), prior.passed)
        coalitions = Coalitions.of(signs, direct, walks)
        square = None
        if masks.probabilities and components().log_odds:
            square = expected_square(
                np.concatenate([[empty.numpy(), full.numpy()], values.numpy()])
            )
        pairs = Pairs(coalitions, odd[: count + 1], _pair_weights(masks, count), square)
        average = average_processes(pairs, relevance)
        posterior: Average | Corrected = average
        if count + 1 < len(odd) and components().residuals:
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


# Fits of different models to the same coalitions, averaged; games that are partly known.


_LEAST = 1e-300


def with_known(
    rest: Fit, credit: Floats, variance: Floats, values: Tensor, explained: Tensor
) -> Fit:
    """The fit `rest` to what a known game leaves, and that game's `credit` [M, outputs].

    `variance` [M, outputs]: of the credit; `explained` [rows, outputs]: the known game's values.
    """
    errors = torch.from_numpy(np.sqrt(rest.errors.numpy() ** 2 + variance.T))
    held_out = rest.held_out_r2
    if held_out is not None:
        missed = _odd_squares(values - explained) / _odd_squares(values).clamp(min=_LEAST)
        held_out = 1 - missed * (1 - held_out)
    of_rest = rest.variance_of_sums

    def variance_of_sums(weights: Floats) -> Floats:
        of_known: Floats = variance.T @ weights**2
        return of_known if of_rest is None else of_rest(weights) + of_known

    return replace(
        rest, values=rest.values + torch.from_numpy(credit.T.copy()), errors=errors,
        model=f"logits of messages; {rest.model or 'linear'}", held_out_r2=held_out,
        variance_of_sums=None if of_rest is None else variance_of_sums,
    )  # fmt: skip


def averaged(masks: Masks, values: Tensor, empty: Tensor, fits: Sequence[Fit]) -> Fit:
    """Each fit with a weight in proportion to its precision, by output; variances as well.

    They have seen the same coalitions, so that their errors are not independent.
    """
    usable = [fit for fit in fits if bool(torch.isfinite(fit.errors).all())]
    if len(usable) < 2:
        return usable[0] if usable else fits[0]
    total = torch.stack([fit.errors.square().sum(1) for fit in usable])  # [fits, outputs]
    precision = 1 / total.clamp(min=_LEAST)
    weights = precision / precision.sum(0)
    credit = sum(w[:, None] * fit.values for w, fit in zip(weights, usable, strict=True))
    variance = sum(w[:, None] * fit.errors.square() for w, fit in zip(weights, usable, strict=True))
    of_sums = [fit.variance_of_sums for fit in usable]
    shares = weights.numpy()[:, :, None]

    def variance_of_sums(sums: Floats) -> Floats:
        parts = [of_sum(sums) for of_sum in of_sums if of_sum is not None]
        total: Floats = (shares * np.stack(parts)).sum(0)
        return total

    r2 = [fit.held_out_r2 for fit in usable if fit.held_out_r2 is not None]
    return replace(
        surrogate(masks, values, empty, torch.as_tensor(credit), torch.as_tensor(variance).sqrt()),
        model=" | ".join(fit.model or "linear" for fit in usable),
        held_out_r2=(weights * torch.stack(r2)).sum(0) if len(r2) == len(usable) else None,
        variance_of_sums=None if None in of_sums else variance_of_sums,
    )


def _odd_squares(values: Tensor) -> Tensor:
    """Sum of the squares of the differences of pairs, [outputs]."""
    return (values[::2] - values[1::2]).square().sum(0)


# Credit that was expected from derivatives, joined with what the values of coalitions say.


_LEAST_VARIANCE = 1e-300
_SHARPEST = 1e-6  # of the variance by values: no expectation is taken for more precise


@dataclass(frozen=True, eq=False)
class Joined:
    """Two estimates of the credit of the same players, each with the weight of its precision.

    Values of coalitions tell the credit of all these players together much better than that of
    each: their sum stays what the values say, and the precisions decide who gets what of it.
    """

    credit: Floats
    """[outputs, M]."""
    variance: Floats
    """[outputs, M]."""
    share: Floats
    """[outputs, M]: of a change of the sum of the expected players, how much is each player's."""
    rest: Fit

    @staticmethod
    def of(expected: ExpectedCredit, rest: Fit) -> Joined:
        """`rest`: the fit to the game without the expected credit."""
        change, by_values = rest.values.numpy(), rest.errors.numpy() ** 2
        by_derivatives = np.maximum(
            (DOUBT_OF_SLOPES * expected.errors.T) ** 2, _SHARPEST * by_values
        )
        weight = by_derivatives / np.maximum(by_derivatives + by_values, _LEAST_VARIANCE)
        has_variance = expected.players & np.isfinite(by_values)  # else values decide
        weight = np.where(has_variance, weight, 1.0)
        variance = weight * by_values
        share = np.where(has_variance, variance, 0.0)
        share /= np.maximum(share.sum(1, keepdims=True), _LEAST_VARIANCE)
        left = ((1 - weight) * change).sum(1, keepdims=True)
        return Joined(expected.values.T + weight * change + left * share, variance, share, rest)

    def variance_of_sums(self, sums: Floats) -> Floats:
        """Variances of weighted sums of credit, [outputs, sums], for weights [M, sums]."""
        if self.rest.variance_of_sums is None:
            raise ValueError("the fit has no variances of sums")
        rows = []
        for output, (share, variance) in enumerate(zip(self.share, self.variance, strict=True)):
            on = share[:, None] > 0
            common = np.where(on, share @ sums, sums)
            apart = np.where(on, sums - common, 0.0)
            rows.append(self.rest.variance_of_sums(common)[output] + variance @ apart**2)
        return np.stack(rows)


# What log-odds say of the probabilities of coalitions that were not evaluated.
#
# Few probabilities that are all close to 0 or 1 look alike although their log-odds may differ by
# tens, so that another coalition's may well have the other sign. If log-odds are normal, with the
# mean and variance of those that were seen, another one has Student's t distribution. Few log-odds
# do not tell whether they are: where most coalitions have about the same, and a rare one far lower,
# their tail is heavier. So the distribution has fewer degrees of freedom than there are log-odds.


_QUANTILES = (np.arange(256) + 0.5) / 256
_FREEDOM = 16  # log-odds for one degree of freedom,
_LEAST_FREEDOM = 2  # and not fewer than these
_ROUNDING = 1e-16  # probabilities closer to 1 are 1 in double precision


def expected_square(probabilities: Floats) -> Floats:
    """Mean square of half the difference of two other coalitions' values, [outputs].

    `probabilities` [coalitions, outputs]; values that several coalitions have count once.
    """
    return np.array([_variance(np.unique(column)) / 2 for column in probabilities.T])


def _variance(probabilities: Floats) -> float:
    """Predictive variance of another probability; 0 if all are the same."""
    count = len(probabilities)
    if count < 2:
        return 0.0
    log_odds = logit(probabilities.clip(_ROUNDING, 1 - _ROUNDING))
    spread = log_odds.std(ddof=1) * np.sqrt(1 + 1 / count)
    freedom = min(count - 1, max(_LEAST_FREEDOM, count / _FREEDOM))
    return float(expit(log_odds.mean() + spread * stdtrit(freedom, _QUANTILES)).var())
