"""A model of logits: its Shapley values, what it says of pairs left out, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids
from graphsvx.estimators import GaussianProcess, logits
from graphsvx.estimators.gaussian_process import Known
from graphsvx.estimators.logits import (
    Link,
    LogitModel,
    Messages,
    fit_logits,
    simulated_shapley,
)
from graphsvx.games.base import FunctionGame, PlayerPrior
from graphsvx.masks import Paired
from graphsvx.masks.base import Masks, all_rows
from graphsvx.testing.oracle import shapley_of_table


def random_prior(rng: np.random.Generator, direct: int, players: int) -> PlayerPrior:
    """Direct players that hear some of the players and a few nodes that always send."""
    edges = (rng.random((direct, players)) < 0.3).astype(np.float64)
    edges[np.arange(direct), np.arange(direct)] = 0
    received = edges.sum(1) + rng.integers(1, 4, direct)
    is_direct = np.arange(players) < direct
    passed = edges / received[:, None]
    return PlayerPrior(np.ones(players), is_direct, passed, received=received)


@dataclass(eq=False)
class MessageGame(FunctionGame):
    """Probabilities of a two-layer network with means, written without the regressors."""

    prior: PlayerPrior | None = None
    probabilities: bool = field(default=True)

    def player_prior(self) -> PlayerPrior | None:
        return self.prior


def message_game(seed: int, direct: int, players: int) -> MessageGame:
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, direct, players)
    edges = np.asarray(prior.passed) * np.asarray(prior.received)[:, None]
    own, sent = rng.normal(size=(2, players, 3))
    own[:direct] *= 3

    def probabilities(rows: Bools) -> Tensor:
        scores = []
        for on in rows:
            logits = np.array([0.5, 0.0, 0.0])
            active = [t for t in range(direct) if on[t]]
            for t in active:
                heard = [j for j in range(players) if on[j] and edges[t, j]]
                always = np.asarray(prior.received)[t] - edges[t].sum()
                state = (own[t] * always + sent[heard].sum(0)) / (always + len(heard))
                logits = logits + np.tanh(state) * 4 / (len(active) + 1)
            scores.append(softmax(logits))
        return torch.from_numpy(np.array(scores))

    return MessageGame(probabilities, players, prior=prior)


def played(game: MessageGame, budget: int, seed: int) -> tuple[Masks, Tensor, Known]:
    """Coalitions, the values of the first output, and what is known of the game."""
    masks = Paired()(game, budget, torch.Generator().manual_seed(seed))
    ends = game.states(np.repeat([[False], [True]], game.players, 1))
    values = game.values(np.concatenate([ends, masks.states]))
    known = Known(game.prior, outcomes=(values.numpy(), slice(0, 1)))
    return masks, values[:, :1], known


@pytest.mark.parametrize("hears", [True, False])
def test_simulated_shapley_values_are_those_of_the_model_over_all_coalitions(
    hears: bool,
) -> None:
    rng = np.random.default_rng(5)
    prior = random_prior(rng, 4, 11)
    if not hears:
        prior = replace(prior, passed=None)
    messages = Messages.of(prior)
    groups = messages.regressors(all_rows(11)[:2])
    sizes = (0.3, 1.0, 1.0, 0.05, 1.0, 0.2)
    coefficients = [
        (rng.normal(size=(group.shape[1], 3)) * size).astype(np.float32)
        for group, size in zip(groups, sizes, strict=False)
    ]
    model = LogitModel(messages, Link(exclusive=True, columns=slice(0, 2)), coefficients)
    credit, variance = simulated_shapley(model, 1 << 16)
    exact = shapley_of_table(model.at(all_rows(11)))
    assert (np.abs(credit - exact)[:4] <= 4.5 * np.sqrt(variance[:4]) + 1e-4).all()
    assert np.abs(credit - exact)[4:].max() < 0.15 * np.abs(exact[4:]).max()
    assert credit.sum(0) == pytest.approx(exact.sum(0), abs=1e-6)


def test_pairs_are_predicted_as_by_a_fit_to_all_others() -> None:
    game = message_game(1, direct=4, players=9)
    masks, _, known = played(game, 150, 0)
    assert known.prior is not None
    assert known.outcomes is not None
    outcomes = known.outcomes[0]
    fitted = fit_logits(masks, known.prior, outcomes, slice(0, 1))
    assert fitted is not None
    for pair in (0, 7):
        others = np.delete(np.arange(len(masks.rows)), [2 * pair, 2 * pair + 1])
        link = Link.of(outcomes, slice(0, 1))
        values = link.logits(outcomes)
        members = np.concatenate([np.repeat([[False], [True]], 9, 1), masks.rows])
        groups = fitted[0].messages.regressors(members)
        units = [1 / np.sqrt((group**2).sum(1).mean()) for group in groups]
        grams = [
            (group * unit) @ (group * unit).T for group, unit in zip(groups, units, strict=True)
        ]
        grams.append(np.eye(len(members)))
        variances = (*logits._RIDGES, logits._NOISE)
        covariance = sum(v * gram for v, gram in zip(variances, grams, strict=True))
        seen = np.concatenate([[0, 1], others + 2])
        inner = covariance[np.ix_(seen, seen)]
        left_out = np.array([2 * pair + 2, 2 * pair + 3])
        predicted = covariance[np.ix_(left_out, seen)] @ np.linalg.solve(inner, values[seen])
        expected = link.scores(predicted)
        assert fitted[1][left_out] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("exclusive", [True, False])
def test_scores_of_logits_are_the_probabilities_that_they_came_from(exclusive: bool) -> None:
    rng = np.random.default_rng(0)
    probabilities = softmax(rng.normal(scale=9, size=(40, 3)), 1)
    if not exclusive:
        probabilities = rng.random((40, 3))
    link = Link.of(probabilities, slice(1, 3))
    assert link.exclusive == exclusive
    again = link.scores(link.logits(probabilities))
    assert again == pytest.approx(probabilities[:, 1:], abs=1e-12)


def test_a_model_of_logits_makes_errors_smaller_and_credit_stays_efficient() -> None:
    ratios = []
    for seed in range(5):
        game = message_game(seed, direct=6, players=12)
        bits = all_rows(12)
        exact = shapley_of_table(game.function(bits)[:, 0].numpy())
        masks, values, known = played(game, 190, seed)
        errors, models = [], []
        for each in (known, Known(game.prior)):
            fit = GaussianProcess()(masks, values[2:], values[0], values[1], each)
            models.append(str(fit.model))
            assert float(fit.values.sum()) == pytest.approx(float(values[1] - values[0]), abs=1e-9)
            errors.append(float(((fit.values[0].numpy() - exact) ** 2).sum()))
        ratios.append(errors[0] / errors[1])
        assert "logits" in models[0]
    assert np.exp(np.log(ratios).mean()) < 0.8


def test_few_or_very_many_coalitions_are_left_to_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Ids] = []
    monkeypatch.setattr(
        "graphsvx.estimators.gaussian_process.fit_logits", lambda masks, *_: calls.append(masks)
    )
    game = message_game(2, direct=4, players=12)
    for budget, is_fitted in ((100, False), (180, True), (400, False)):
        masks, values, known = played(game, budget, 0)
        calls.clear()
        GaussianProcess()(masks, values[2:], values[0], values[1], known)
        assert bool(calls) == is_fitted
