"""What the two studies of noise share: who is explained, and how much noise is among the top.

    candidates   the features (or nodes) that are ranked, the same for all methods
    k            20, or 20 % of the candidates where there are fewer than 100 (rounded, at least 1)
    noise        how many of the k with the most credit were added and mean nothing

A candidate without credit has 0. Where candidates share the last place, each of them is in with
the same chance, and the expected number counts: a method that gives credit to few is filled up
at random, not in the order of ids (noise has the last ids).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx import players as choosing
from graphsvx.baselines.greedy import one_less
from graphsvx.baselines.stage import record, refuse_unless, report
from graphsvx.data.base import generator
from graphsvx.engine.survey import survey
from graphsvx.explain.direct import direct
from graphsvx.explanation import Explanation
from graphsvx.game import GraphGame
from graphsvx.generators import Isolate, Scene
from graphsvx.players import FeatureChoice
from graphsvx.query import Query
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.zoo import Trained

TOP, FEW, SHARE = 20, 100, 0.2
SHARES = tuple(round(0.05 * i, 2) for i in range(1, 21))
"""k as a share of all candidates, for curves."""
DATASETS = ("cora", "citeseer", "pubmed")
MODELS = ("gcn", "gat")
TITLES = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "gcn": "GCN", "gat": "GAT"}
By = Literal["value", "absolute"]
Floats = NDArray[np.float64]


def noisy_worlds(
    desk: Desk, datasets: Iterable[str], suffix: str, models: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[tuple[str, str], Trained]]:
    """Each data set with noise, model and seed, by clean name and model; missing files are told."""
    for dataset in datasets:
        name = dataset + suffix
        if desk.missing(name):
            desk.say(f"{name}: files missing")
            continue
        for model in models:
            for seed in seeds:
                yield (dataset, model), desk.world(name, seed, model)


def top_k(candidates: int) -> int:
    """How many of the candidates are looked at."""
    if candidates >= FEW:
        return TOP
    return min(candidates, max(1, round(SHARE * candidates)))


def noise_among(values: Floats, noisy: Floats, k: int) -> float:
    """Expected number of noisy ones among the k largest `values`, ties broken at random.

    `noisy` is 1 for noise and 0 for others.
    """
    if k < 1:
        return 0.0
    last = np.sort(values)[-k]
    above, level = values > last, values == last
    return float(noisy[above].sum() + (k - above.sum()) * noisy[level].mean())


@dataclass(frozen=True)
class Outcome:
    """How much noise one explanation lets in.

    value, absolute: noisy candidates among the top k, ranked by signed and by absolute value.
    curve: share of noise among the top, by value, for k = each of `SHARES` of the candidates.
    noisy: noisy ones among all candidates.
    """

    k: int
    candidates: int
    noisy: int
    value: float
    absolute: float
    curve: tuple[float, ...] = field(repr=False, default=())

    def share(self, by: By) -> float:
        """Share of noise among the top k."""
        return (self.value if by == "value" else self.absolute) / self.k if self.k else nan

    @property
    def base(self) -> float:
        """Share of noise among the candidates: what chance gives."""
        return self.noisy / self.candidates if self.candidates else nan


def outcome(credit: Mapping[int, float], candidates: Sequence[int], noise: set[int]) -> Outcome:
    """Count the noise among the top candidates of an explanation."""
    values = np.array([credit.get(one, 0.0) for one in candidates], dtype=float)
    noisy = np.array([one in noise for one in candidates], dtype=float)
    k, count = top_k(len(candidates)), len(candidates)
    sizes = [max(1, round(share * count)) for share in SHARES] if count else []
    return Outcome(
        k=k,
        candidates=count,
        noisy=int(noisy.sum()),
        value=noise_among(values, noisy, k),
        absolute=noise_among(np.abs(values), noisy, k),
        curve=tuple(noise_among(values, noisy, size) / size for size in sizes),
    )


def with_credit(
    credit: Mapping[int, float], noise: set[int], by: By, k: int = TOP
) -> tuple[float, int]:
    """Noisy ones among the k with the most credit, and how many there are; 0 is no credit.

    By value only those that speak for the answer count.
    """
    ids = [one for one, value in credit.items() if (value > 0 if by == "value" else value != 0)]
    k = min(k, len(ids))
    values = np.abs(np.array([credit[one] for one in ids], dtype=float))
    return noise_among(values, np.array([one in noise for one in ids], dtype=float), k), k


def explained_nodes(world: Trained, count: int) -> list[int]:
    """Test nodes drawn at random, the same for every model and method; none without a neighbour."""
    dataset = world.dataset
    tied = torch.zeros(dataset.graph.num_nodes, dtype=torch.bool)
    tied[dataset.graph.edge_index[1]] = True
    test = dataset.split.test[tied[dataset.split.test]]
    order = torch.randperm(len(test), generator=generator(dataset.seed, dataset.name, "explained"))
    return sorted(test[order[:count]].tolist())


class Tally:
    """Outcomes of all methods, by (data set, model, method) and seed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], dict[int, list[Outcome]]] = {}

    def add(self, key: tuple[str, str, str], seed: int, outcomes: Iterable[Outcome]) -> None:
        """Keep what a method did on the nodes of one seed; nothing is as if it had not come."""
        outcomes = list(outcomes)
        if not outcomes:
            return
        self._kept.setdefault(key, {}).setdefault(seed, []).extend(outcomes)

    def groups(self, *key: str) -> list[list[Outcome]]:
        """The outcomes of a method, seed by seed."""
        seeds = self._kept.get((key[0], key[1], key[2]), {})
        return [seeds[seed] for seed in sorted(seeds)]

    def methods(self, dataset: str, model: str) -> list[str]:
        """Methods with outcomes, in the order of their arrival."""
        return [one for d, m, one in self._kept if (d, m) == (dataset, model)]

    def share(self, *key: str, by: By = "value") -> Estimate:
        """Share of noise among the top k."""
        return Estimate.of([[one.share(by) for one in group] for group in self.groups(*key)])

    def count(self, *key: str, by: By = "value") -> Estimate:
        """Number of noisy ones among the top k."""
        return Estimate.of([[getattr(one, by) for one in group] for group in self.groups(*key)])

    def base(self, *key: str) -> Estimate:
        """Share of noise among the candidates."""
        return Estimate.of([[one.base for one in group] for group in self.groups(*key)])

    def mean(self, name: str, *key: str) -> Estimate:
        """Mean of a field: k, candidates, noisy."""
        return Estimate.of(
            [[float(getattr(one, name)) for one in group] for group in self.groups(*key)]
        )

    def curve(self, *key: str) -> list[float]:
        """Mean share of noise for each of `SHARES`."""
        rows = [one.curve for group in self.groups(*key) for one in group if one.curve]
        found: list[float] = np.mean(rows, axis=0).tolist()
        return found


@dataclass(frozen=True)
class LeaveOneOut:
    """What the score loses without one player, all others on: the plain effect of deleting it."""

    players: Literal["features", "nodes"] = "nodes"
    features: FeatureChoice = 0.25

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Play everybody once without each of them."""
        refuse_unless(query, self, "node")
        found = survey(query, None, seed)
        here = choosing.find(query.graph, found.field, None, self.features, self.players)
        scene = Scene(query.graph, found.field, here, query.graph.statistics.mean)
        game = GraphGame(query, found, scene, Isolate(), "joint", rest_on=True)
        everybody = np.ones(game.players, dtype=bool)
        rows, _ = one_less(everybody)
        scores = game.values(game.states(np.concatenate([rows, everybody[None]])))
        outputs, target = query.choose(scores[-1])
        losses = [scores[-1, output] - scores[:-1, output] for output in outputs]
        nodes = self.players == "nodes"
        who = found.field.ids[here.node_members] if nodes else here.feature_members
        credit = direct(torch.from_numpy(who), losses)
        return record(
            query, found, self, seed,
            outputs=outputs,
            target=target,
            predictions=scores[-1],
            meaning="the score lost without the player, all others on",
            games=(report("joint", game.players, game.calls, "one_less"),),
            nodes=credit if nodes else None,
            features=None if nodes else credit,
        )  # fmt: skip


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's; NaN where one of them does not vary."""
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return nan
    return float(np.corrcoef(a, b)[0, 1])


def ids(tensor: Tensor) -> set[int]:
    """As a set of plain numbers."""
    return set(tensor.tolist())
