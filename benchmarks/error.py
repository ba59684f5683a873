"""Error against model calls on real games with known Shapley values.

A call is a distinct coalition that goes through the model, for everybody; who asks for one twice
is not charged again, and gets the budget raised until as many distinct ones are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.worlds import Played, node_game, real_games
from graphsvx.estimators import WLS, Estimator, GaussianProcess
from graphsvx.games.base import FunctionGame
from graphsvx.masks import Auto, Mask, Paired, SmarterSeparate
from graphsvx.methods.pipeline import Sampling
from graphsvx.testing.oracle import shapley_of_table

BUDGETS = (50, 100, 300, 1000)
Estimate = Callable[[Played, int, int], tuple[np.ndarray, int]]
"""(game, calls, seed) -> Shapley values, distinct calls made."""


def _number(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.int64) @ (1 << np.arange(rows.shape[1]))


def our_estimator(mask: Mask, regression: Estimator) -> Estimate:
    """Without any knowledge of the graph: every coalition is a call of its own."""

    def estimate(game: Played, calls: int, seed: int) -> tuple[np.ndarray, int]:
        known = torch.from_numpy(game.values)
        table = FunctionGame(lambda rows: known[torch.from_numpy(_number(rows))], game.players)
        masks = mask(table, calls, torch.Generator().manual_seed(seed))
        ends = known[[0, -1]][:, None].double()
        fit = regression(masks, table.values(masks.states), ends[0], ends[1])
        return fit.values[0].numpy(), table.calls + 2

    return estimate


@torch.no_grad()
def our_default(game: Played, calls: int, seed: int) -> tuple[np.ndarray, int]:
    """On the graph: coalitions that give the same perturbed graph are one call."""
    graph_game, target = node_game(*game.game)
    before = graph_game.calls
    sampling = Sampling(Auto(), GaussianProcess(), seed)
    fit = sampling.fit_all([sampling.play(graph_game, calls)], [target])[0].fit
    return fit.values[0].numpy(), max(before, graph_game.calls)


class _Counter:
    """A game for others, which counts distinct coalitions."""

    def __init__(self, game: Played) -> None:
        self.values, self.seen = game.values, set[int]()

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        numbers = _number(np.atleast_2d(rows) > 0.5)
        self.seen.update(numbers.tolist())
        return self.values[numbers] - self.values[0]


def _raised(run: Callable[[Played, int, int], tuple[np.ndarray, int]]) -> Estimate:
    """Raises the nominal budget until the distinct calls are used up (within 3 %)."""

    def estimate(game: Played, calls: int, seed: int) -> tuple[np.ndarray, int]:
        nominal, best = calls, run(game, calls, seed)
        for _ in range(4):
            if best[1] >= 0.97 * calls:
                break
            nominal = int(nominal * min(3.0, calls / max(best[1], 1))) + 1
            again = run(game, nominal, seed)
            if again[1] > 1.02 * calls:
                break
            best = again
        return best

    return estimate


def shapiq_estimator(name: str, **settings: Any) -> Estimate:
    import shapiq  # noqa: PLC0415  (slow to import)

    def run(game: Played, calls: int, seed: int) -> tuple[np.ndarray, int]:
        counter = _Counter(game)
        make = getattr(shapiq.approximator, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimated = make(n=game.players, random_state=seed, **settings).approximate(
                calls, counter
            )
        return np.array([estimated[(i,)] for i in range(game.players)]), len(counter.seen)

    return _raised(run)


def shap_estimator(game: Played, calls: int, seed: int) -> tuple[np.ndarray, int]:
    import shap  # noqa: PLC0415  (slow to import)

    counter = _Counter(game)
    np.random.seed(seed)  # shap draws from numpy's global state
    explainer = shap.KernelExplainer(counter, np.zeros((1, game.players)))
    estimated = explainer.shap_values(
        np.ones((1, game.players)), nsamples=calls - 2, l1_reg=False, silent=True
    )
    return np.asarray(estimated)[0], len(counter.seen)


def estimators() -> dict[str, Estimate]:
    return {
        "graphsvx (default, on the graph)": our_default,
        "graphsvx estimator alone": our_estimator(Paired(), GaussianProcess()),
        "graphsvx Paired + WLS": our_estimator(Paired(), WLS()),
        "shapiq KernelSHAP": shapiq_estimator("KernelSHAP"),
        "shapiq kADD-SHAP": shapiq_estimator("kADDSHAP", max_order=2),
        "shapiq SVARM": shapiq_estimator("SVARM"),
        "shapiq permutation sampling": shapiq_estimator("PermutationSamplingSV"),
        "shap KernelExplainer": shap_estimator,
        "paper's SmarterSeparate, S=1": our_estimator(SmarterSeparate(order=1), WLS()),
        "paper's SmarterSeparate, S=4": our_estimator(SmarterSeparate(order=4), WLS()),
    }


def measure(each: int = 11, sizes: range = range(12, 17), seeds: int = 3, skip: int = 8,
            budgets: tuple[int, ...] = BUDGETS) -> dict[str, Any]:  # fmt: skip
    """Median relative squared error by estimator and budget, over games and seeds."""
    games = list(real_games(each, sizes, skip))
    truths = [shapley_of_table(game.values) for game in games]
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, estimate in estimators().items():
        table[name] = {}
        for calls in budgets:
            errors, used = [], []
            for game, truth in zip(games, truths, strict=True):
                for seed in range(seeds):
                    estimated, calls_made = estimate(game, calls, seed)
                    errors.append(float(((estimated - truth) ** 2).sum() / (truth**2).sum()))
                    used.append(calls_made)
            low, high = np.quantile(errors, [0.25, 0.75])
            table[name][str(calls)] = {
                "median": median(errors), "quarter": float(low), "three quarters": float(high),
                "calls used": median(used),
            }  # fmt: skip
    sources = [game.source for game in games]
    return {
        "games": {name: sources.count(name) for name in dict.fromkeys(sources)},
        "players": [min(g.players for g in games), max(g.players for g in games)],
        "seeds": seeds,
        "errors": table,
        "tuned on": skip or each,
    }
