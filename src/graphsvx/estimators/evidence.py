"""Shapley values of a game by one source of evidence, and combinations of several.

Sources are the values of pairs of coalitions (`process_average`), derivatives
(`games.derivatives`), a model of logits (`logit_model`) and marginal contributions (`differences`).
Independent sources are combined by inverse variances, player by player; those that have seen the
same values are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.covariance import LEAST
from graphsvx.estimators.least_squares import Fit, PlayedRows, surrogate
from graphsvx.games.derivatives import DOUBT_OF_SLOPES, ExpectedCredit

_SHARPEST = 1e-6  # of the variance by values: nothing else is taken for more precise
_SIGNIFICANT = 2.0  # standard errors that estimates are apart by chance


@dataclass(frozen=True, eq=False)
class Evidence:
    """What one source says of the credit of some or all players, with the errors' covariance."""

    credit: Floats
    """[outputs, m]."""
    variance: Floats
    """[outputs, m]; NaN where it is not known."""
    variance_of_sums: Callable[[Floats], Floats]
    """Variances of weighted sums of credit, [outputs, sums], from weights [m, sums]; NaN where they
    are not known."""
    source: str | None = None
    """In words; None: a linear model."""
    players: Ids | None = None
    """The m players in ascending order; None: all."""
    unbiased: bool = True
    """Not by a model of the game, nor to first order: where it disagrees, others are wrong."""
    held_out_r2: Floats | None = None
    """Share of the variance of held-out pairs that was predicted, [outputs]."""

    @staticmethod
    def of(fit: Fit) -> Evidence:
        """What an estimator says."""

        def unknown(weights: Floats) -> Floats:
            return np.full((len(fit.values), weights.shape[1]), np.nan)

        values, variance = fit.values.numpy(), fit.errors.numpy() ** 2
        return Evidence(values, variance, fit.variance_of_sums or unknown, fit.model)

    def fit(self, game: PlayedRows) -> Fit:
        """As the fit to a game."""
        credit, errors = torch.from_numpy(self.credit), torch.from_numpy(np.sqrt(self.variance))
        fit = surrogate(game.masks, game.values, game.empty, credit, errors)
        held_out = None if self.held_out_r2 is None else torch.from_numpy(self.held_out_r2)
        return replace(
            fit, model=self.source, held_out_r2=held_out, variance_of_sums=self.variance_of_sums
        )

    def widened(self, factor: Floats) -> Evidence:
        """With variances times `factor` [outputs]."""

        def of_sums(weights: Floats) -> Floats:
            return factor[:, None] * self.variance_of_sums(weights)

        return replace(self, variance=factor[:, None] * self.variance, variance_of_sums=of_sums)

    def plus(self, credit: Floats, variance: Floats, source: str | None = None) -> Evidence:
        """Of this game and another one, whose `credit` has independent errors, [outputs, M]."""

        def of_sums(weights: Floats) -> Floats:
            return self.variance_of_sums(weights) + variance @ weights**2

        return replace(
            self,
            credit=self.credit + credit,
            variance=self.variance + variance,
            source=self.source if source is None else f"{source}; {self.source or 'linear'}",
            variance_of_sums=of_sums,
        )


def of_derivatives(expected: ExpectedCredit) -> Evidence:
    """Derivatives as evidence; slopes have heavy tails, so that their errors are understated."""
    players = np.flatnonzero(expected.players)
    variance = (DOUBT_OF_SLOPES * expected.errors[players].T) ** 2

    def of_sums(weights: Floats) -> Floats:
        total: Floats = variance @ weights**2
        return total

    return Evidence(
        expected.values[players].T,
        variance,
        of_sums,
        f"derivatives at {expected.coalitions} coalitions for {len(players):,} players",
        players,
        unbiased=False,
    )


def average(parts: Sequence[Evidence], weights: Floats) -> Evidence:
    """The mean of sources that have seen the same values; `weights` [parts, outputs].

    Their errors are not independent: variances are averaged, and differences between the sources
    are added to them.
    """
    credit = np.einsum("po,pom->om", weights, [part.credit for part in parts])
    apart = [part.credit - credit for part in parts]
    squares = [part.variance + off**2 for part, off in zip(parts, apart, strict=True)]

    def variance_of_sums(sums: Floats) -> Floats:
        variances = [
            part.variance_of_sums(sums) + (off @ sums) ** 2
            for part, off in zip(parts, apart, strict=True)
        ]
        total: Floats = np.einsum("po,pos->os", weights, variances)
        return total

    held_out = [part.held_out_r2 for part in parts if part.held_out_r2 is not None]
    return Evidence(
        credit,
        np.einsum("po,pom->om", weights, squares),
        variance_of_sums,
        " | ".join(dict.fromkeys(part.source or "linear" for part in parts)),
        held_out_r2=(weights * held_out).sum(0) if len(held_out) == len(parts) else None,
    )


def by_precision(parts: Sequence[Evidence]) -> Evidence:
    """`average` with the inverse variance of all credit together as weights, by output."""
    usable = [part for part in parts if np.isfinite(part.variance).all()]
    if len(usable) < 2:
        return usable[0] if usable else parts[0]
    precision = 1 / np.maximum([part.variance.sum(1) for part in usable], LEAST)
    return average(usable, precision / precision.sum(0))


def doubt(total: Evidence, part: Evidence) -> Floats:
    """By what factor the variances of `total` are too small, as `part` says, [outputs].

    At least 1; of what their squared distance exceeds the variance of `part` by, as far as that is
    not by chance.
    """
    if not part.unbiased:
        return np.ones(len(total.credit))
    squares = (total.credit[:, part.players] - part.credit) ** 2
    apart = (squares - part.variance).sum(1)
    by_chance = _SIGNIFICANT * np.sqrt(2 * (part.variance**2).sum(1))
    of_whole = np.maximum(total.variance[:, part.players].sum(1), LEAST)
    factor: Floats = np.maximum((apart - by_chance) / of_whole, 1.0)
    return factor


def combine(total: Evidence, part: Evidence) -> Evidence:
    """Independent evidence on all players and on some, each with the weight of its precision.

    Where both are further apart than their errors allow, variances of `total` are taken for larger.
    The sum of all credit stays that of `total`: who has the larger variance gets more of the gap,
    among the players of `part` alone where that is no unbiased estimate, since values tell the
    credit of all of these together better than that of each.
    """
    factor = doubt(total, part)[:, None]
    players = np.arange(total.credit.shape[1]) if part.players is None else part.players
    doubted = factor * total.variance
    of_whole = doubted[:, players]
    is_known = np.isfinite(of_whole)  # else `total` decides
    of_part = np.maximum(part.variance, _SHARPEST * total.variance[:, players])
    weight = np.zeros_like(total.credit)
    weight[:, players] = np.where(is_known, of_whole / np.maximum(of_whole + of_part, LEAST), 0.0)
    credit, variance = total.credit.copy(), total.variance.copy()
    credit[:, players] += weight[:, players] * (part.credit - credit[:, players])
    variance[:, players] = np.where(is_known, weight[:, players] * of_part, variance[:, players])
    share = np.zeros_like(credit) if not part.unbiased else np.nan_to_num(doubted)
    share[:, players] = np.where(is_known, variance[:, players], 0.0)
    share /= np.maximum(share.sum(1, keepdims=True), LEAST)
    credit += share * (total.credit.sum(1) - credit.sum(1))[:, None]

    def variance_of_sums(weights: Floats) -> Floats:
        rows = []
        for output in range(len(share)):
            # The sum of those who share a gap is that of `total`; what is apart from it is joined.
            sharing = share[output][:, None]
            common = np.where(sharing > 0, share[output] @ weights, 0.0)
            apart, mine = weights - common, weight[output][:, None]
            by_total = total.variance_of_sums((1 - mine) * apart + common)[output]
            by_part = part.variance_of_sums((mine * apart)[players])[output]
            rows.append(factor[output] * by_total + by_part)
        return np.stack(rows)

    sources = (total.source or "linear", part.source or "linear")
    return Evidence(
        credit,
        variance,
        variance_of_sums,
        "; ".join(sources if part.unbiased else reversed(sources)),
        held_out_r2=total.held_out_r2,
    )
