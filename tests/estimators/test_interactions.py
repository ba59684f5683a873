"""Interactions equal their definitions by discrete derivatives over all coalitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import comb

import numpy as np
import pytest
import torch

from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.indices import BII, FSII, KSII, SII, STII
from graphsvx.estimators.interactions import (
    ParityKernel,
    ParityProcess,
    exact_interactions,
    interactions,
)
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks.base import Masks, all_rows
from graphsvx.masks.paired import Paired
from graphsvx.testing import oracle

Game = dict[frozenset, float]


def derivative(worth: Game, of: frozenset, at: frozenset) -> float:
    """What players add together, beyond what fewer of them add, when they join a coalition."""
    return sum((-1) ** (len(of) - len(part)) * worth[at | part] for part in oracle.coalitions(of))


def shapley_interactions(
    players: Iterable, value: Callable[[frozenset], float], order: int = 2
) -> dict[frozenset, float]:
    """Shapley interaction index of all sets of 1 to `order` players; of one, its Shapley value."""
    everyone = frozenset(players)
    worth = {coalition: value(coalition) for coalition in oracle.coalitions(everyone)}
    return {
        of: sum(
            derivative(worth, of, at)
            / ((len(everyone) - len(of) + 1) * comb(len(everyone) - len(of), len(at)))
            for at in oracle.coalitions(everyone - of)
        )
        for of in worth
        if 1 <= len(of) <= order
    }


def random_game(players: int, seed: int) -> Game:
    rng = np.random.default_rng(seed)
    return {coalition: float(rng.normal()) for coalition in oracle.coalitions(range(players))}


def test_a_pair_of_gloves_belongs_together() -> None:
    found = shapley_interactions("abc", lambda on: float("a" in on and len(on) > 1))
    assert found[frozenset("ab")] == found[frozenset("ac")] == pytest.approx(0.5)
    assert found[frozenset("bc")] == pytest.approx(-0.5)
    worth = random_game(4, 0)
    alone = shapley_interactions(range(4), worth.__getitem__, order=1)
    credit = oracle.shapley_values(range(4), worth.__getitem__)
    assert alone == pytest.approx({frozenset([i]): value for i, value in credit.items()})


def defined(game: Game, players: int, index: str, order: int) -> dict[frozenset[int], float]:
    """The index of all sets of up to `order` players, from its definition."""
    everyone = set(range(players))
    sets = [each for each in oracle.coalitions(everyone) if 0 < len(each) <= order]
    if index == "FSII":
        return faithful(game, players, order)
    found = shapley_interactions(everyone, game.__getitem__, order)
    for of in sets if index in ("STII", "BII") else ():
        t, rest = len(of), everyone - of
        if index == "STII" and t < order:
            found[of] = derivative(game, of, frozenset())
            continue
        weight = {
            "BII": lambda s, t=t: 2.0 ** -(players - t),
            "STII": lambda s, t=t: order / players / comb(players - 1, s),
        }[index]  # fmt: skip
        found[of] = sum(
            weight(len(at)) * derivative(game, of, at) for at in oracle.coalitions(rest)
        )
    if index != "k-SII":
        return found
    numbers = [1, -1 / 2, 1 / 6]
    return {
        of: sum(numbers[len(more) - len(of)] * value for more, value in found.items() if of <= more)
        for of in sets
    }


def faithful(game: Game, players: int, order: int) -> dict[frozenset[int], float]:
    """Weighted regression on products, exact at the empty and the full coalition."""
    everyone = set(range(players))
    sets = [each for each in oracle.coalitions(everyone) if len(each) <= order]
    rows = oracle.coalitions(everyone)
    design = np.array([[float(of <= row) for of in sets] for row in rows])
    inner = [0 < len(row) < players for row in rows]
    weights = np.array([1 / (comb(players, s) * s * (players - s))
                        for s in (len(row) for row in rows) if 0 < s < players])  # fmt: skip
    target = np.array([game[row] for row in rows])
    ends = ~np.array(inner)
    gram = design[inner].T @ (weights[:, None] * design[inner])
    full = np.block([[gram, design[ends].T], [design[ends], np.zeros((2, 2))]])
    right = np.concatenate([design[inner].T @ (weights * target[inner]), target[ends]])
    solution = np.linalg.lstsq(full, right, rcond=None)[0]
    return {of: value for of, value in zip(sets, solution, strict=False) if of}


@pytest.mark.parametrize("index", [SII(), KSII(), STII(), FSII(), BII()])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_exact_interactions_equal_their_definition(index, order: int) -> None:
    for players, seed in ((4, 0), (5, 1), (6, 2)):
        game = random_game(players, seed)
        rows = all_rows(players)
        values = np.array([[game[frozenset(np.flatnonzero(row).tolist())]] for row in rows])
        found = exact_interactions(
            rows, ~rows, values, index=index, order=order, listed=np.arange(players)
        )
        expected = defined(game, players, index.name, order)
        got = {
            frozenset(members): float(value[0])
            for part in found
            for members, value in zip(part.members.tolist(), part.values, strict=True)
        }
        assert got.keys() == expected.keys()
        assert all(abs(got[of] - expected[of]) < 1e-9 for of in expected)


def smooth_game(players: int, seed: int):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(players, 4)) / players**0.5, rng.normal(size=4)
    return lambda rows: torch.from_numpy(np.tanh(np.maximum(rows @ first + 0.2, 0) @ second))


ESTIMATED = [SII(), KSII(), STII(), FSII(), BII()]


def pairs_of(rows: np.ndarray) -> Masks:
    count = len(rows)
    return Masks(rows, np.arange(count), np.ones(count), pair=np.arange(count) // 2)


def estimated(players: int, seed: int, budget: int, index, order: int):
    game = FunctionGame(smooth_game(players, seed), players)
    masks = Paired()(game, budget, torch.Generator().manual_seed(seed))
    ends = game.values(game.states(empty_and_full(players)))
    values = game.values(masks.states)
    fit = GaussianProcess()(masks, values, *ends)
    return interactions(
        masks, values, *ends, index=index, order=order, credit=fit.values.numpy().T,
        errors=fit.errors.numpy().T,
    )  # fmt: skip


def exact(players: int, seed: int, index, order: int) -> list[np.ndarray]:
    rows = all_rows(players)
    values = smooth_game(players, seed)(rows).numpy()[:, None]
    sets = exact_interactions(
        rows, ~rows, values, index=index, order=order, listed=np.arange(players)
    )
    return [part.values for part in sets]


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("index", ESTIMATED)
def test_estimates_are_close_and_their_bars_hold(index, order: int) -> None:
    missed, covered = [], []
    for seed in range(8):
        parts = estimated(10, seed, 300, index, order)
        for part, truth in zip(parts, exact(10, seed, index, order), strict=True):
            missed.append(np.linalg.norm(part.values - truth) / np.linalg.norm(truth))
            covered.append((np.abs(part.values - truth) <= 1.96 * part.errors + 1e-9).mean())
    assert np.median(missed[1::order]) < 0.3
    assert np.median(missed[order - 1 :: order]) < {2: 0.3, 3: 0.8}[order]
    assert np.median(missed[::order]) < 0.1
    assert np.mean(covered) > 0.85
    assert np.mean(covered[order - 1 :: order]) > 0.85


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("index", ESTIMATED)
def test_estimates_are_exact_once_all_pairs_are_known(index, order: int) -> None:
    players = 7
    game = random_game(players, 5)
    rows = np.array([row for row in all_rows(players) if row[0] and not row.all()])
    rows = np.stack([rows, ~rows], 1).reshape(-1, players)
    values = np.array([[game[frozenset(np.flatnonzero(row).tolist())]] for row in rows])
    ends = [
        torch.tensor([game[frozenset(coalition)]]).double() for coalition in ((), range(players))
    ]
    shapley = defined(game, players, "SII", 1)
    credit = np.array([[shapley[frozenset({player})]] for player in range(players)])
    by_size = interactions(
        pairs_of(rows),
        torch.from_numpy(values),
        *ends,
        index=index,
        order=order,
        credit=credit,
        errors=np.zeros_like(credit),
    )
    expected = defined(game, players, index.name, order)
    for part in by_size:
        truth = [[expected[frozenset(members)]] for members in part.members.tolist()]
        assert part.values == pytest.approx(np.array(truth), abs=1e-5)


@pytest.mark.parametrize("index", ESTIMATED)
@pytest.mark.parametrize("lengths", [np.linspace(0.01, 2, 40), np.full(40, 1e-8), [12.0] * 40])
def test_interactions_of_extreme_kernels_are_finite(index, lengths) -> None:
    players = 40
    rng = np.random.default_rng(0)
    signs = np.concatenate([np.ones((1, players)), rng.choice([-1.0, 1.0], (30, players))])
    sets = [np.arange(players)[:, None], np.array([[0, 1], [3, 39]]), np.array([[0, 5, 39]])]
    for parity in (1, -1):
        kernel = ParityKernel(parity, np.array(lengths))
        factor = kernel.factor(signs)
        process = ParityProcess(kernel, signs, rng.normal(size=(31, 1)), factor, np.ones(1), 15)
        for members in sets:
            rule = index(members.shape[1], 3).quadrature()
            assert all(np.isfinite(part).all() for part in process.interactions(members, rule))


@pytest.mark.parametrize("index", [KSII(), SII(), STII(), FSII(), BII()])
@pytest.mark.parametrize("order", [2, 3])
def test_sets_of_the_listed_players_do_not_depend_on_who_is_listed(index, order: int) -> None:
    rng = np.random.default_rng(order)
    rows = all_rows(6)
    values = rng.normal(size=(len(rows), 2))
    everyone = exact_interactions(
        rows, ~rows, values, index=index, order=order, listed=np.arange(6)
    )
    listed = np.array([0, 2, 3, 5])
    few = exact_interactions(rows, ~rows, values, index=index, order=order, listed=listed)
    assert few[0].values == pytest.approx(everyone[0].values)
    for part, of_all in zip(few[1:], everyone[1:], strict=True):
        place = {tuple(members): i for i, members in enumerate(of_all.members.tolist())}
        same = [place[tuple(members)] for members in part.members.tolist()]
        assert len(same) == comb(4, part.members.shape[1])
        assert part.values == pytest.approx(of_all.values[same])


def test_k_sii_sums_to_the_prediction() -> None:
    rows = all_rows(7)
    values = smooth_game(7, 3)(rows).numpy()[:, None]
    for order in (1, 2, 3):
        found = exact_interactions(
            rows, ~rows, values, index=KSII(), order=order, listed=np.arange(7)
        )
        total = sum(part.values.sum() for part in found)
        assert total == pytest.approx(values[-1, 0] - values[0, 0], abs=1e-12)


@pytest.mark.parametrize("index", ESTIMATED)
def test_a_game_that_is_the_same_at_all_pairs_has_no_interactions(index) -> None:
    players = 6
    rows = np.array([row for row in all_rows(players) if row[0] and not row.all()])[:12]
    rows = np.stack([rows, ~rows], 1).reshape(-1, players)
    half, credit = torch.full((1,), 0.5).double(), np.zeros((players, 1))
    for part in interactions(
        pairs_of(rows),
        half.repeat(len(rows), 1),
        half,
        half,
        index=index,
        order=2,
        credit=credit,
        errors=credit,
    ):
        assert part.values == pytest.approx(0, abs=1e-12)
        assert np.isfinite(part.errors).all()


@pytest.mark.parametrize("parity", [1, -1])
def test_the_slope_of_a_kernel_is_that_of_its_likelihood(parity) -> None:
    rng = np.random.default_rng(0)
    signs, part = rng.choice([-1.0, 1.0], (30, 14)), rng.normal(size=(30, 2))
    logs = 0.5 * rng.normal(size=14)

    def misfit(at: np.ndarray) -> float:
        return ParityKernel(parity, np.exp(at)).misfit(signs, part)[0]

    _, slope = ParityKernel(parity, np.exp(logs)).misfit(signs, part, slopes=True)
    steps = 1e-4 * np.eye(14)
    wanted = [(misfit(logs + step) - misfit(logs - step)) / 2e-4 for step in steps]
    np.testing.assert_allclose(slope, wanted, rtol=1e-4, atol=1e-4)
