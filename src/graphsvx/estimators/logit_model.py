"""A model of the logits of a game whose scores are probabilities.

A probability is near 0 or 1 for most coalitions and changes fast for few, so its own dependence on
the players is hard to learn. Its logits are close to what message passing computes: the explained
node combines the k direct players that are active, each of them a mean over the d active players
that it hears, itself included. So logits are regressed on

    sizes       functions of the number of active players, and of k
    member      on_t for each direct player, on_j for each player
    share       on_t / (k + 1)
    own         on_t / (k + 1) / d_t
    heard       on_j times the sum over t of on_t a_tj / (k + 1) / d_t

with a ridge for each group of regressors. Scores of pairs that are left out say which ridges are
best. Shapley values of the model are in `logit_shapley`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.estimators.cholesky import cholesky, diagonal, inverse_from_cholesky
from graphsvx.games.base import PlayerPrior
from graphsvx.masks.base import Masks

Singles = NDArray[np.float32]

_FITTED = 1024  # coalitions that the regression sees at most,
_COMPARED = 256  # and on which ridges are compared
_LEAST_PROBABILITY = 1e-300
_LEAST_ODDS = 1e-12
_VARIANCES = (10.0, 0.1, 1.0, 0.003, 1.0, 0.1)  # of the groups, to begin with
_MOST_VARIANCE = 10.0
_NOISE, _LEAST_NOISE, _MOST_NOISE = 0.03, 3e-3, 3.0
_STEP = 10.0
_TURNS = 2
_MOST_ENTRIES = 1 << 21  # coalitions times players whose regressors are there at once
_SUM_OF_ONE = 1e-6


@dataclass(frozen=True, eq=False)
class Messages:
    """Who is heard by whom, as far as regressors need it."""

    direct: Ids
    """The m players that the explained node combines."""
    players: int
    edges: Singles | None
    """a, [m, M]: edges from each player into each direct one; None: not known."""
    others: Singles
    """[m]: messages of each direct player that are always there, its own included."""

    @staticmethod
    def of(prior: PlayerPrior) -> Messages:
        """As the prior of a game's players says."""
        direct, players = np.flatnonzero(prior.direct), len(prior.direct)
        if prior.passed is None or prior.received is None:
            return Messages(direct, players, None, np.ones(len(direct), dtype=np.float32))
        edges = prior.passed * prior.received[:, None]
        others = np.maximum(prior.received - edges.sum(1), 1)
        return Messages(direct, players, edges.astype(np.float32), others.astype(np.float32))

    def regressors(self, members: Bools) -> list[Singles]:
        """Of coalitions [coalitions, M], by group."""
        active = members.astype(np.float32)
        direct = active[:, self.direct]
        count = direct.sum(1)
        share = direct / (count + 1)[:, None]
        half = np.float32(0.5)
        groups = [self.size_terms(count, active.sum(1)), direct - half, share, active - half]
        if self.edges is not None:
            of_message = share / (self.others + active @ self.edges.T)
            groups += [of_message * self.others, (of_message @ self.edges) * active]
        return groups

    def size_terms(self, count: Singles, size: Singles) -> Singles:
        """Functions of the numbers of direct and of all active players, [..., 7]."""
        terms = np.empty((*size.shape, 7), dtype=np.float32)
        terms[..., 0] = 1
        terms[..., 1] = size / self.players
        terms[..., 2] = terms[..., 1] ** 2
        terms[..., 3] = count / len(self.direct)
        terms[..., 4] = terms[..., 3] ** 2
        terms[..., 5] = 1 / (count + 1)
        terms[..., 6] = np.log1p(count)
        return terms


@dataclass(frozen=True, eq=False)
class Link:
    """How logits and probabilities belong together."""

    exclusive: bool
    """Probabilities of classes that sum to 1; False: each output by itself."""
    columns: slice
    """The explained outputs."""

    @staticmethod
    def of(probabilities: Floats, columns: slice) -> Link:
        """Of the probabilities of all outputs, [coalitions, outputs]."""
        apart = np.abs(probabilities.sum(1) - 1).max(initial=0.0)
        return Link(probabilities.shape[1] > 1 and bool(apart < _SUM_OF_ONE), columns)

    def logits(self, probabilities: Floats) -> Floats:
        """[coalitions, logits]."""
        if not self.exclusive:
            odds: Floats = logit(probabilities[:, self.columns].clip(_LEAST_ODDS, 1 - _LEAST_ODDS))
            return odds
        logs = np.log(probabilities.clip(_LEAST_PROBABILITY))
        centred: Floats = logs - logs.mean(1, keepdims=True)
        return centred

    def scores(self, logits: Floats | Singles) -> Floats:
        """Probabilities of the explained outputs, [..., outputs]."""
        exact = logits.astype(np.float64)
        scores: Floats = softmax(exact, -1)[..., self.columns] if self.exclusive else expit(exact)
        return scores


@dataclass(frozen=True, eq=False)
class LogitModel:
    """A game g whose logits are linear in the regressors of `messages`."""

    messages: Messages
    link: Link
    coefficients: list[Singles]
    """[regressors, logits] of each group."""

    def at(self, members: Bools) -> Floats:
        """g at coalitions [coalitions, M], [coalitions, outputs]."""
        blocks, step = [], max(1, _MOST_ENTRIES // self.messages.players)
        for first in range(0, len(members), step):
            groups = self.messages.regressors(members[first : first + step])
            logits = np.add.reduce(
                [group @ part for group, part in zip(groups, self.coefficients, strict=True)]
            )
            blocks.append(self.link.scores(logits))
        return np.concatenate(blocks)


@dataclass(frozen=True, eq=False)
class FittedLogits:
    """A model of logits, and what it says of the coalitions that it was fitted to."""

    model: LogitModel
    scores: Floats
    """g at the empty, the full and the drawn coalitions, [coalitions, outputs]; at a pair that was
    fitted: by the others."""


def fit_logits(
    masks: Masks, prior: PlayerPrior, probabilities: Floats, columns: slice
) -> FittedLogits | None:
    """Fit to the `probabilities` of all outputs, [2 + rows, outputs], ends first.

    None: the regression is singular.
    """
    messages, link = Messages.of(prior), Link.of(probabilities, columns)
    ends = np.repeat([[False], [True]], messages.players, 1)
    count = min(len(masks.rows), _FITTED, _MOST_ENTRIES // messages.players) // 2 * 2
    members = np.concatenate([ends, masks.rows[:count]])
    logits = link.logits(probabilities[: count + 2])
    groups = messages.regressors(members)
    units = [1 / np.sqrt(max(float((group**2).sum(1).mean()), 1e-12)) for group in groups]
    grams = [_gram(group * np.float32(unit)) for group, unit in zip(groups, units, strict=True)]
    try:
        variances, noise = _best_ridges(grams, logits, link)
        inverse = _inverse(grams, variances, noise)
    except np.linalg.LinAlgError:
        return None
    solved = inverse @ logits
    coefficients = [
        (variance * unit**2 * (group.T @ solved)).astype(np.float32)
        for variance, unit, group in zip(variances, units, groups, strict=True)
    ]
    model = LogitModel(messages, link, coefficients)
    scores = [model.at(ends), link.scores(_without_own_pair(logits, inverse))]
    if count < len(masks.rows):
        scores.append(model.at(masks.rows[count:]))
    return FittedLogits(model, np.concatenate(scores))


def memory_of_logits(coalitions: int, players: int) -> int:
    """Bytes that a fit takes: regressors, and matrices of coalitions."""
    count = min(coalitions, _FITTED)
    return 24 * min(count * players, _MOST_ENTRIES) + 8 * (len(_VARIANCES) + 2) * count**2


def _gram(rows: Singles) -> Floats:
    gram: Floats = (rows @ rows.T).astype(np.float64)
    return gram


def _inverse(grams: list[Floats], variances: Floats, noise: float) -> Floats:
    """Inverse of the covariance of logits, [coalitions, coalitions]."""
    covariance = np.zeros_like(grams[0])
    for variance, gram in zip(variances, grams, strict=True):
        covariance += variance * gram
    diagonal(covariance)[:] += noise
    return inverse_from_cholesky(cholesky(covariance))


def _without_own_pair(logits: Floats, inverse: Floats) -> Floats:
    """Logits of each pair as all other coalitions predict them; the ends come first.

    With B the block of the inverse covariance K^-1 of a pair, it is missed by B^-1 (K^-1 y).
    """
    solved = (inverse @ logits)[2:].reshape(-1, 2, logits.shape[1])
    first = np.arange(2, len(logits), 2)
    places = np.stack([first, first + 1], 1)
    blocks = inverse[places[:, :, None], places[:, None, :]]
    predicted: Floats = logits[2:] - np.linalg.solve(blocks, solved).reshape(-1, logits.shape[1])
    return predicted


def _best_ridges(grams: list[Floats], logits: Floats, link: Link) -> tuple[Floats, float]:
    """Variances of the groups and of the noise, for which pairs left out are missed least."""
    pairs = len(logits) // 2 - 1
    pair_ids = np.unique(np.linspace(0, pairs - 1, min(pairs, _COMPARED // 2)).astype(np.int64))
    places = np.concatenate([[0, 1], np.stack([2 * pair_ids + 2, 2 * pair_ids + 3], 1).ravel()])
    part = [gram[np.ix_(places, places)] for gram in grams]
    logits = logits[places]
    scores = link.scores(logits[2:])

    def missed(variances: Floats, noise: float) -> float:
        inverse = _inverse(part, variances, noise)
        left = scores - link.scores(_without_own_pair(logits, inverse))
        return float(((left[::2] - left[1::2]) ** 2).sum())

    variances, noise = np.array(_VARIANCES[: len(grams)]), _NOISE
    least = missed(variances, noise)
    for _ in range(_TURNS):
        before = least
        for factor in (1 / _STEP, _STEP):
            changed = noise * factor
            if _LEAST_NOISE <= changed <= _MOST_NOISE:
                error = missed(variances, changed)
                if error < least:
                    least, noise = error, changed
                    break
        for group in range(len(grams) - 1, 0, -1):
            for factor in (1 / _STEP, _STEP):
                other = variances.copy()
                other[group] *= factor
                if other[group] <= _MOST_VARIANCE:
                    error = missed(other, noise)
                    if error < least:
                        least, variances = error, other
                        break
        if least == before:
            break
    return variances, noise
