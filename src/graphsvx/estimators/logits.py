"""A model of the logits of a game whose scores are probabilities, and its Shapley values.

A probability is near 0 or 1 for most coalitions and changes fast for few, so its own dependence on
the players is hard to learn. Its logits are close to what message passing computes: the explained
node combines the k direct players that are active, each of them a mean over the d active players
that it hears, itself included. So logits are regressed on

    sizes       functions of the number of active players, and of k
    member      on_t for each direct player, on_j for each player
    share       on_t / (k + 1)
    own         on_t / (k + 1) / d_t
    heard       on_j times the sum over t of on_t a_tj / (k + 1) / d_t

with a ridge for each group of regressors. Shapley values of the model are simulated: at random
coalitions and their complements, the differences that direct players make, and derivatives for the
others, whose effects are small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.estimators.covariance import cholesky, inverse_from_cholesky
from graphsvx.games.base import PlayerPrior
from graphsvx.masks.base import Masks

Singles = NDArray[np.float32]

_FITTED = 1024  # coalitions that the regression sees at most: it takes the cube of their number
_LEAST_PROBABILITY, _LEAST_ODDS = 1e-300, 1e-12  # whose logarithms are finite
_RIDGES, _NOISE = (10.0, 0.1, 1.0, 0.003, 1.0, 0.1), 0.03  # variances of the groups, of the noise
MOST_ENTRIES = 1 << 21  # of an array of what is known of several coalitions at once
_SUM_OF_ONE = 1e-6  # rounding of probabilities, below which they are those of classes
_LEAST_DRAWS = 64  # coalitions of the simulation; as many as were fitted where work allows it:
_WORK = 4e8  # multiplications, a fifth of a second


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
        x, y = size / self.players, count / len(self.direct)
        terms = np.stack([np.ones_like(x), x, x**2, y, y**2, 1 / (count + 1), np.log1p(count)], -1)
        return terms.astype(np.float32)


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

    def slopes(self, logits: Floats | Singles) -> Floats:
        """Derivatives of the scores by the logits, [..., logits, outputs]."""
        same = np.eye(logits.shape[-1])
        if not self.exclusive:
            scores = self.scores(logits)
            return same * (scores * (1 - scores))[..., None]
        classes = softmax(logits.astype(np.float64), -1)
        return (same[:, self.columns] - classes[..., None]) * classes[..., None, self.columns]


@dataclass(frozen=True, eq=False)
class LogitModel:
    """A game g whose logits are linear in the regressors of `messages`."""

    messages: Messages
    link: Link
    coefficients: list[Singles]
    """[regressors, logits] of each group."""

    def at(self, members: Bools) -> Floats:
        """g at coalitions [coalitions, M], [coalitions, outputs]."""
        blocks, step = [], max(1, MOST_ENTRIES // self.messages.players)
        for first in range(0, len(members), step):
            groups = self.messages.regressors(members[first : first + step])
            logits = np.add.reduce(
                [group @ part for group, part in zip(groups, self.coefficients, strict=True)]
            )
            blocks.append(self.link.scores(logits))
        return np.concatenate(blocks)


def fit_logits(
    masks: Masks, prior: PlayerPrior, probabilities: Floats, columns: slice
) -> tuple[LogitModel, Floats] | None:
    """A fit to the `probabilities` of all outputs, [2 + rows, outputs], ends first.

    And g at these coalitions, [2 + rows, outputs]; at a pair that was fitted: by the others. None:
    the regression is singular.
    """
    messages, link = Messages.of(prior), Link.of(probabilities, columns)
    ends = np.repeat([[False], [True]], messages.players, 1)
    count = min(len(masks.rows), _FITTED, MOST_ENTRIES // messages.players) // 2 * 2
    members = np.concatenate([ends, masks.rows[:count]])
    logits = link.logits(probabilities[: count + 2])
    groups = messages.regressors(members)
    units = [1 / np.sqrt(max(float((group**2).sum(1).mean()), 1e-12)) for group in groups]
    scaled = [group * np.float32(unit) for group, unit in zip(groups, units, strict=True)]
    covariance = _NOISE * np.eye(count + 2)
    for variance, rows in zip(_RIDGES, scaled, strict=False):
        covariance += variance * (rows @ rows.T)
    try:
        inverse = inverse_from_cholesky(cholesky(covariance))
    except np.linalg.LinAlgError:
        return None
    solved = inverse @ logits
    coefficients = [
        (variance * unit**2 * (group.T @ solved)).astype(np.float32)
        for variance, unit, group in zip(_RIDGES, units, groups, strict=False)
    ]
    model = LogitModel(messages, link, coefficients)
    scores = [model.at(ends), link.scores(_without_own_pair(logits, inverse))]
    if count < len(masks.rows):
        scores.append(model.at(masks.rows[count:]))
    return model, np.concatenate(scores)


def memory_of_logits(coalitions: int, players: int) -> int:
    """Bytes that a fit takes: regressors, and matrices of coalitions."""
    count = min(coalitions, _FITTED)
    return 24 * min(count * players, MOST_ENTRIES) + 32 * count**2


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


def simulated_shapley(model: LogitModel, coalitions: int) -> tuple[Floats, Floats]:
    """Shapley values of g and the variances of their simulation, [M, outputs] each.

    A player's Shapley value is the mean, over q in [0, 1] and coalitions that each player is in
    with probability q, of the difference that it makes. `coalitions`: number of those that g was
    fitted to; the more, the more are drawn, each with its complement.
    """
    rng = np.random.default_rng(3)
    messages, players = model.messages, model.messages.players
    m, width = len(messages.direct), model.coefficients[0].shape[1]
    work = m * (players + m) * width
    half = int(np.clip(_WORK / (2 * work), _LEAST_DRAWS // 2, max(coalitions, _LEAST_DRAWS) // 2))
    q = (rng.random() + np.arange(half)) / half
    members = rng.random((half, players), dtype=np.float32) < q[:, None].astype(np.float32)
    step = max(1, MOST_ENTRIES // (m * max(m, width)))
    blocks = [members[first : first + step] for first in range(0, half, step)]
    parts = [(_differences(model, block), _differences(model, ~block)) for block in blocks]
    by_pair = np.concatenate([(first[0] + second[0]) / 2 for first, second in parts])
    slopes = np.sum([first[1] + second[1] for first, second in parts], axis=0)
    is_other = ~np.isin(np.arange(players), messages.direct)
    credit, variance = slopes / (2 * half), np.zeros((players, by_pair.shape[2]))
    credit[messages.direct] = by_pair.mean(0)
    # One q differs little from the next one, so what is left is the scatter of coalitions.
    variance[messages.direct] = (np.diff(by_pair, axis=0) ** 2).mean(0) / (2 * half)
    empty, full = model.at(np.repeat([[False], [True]], players, 1))
    receivers = is_other if is_other.any() else ~is_other
    credit[receivers] += (full - empty - credit.sum(0)) / np.count_nonzero(receivers)
    return credit, variance


def _differences(model: LogitModel, members: Bools) -> tuple[Floats, Floats]:
    """What players add to g at coalitions [coalitions, M].

    The difference that each direct player makes, [coalitions, m, outputs], and derivatives by how
    active each player is, summed over coalitions, [M, outputs].
    """
    messages, parts, direct = model.messages, model.coefficients, model.messages.direct
    on = members.astype(np.float32)
    active, m = on[:, direct], len(direct)
    joins = np.hstack([1 - 2 * active, np.zeros_like(active[:, :1])])  # -1: leaves; last: nobody
    count = active.sum(1)[:, None] + joins
    member = np.vstack([parts[1] + parts[3][direct], np.zeros_like(parts[1][:1])])
    share = np.vstack([parts[2], np.zeros_like(parts[2][:1])])
    # Logits with each direct player toggled, and, in the last place, as they are.
    logits = (active @ parts[1] + on @ parts[3] - _middle(parts))[:, None]
    logits = logits + joins[:, :, None] * member
    logits += ((active @ parts[2])[:, None] + joins[:, :, None] * share) / (count + 1)[:, :, None]
    logits += messages.size_terms(count, on.sum(1)[:, None] + joins) @ parts[0]
    if messages.edges is not None:
        edges = messages.edges
        between = np.hstack([edges[:, direct], np.zeros((m, 1), dtype=np.float32)])
        sent = np.vstack([parts[5][direct], np.zeros_like(parts[5][:1])])
        received = messages.others + on @ edges.T
        message_sum = np.stack([on @ (edges * column).T for column in parts[5].T], -1)
        message_sum += parts[4] * messages.others[:, None]
        weight = np.repeat(active[:, None], m + 1, 1)  # [coalitions, who is toggled, who hears]
        np.einsum("njj->nj", weight[:, :m])[:] = 1 - active
        weight /= (count + 1)[:, :, None]
        weight /= received[:, None] + joins[:, :, None] * between.T
        logits += weight @ message_sum
        logits += (joins * np.einsum("njt,tj->nj", weight, between))[:, :, None] * sent
    scores, slopes = model.link.scores(logits), model.link.slopes(logits[:, m])
    derivatives: Floats = parts[3] @ slopes.sum(0)
    if messages.edges is not None:
        now = weight[:, m]
        by_sent = np.einsum("nt,nko->tko", now, slopes, optimize=True)
        diluted = (now / received)[
            :, :, None
        ] * message_sum  # one more message makes others count less
        derivatives += np.einsum("tj,jk,tko->jo", edges, parts[5], by_sent, optimize=True)
        derivatives -= edges.T @ np.einsum("ntk,nko->to", diluted, slopes, optimize=True)
    return joins[:, :m, None] * (scores[:, :m] - scores[:, m:]), derivatives


def _middle(parts: list[Singles]) -> Singles:
    """What members add to the logits if all are half active: regressors are centred."""
    middle: Singles = np.float32(0.5) * (parts[1].sum(0) + parts[3].sum(0))
    return middle
