"""Shapley values of a model of logits, by Monte Carlo over coalitions and their complements.

A player's Shapley value is the mean, over q in [0, 1] and coalitions that each player is in with
probability q, of the difference that it makes. Coalitions are drawn with their complements, and for
each draw of the other players several of the direct ones: with the messages of the others summed
up, the difference that a direct player makes is found without a look at the others. Differences
that other players make are small: the derivative of g stands for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphsvx.core.arrays import Bools, Floats
from graphsvx.estimators.logit_model import LogitModel, Singles

_DRAWS, _LEAST_DRAWS = 512, 64  # of the other players
_MOST_REPEATS = 16  # of the direct ones, each with its complement,
_COALITIONS_A_REPEAT = 256  # and so many coalitions for each
_ITEMS = 12_000_000  # differences times what each of them takes
_ITEMS_AT_ONCE = 2_000_000
_SMALL = 1e-3  # step of a numerical derivative by a logit


@dataclass(frozen=True, eq=False)
class _Others:
    """Draws of the players that are not direct, and what they send."""

    share: Singles
    """q, [draws]."""
    size: Singles
    """Number of active ones, [draws]."""
    logits: Singles
    """What they and constants add to the logits, [draws, logits]."""
    messages: Singles
    """Messages that each direct player hears, its own included, [draws, m]."""
    message_sum: Singles
    """What is heard of others, and the own part of the player, [draws, m, logits]."""


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over coalitions of what the credit of other players is made of."""

    slope: Floats
    """Derivatives of scores by logits, [logits, outputs]."""
    heard: Floats
    """The same times the weight of what each direct player hears, [m, logits, outputs]."""
    diluted: Floats
    """What one more message takes from a direct player's others, [m, outputs]."""


def simulated_shapley(model: LogitModel, coalitions: int) -> tuple[Floats, Floats]:
    """Shapley values of g and the variances of their simulation, [M, outputs] each.

    `coalitions`: number of those that g was fitted to; the more, the longer the simulation.
    """
    rng = np.random.default_rng(3)
    messages, players = model.messages, model.messages.players
    direct, logits = messages.direct, model.coefficients[0].shape[1]
    is_other = np.ones(players, dtype=bool)
    is_other[direct] = False
    items_each = len(direct) * max(len(direct), logits)
    draws = int(np.clip(_ITEMS // (2 * items_each), _LEAST_DRAWS, _DRAWS)) // 2 * 2
    most = min(_ITEMS // (2 * draws * items_each), coalitions // _COALITIONS_A_REPEAT)
    repeats = int(np.clip(most, 1, _MOST_REPEATS))
    others = _draw_others(model, is_other, draws, rng)
    step = max(1, _ITEMS_AT_ONCE // items_each)
    differences = np.zeros((draws, len(direct), _outputs(model)))
    sums = _Sums(*(np.zeros(shape) for shape in _shapes(model)))
    for _ in range(repeats):
        noise = rng.random((draws, len(direct)), dtype=np.float32)
        share = others.share[:, None]
        for active in (noise < share, noise >= 1 - share):
            for first in range(0, draws, step):
                part = slice(first, first + step)
                differences[part] += _differences(model, _part(others, part), active[part], sums)
    differences /= 2 * repeats
    by_pair = (differences[: draws // 2] + differences[draws // 2 :]) / 2
    credit, variance = np.zeros((2, players, differences.shape[2]))
    credit[direct] = by_pair.mean(0)
    # One q differs little from the next one, so what is left is the scatter of coalitions.
    variance[direct] = (np.diff(by_pair, axis=0) ** 2).mean(0) / draws
    if is_other.any():
        credit[is_other] = _credit_of_others(model, is_other, sums) / (2 * repeats * draws)
    empty, full = model.at(np.repeat([[False], [True]], players, 1))
    receivers = is_other if is_other.any() else ~is_other
    credit[receivers] += (full - empty - credit.sum(0)) / np.count_nonzero(receivers)
    return credit, variance


def _outputs(model: LogitModel) -> int:
    return model.link.scores(np.zeros((1, model.coefficients[0].shape[1]))).shape[1]


def _shapes(model: LogitModel) -> list[tuple[int, ...]]:
    direct, logits = len(model.messages.direct), model.coefficients[0].shape[1]
    outputs = _outputs(model)
    return [(logits, outputs), (direct, logits, outputs), (direct, outputs)]


def _draw_others(
    model: LogitModel, is_other: Bools, draws: int, rng: np.random.Generator
) -> _Others:
    """So many draws, the second half of them complements of the first."""
    messages, parts = model.messages, model.coefficients
    half = draws // 2
    q = ((rng.random() + np.arange(half)) / half).astype(np.float32)
    members = rng.random((half, messages.players), dtype=np.float32) < q[:, None]
    active = (np.concatenate([members, ~members]) & is_other).astype(np.float32)
    constant = np.float32(0.5) * (parts[1].sum(0) + parts[3].sum(0))
    count, width = len(messages.direct), parts[0].shape[1]
    message_sum = np.zeros((draws, count, width), dtype=np.float32)
    received = np.ones((draws, count), dtype=np.float32)
    if messages.edges is not None:
        received = messages.others + active @ messages.edges.T
        for logit, sent in enumerate(parts[5].T):
            message_sum[:, :, logit] = active @ (messages.edges * sent).T
        message_sum += parts[4] * messages.others[:, None]
    share = np.concatenate([q, 1 - q])
    return _Others(share, active.sum(1), active @ parts[3] - constant, received, message_sum)


def _part(others: _Others, part: slice) -> _Others:
    return _Others(
        others.share[part],
        others.size[part],
        others.logits[part],
        others.messages[part],
        others.message_sum[part],
    )


def _differences(model: LogitModel, others: _Others, members: Bools, sums: _Sums) -> Floats:
    """Difference that each direct player makes to g, [draws, m, outputs].

    `members` [draws, m]: the direct players that are active. Adds to `sums`.
    """
    messages, parts, scores = model.messages, model.coefficients, model.link.scores
    active = members.astype(np.float32)
    joins = 1 - 2 * active  # 1, or -1 where a player would leave
    count = active.sum(1)
    size = others.size + count
    member = parts[1] + parts[3][messages.direct]
    shared = active @ parts[2]
    fixed = others.logits + active @ member
    before = fixed + shared / (count + 1)[:, None]
    before += messages.size_terms(count, size) @ parts[0]
    others_count = count[:, None] + joins
    after = fixed[:, None] + joins[:, :, None] * member
    after += (shared[:, None] + joins[:, :, None] * parts[2]) / (others_count + 1)[:, :, None]
    after += messages.size_terms(others_count, size[:, None] + joins) @ parts[0]
    terms: tuple[Singles, Singles, Floats | Singles] | None = None
    if messages.edges is not None:
        between = messages.edges[:, messages.direct]  # [hearing, sending]
        sent = parts[5][messages.direct]
        received = others.messages + active @ between.T
        message_sum = others.message_sum + (active[:, None] * between) @ sent
        weight = active / ((count + 1)[:, None] * received)
        before += np.einsum("nt,ntk->nk", weight, message_sum)
        toggled = np.repeat(active[:, None], len(messages.direct), 1)  # [draws, who, hearing]
        np.einsum("njj->nj", toggled)[:] = 1 - active
        toggled /= (others_count + 1)[:, :, None] * (
            received[:, None] + joins[:, :, None] * between.T
        )
        after += toggled @ message_sum
        after += (joins * np.einsum("njt,tj->nj", toggled, between))[:, :, None] * sent
        terms = weight, received, message_sum
    score = scores(before)
    _add_slopes(model, before, score, terms, sums)
    return joins[:, :, None] * (scores(after) - score[:, None])


def _add_slopes(
    model: LogitModel,
    logits: Singles,
    score: Floats,
    terms: tuple[Singles, Singles, Floats | Singles] | None,
    sums: _Sums,
) -> None:
    """Add what the credit of other players is made of.

    `terms`: weight, number and sum of the messages of each direct player, if they are known.
    """
    steps = _SMALL * np.eye(logits.shape[1])
    slopes = (model.link.scores(logits[:, None] + steps) - score[:, None]) / _SMALL
    sums.slope[:] += slopes.sum(0)
    if terms is not None:
        weight, received, message_sum = terms
        sums.heard[:] += np.einsum("nt,nko->tko", weight, slopes, optimize=True)
        by_logit = (weight / received)[:, :, None] * message_sum
        sums.diluted[:] += np.einsum("ntk,nko->to", by_logit, slopes, optimize=True)


def _credit_of_others(model: LogitModel, is_other: Bools, sums: _Sums) -> Floats:
    """Derivatives of g by how active players are, summed over coalitions."""
    parts, edges = model.coefficients, model.messages.edges
    credit: Floats = parts[3][is_other] @ sums.slope
    if edges is not None:
        into = edges[:, is_other]
        credit += np.einsum("tj,jk,tko->jo", into, parts[5][is_other], sums.heard, optimize=True)
        credit -= into.T @ sums.diluted
    return credit
