"""Studies `noisy-features` and `noisy-nodes`: how much that means nothing is among the top?

    candidates   the features (or nodes) that are ranked, the same for all methods
    k            20, or 20 % of the candidates where there are fewer than 100 (rounded, at least 1)
    noise        how many of the k with the most credit were added and mean nothing

A candidate without credit has 0. Where candidates share the last place, each of them is in with
the same chance, and the expected number counts: a method that gives credit to few is filled up
at random, not in the order of ids (noise has the last ids).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import nan

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.nn import GATConv

from graphsvx.baselines import LIME, SHAP, GNNExplainer, GraphLIME, Greedy, Random
from graphsvx.data.base import generator
from graphsvx.data.noise import FEATURES_SUFFIX, NODES_SUFFIX
from graphsvx.errors import InputError
from graphsvx.explain.regression import Fit, surrogate
from graphsvx.explanation import Explanation
from graphsvx.masks import Masks
from graphsvx.masks.base import Game
from graphsvx.methods import GraphSVX
from graphsvx.studies.context import StudyContext
from graphsvx.studies.figures import densities
from graphsvx.studies.measurements import NO_QUESTION, Measurements
from graphsvx.studies.page import (
    Claim,
    Figure,
    Page,
    Section,
    by,
    is_little,
    is_negative,
    pivot,
    pivots,
)
from graphsvx.studies.setting import Setting
from graphsvx.studies.statistics import Estimate
from graphsvx.studies.study import (
    Answer,
    Case,
    Grid,
    MakeModel,
    Questions,
    Study,
    Value,
    of_model,
    zoo_models,
)
from graphsvx.zoo import Trained
from graphsvx.zoo.paper import ACCURACY

TOP, FEW, SHARE = 20, 100, 0.2
COUNTS = {"cora": 50, "citeseer": 12, "pubmed": 12}
"""Explained test nodes of a model and seed."""
MODELS = ("gcn", "gat")
PAPER, OURS = "GraphSVX (as in the paper)", "GraphSVX (our default)"
FEATURE_BASELINES = {
    "GNNExplainer": Setting(GNNExplainer()),
    "GraphLIME": Setting(GraphLIME()),
    "LIME": Setting(LIME()),
    "SHAP": Setting(SHAP()),
    "Greedy": Setting(Greedy(players="features")),
    "Random": Setting(Random(players="features", features="all")),
}
NODE_BASELINES = {
    "GNNExplainer": Setting(GNNExplainer()),
    "Greedy": Setting(Greedy(players="nodes")),
    "Random": Setting(Random(players="nodes")),
}
STANDING_OUT, PRESENT = "features that stand out", "features that the node has"
FIELD, NEAR = "nodes that the model sees", "direct neighbours"
Floats = NDArray[np.float64]


# --- the effect of deleting one player ------------------------------------------------------


@dataclass(frozen=True)
class AllButOne:
    """MASK: every player missing once, all others on.

    `separate=False`: features are switched off in the whole graph, not at the isolated node.
    """

    separate: bool = False

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """One row for each player; a single player has the empty row only, which is played."""
        rows = ~np.eye(game.players, dtype=bool)
        rows = rows if game.players > 1 else rows[:0]
        return Masks(rows, game.states(rows), np.ones(len(rows)))


@dataclass(frozen=True)
class Losses:
    """EXPL for `AllButOne`: what the score loses without the player."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Losses as credit."""
        played = values if len(masks.rows) else empty[None].expand(masks.rows.shape[1], -1)
        losses = (full - played).t().contiguous()
        return surrogate(masks, values, empty, losses, torch.full_like(losses, torch.nan))


DELETED, ALONE = "deleted, in the graph", "deleted, node alone"
DELETIONS = {
    DELETED: Setting(GraphSVX(mask=AllButOne(), regression=Losses())),
    ALONE: Setting(GraphSVX(mask=AllButOne(separate=True), regression=Losses())),
}


def deletions(case: Case) -> Iterator[Value]:
    """Whether our credit follows what deleting a player does, over all questions of a model."""
    ours, noise = case.explanations[OURS], noise_of(case.trained)
    for name in [name for name in DELETIONS if name in case.explanations]:
        sides: dict[str, list[tuple[float, float, bool]]] = {"noise": [], "others": []}
        for question, deleted in case.explanations[name].items():
            credit, effect = (_credit(case.trained, e) for e in (ours[question], deleted))
            best = set(sorted(credit, key=lambda one: -credit[one])[: top_k(len(credit))])
            for one in credit.keys() & effect.keys():
                side = sides["noise" if one in noise else "others"]
                side.append((credit[one], effect[one], one in best))
        for kind, rows in sides.items():
            both = np.array([row[:2] for row in rows], dtype=float).reshape(-1, 2).T
            varied = len(rows) > 1 and bool((both.std(1) > 0).all())
            top = [effect > 0 for _, effect, is_top in rows if is_top]
            for measure, value in {
                "correlation with credit": np.corrcoef(both)[0, 1] if varied else nan,
                "top ones that raise the score": np.mean(top) if top else nan,
                "that speak against": np.mean(both[1] < 0) if rows else nan,
                "mean absolute effect": np.mean(np.abs(both[1])) if rows else nan,
            }.items():
                yield name, NO_QUESTION, f"{measure}, {kind}", float(value)


# --- who is explained, and what is counted --------------------------------------------------


def explained_nodes(trained: Trained) -> Questions:
    """Test nodes drawn at random, the same for every model and method; none without a neighbour."""
    data = trained.dataset
    tied = torch.zeros(data.graph.num_nodes, dtype=torch.bool)
    tied[data.graph.edge_index[1]] = True
    test = data.split.test[tied[data.split.test]]
    order = torch.randperm(len(test), generator=generator(data.seed, data.name, "explained"))
    count = next((count for name, count in COUNTS.items() if data.name.startswith(name)), 12)
    return {"test": tuple(sorted(test[order[:count]].tolist()))}


def first_ten(trained: Trained) -> Questions:
    """The first ten of them."""
    return {name: ids[:10] for name, ids in explained_nodes(trained).items()}


def noise_of(trained: Trained) -> set[int]:
    """The columns, or the nodes, that were added."""
    noise = trained.dataset.noise
    if noise is None:
        return set()
    return set((noise.features if len(noise.features) else noise.nodes).tolist())


def _credit(trained: Trained, explanation: Explanation) -> dict[int, float]:
    noise = trained.dataset.noise
    on_features = noise is not None and len(noise.features) > 0
    return explanation.features if on_features else explanation.nodes


def top_k(candidates: int) -> int:
    """How many of the candidates are looked at."""
    return TOP if candidates >= FEW else min(candidates, max(1, round(SHARE * candidates)))


def noise_among(values: Floats, noisy: Floats, k: int) -> float:
    """Expected number of noisy ones among the k largest `values`, ties broken at random.

    `noisy` is 1 for noise and 0 for others.
    """
    if k < 1:
        return 0.0
    last = np.sort(values)[-k]
    above, level = values > last, values == last
    return float(noisy[above].sum() + (k - above.sum()) * noisy[level].mean())


def noise_shares(
    credit: Mapping[int, float], candidates: Sequence[int], noise: set[int], name: str
) -> dict[str, float]:
    """Noise among the top k by value and by magnitude, and among the candidates `name`."""
    if not candidates:
        return {}
    values = np.array([credit.get(one, 0.0) for one in candidates], dtype=float)
    noisy = np.array([one in noise for one in candidates], dtype=float)
    k = top_k(len(candidates))
    number = noise_among(values, noisy, k)
    return {
        f"number, {name}": number,
        f"share by value, {name}": number / k,
        f"share by magnitude, {name}": noise_among(np.abs(values), noisy, k) / k,
        f"chance, {name}": float(noisy.mean()),
    }


def counted(answer: Answer) -> dict[str, float]:
    """Noise with two sets of candidates, which our players decide for everybody."""
    ours, trained = answer.of(OURS), answer.trained
    if ours is None or answer.method in DELETIONS:
        return {}
    credit, noise = _credit(trained, answer.explanation), noise_of(trained)
    candidates = list(_credit(trained, ours))
    if candidates == ours.feature_ids.tolist():
        x = trained.dataset.graph.x[answer.question]
        names, fewer = (STANDING_OUT, PRESENT), [one for one in candidates if x[one] != 0]
    else:
        field = ours.neighbourhood
        distance = dict(zip(field.ids.tolist(), field.hops.tolist(), strict=True))
        names, fewer = (FIELD, NEAR), [one for one in candidates if distance[one] == 1]
    return {
        **noise_shares(credit, candidates, noise, names[0]),
        **noise_shares(credit, fewer, noise, names[1]),
    }


# --- do the models use the noise? -----------------------------------------------------------


@torch.no_grad()
def use_of_noise(case: Case) -> list[Value]:
    """Test nodes with and without the noise; and how long the weights of noisy columns are."""
    data, noise = case.trained.dataset, sorted(noise_of(case.trained))
    x, edges, test = data.graph.x, data.graph.edge_index, data.split.test
    found = {}
    if data.noise is not None and len(data.noise.features):
        noisy = torch.zeros(x.shape[1], dtype=torch.bool)
        noisy[noise] = True
        lengths = first_weights(case.trained.model).norm(dim=0)
        found["weights, noise / words"] = float(lengths[noisy].mean() / lengths[~noisy].mean())
        less = (x * ~noisy, edges)
    else:
        less = (x, edges[:, ~torch.isin(edges, torch.tensor(noise)).any(0)])
    full, without = (case.trained.model(*given).softmax(1) for given in ((x, edges), less))
    said, labels = full[test].argmax(1), data.labels[test]
    gained = (full - without).gather(1, data.labels.clamp(min=0)[:, None])[:, 0]
    return of_model({
        "test accuracy": float((said == labels).double().mean()),
        "accuracy without noise": float((without[test].argmax(1) == labels).double().mean()),
        "classes that change": float((without[test].argmax(1) != said).double().mean()),
        "change without noise": float((full - without)[test].gather(1, said[:, None]).abs().mean()),
        "added to the true class, training": float(gained[data.split.train].mean()),
        "added to the true class, test": float(gained[test].mean()),
        **found,
    })  # fmt: skip


def first_weights(model: torch.nn.Module) -> Tensor:
    """Weights of the first layer of a citation model, [units, columns]."""
    found = getattr(getattr(getattr(model, "first", None), "lin", None), "weight", None)
    if not isinstance(found, Tensor):
        raise InputError(f"expected a citation model, got {type(model).__name__}")
    return found


def without_noise_weights(trained: Trained) -> Trained:
    """The same model with the weights of its noisy columns at 0: it cannot use them."""
    model = deepcopy(trained.model)
    with torch.no_grad():
        first_weights(model)[:, sorted(noise_of(trained))] = 0
    return replace(trained, model=model)


def _unable(name: str) -> MakeModel:
    def make(context: StudyContext, dataset: str, seed: int) -> Trained:
        return without_noise_weights(context.trained_model(dataset, seed, name))

    return make


UNABLE = {f"{name}, noise weights 0": _unable(name) for name in MODELS}
LOOPS = {"without loops": False, "with loops": True}


def attention_on_noise(case: Case) -> Iterator[Value]:
    """Attention of a GAT on noisy and on normal nodes."""
    if case.trained.card.settings.model == "gat":
        for words, loops in LOOPS.items():
            found = attention(case.trained, loops)
            yield from of_model({f"attention {words}, {k}": v for k, v in found.items()})


@torch.no_grad()
def attention(trained: Trained, loops: bool) -> dict[str, float]:
    """Attention of both GAT layers: mean over heads, then layers, then a node's edges, then nodes.

    An edge from u to v has the attention that v pays to u. `loops`: with the attention that each
    node pays to itself. "if even": were it the same for all neighbours.
    """
    model, graph = trained.model, trained.dataset.graph
    first, second = getattr(model, "first", None), getattr(model, "second", None)
    if not isinstance(first, GATConv) or not isinstance(second, GATConv):
        raise InputError(f"expected a GAT with two layers, got {type(model).__name__}")
    hidden, (edges, one) = first(graph.x, graph.edge_index, return_attention_weights=True)
    _, (_, two) = second(hidden.relu(), graph.edge_index, return_attention_weights=True)
    mean = (one.mean(1) + two.mean(1)) / 2
    even = 1 / torch.bincount(edges[1], minlength=graph.num_nodes)[edges[1]].to(mean)
    counts = (edges[0] != edges[1]) | loops
    noisy = torch.zeros(graph.num_nodes, dtype=torch.bool)
    noisy[sorted(noise_of(trained))] = True
    found = {}
    for suffix, weights in (("", mean), (", if even", even)):
        source = edges[0, counts]
        total = torch.bincount(source, weights[counts].double(), minlength=graph.num_nodes)
        known = torch.bincount(source, minlength=graph.num_nodes)
        for name, who in (("noisy", noisy), ("normal", ~noisy)):
            chosen = who & (known > 0)
            found[name + suffix] = float((total[chosen] / known[chosen]).mean())
    return found


# --- declarations ---------------------------------------------------------------------------


def _graphsvx(dataset: str) -> dict[str, Setting]:
    clean = next(name for name in COUNTS if dataset.startswith(name))
    return {PAPER: Setting(GraphSVX.paper(clean)), OURS: Setting(GraphSVX())}


FEATURES = Grid(
    tuple(name + FEATURES_SUFFIX for name in COUNTS),
    lambda name: {**_graphsvx(name), **FEATURE_BASELINES, **DELETIONS},
    explained_nodes,
    measures=(counted,),
    case_measures=(use_of_noise, deletions),
    models=zoo_models(*MODELS),
)
NODES = replace(
    FEATURES,
    datasets=tuple(name + NODES_SUFFIX for name in COUNTS),
    methods=lambda name: {**_graphsvx(name), **NODE_BASELINES, DELETED: DELETIONS[DELETED]},
    case_measures=(use_of_noise, deletions, attention_on_noise),
)
CANNOT_USE = replace(
    FEATURES,
    datasets=FEATURES.datasets[:1],
    methods=lambda name: {**_graphsvx(name), **FEATURE_BASELINES},
    questions=first_ten,
    case_measures=(),
    models=UNABLE,
)


def _page(
    results: Measurements, what: str, baselines: Sequence[str], names: Sequence[str], suffix: str
) -> Page:
    """Noise among the top, whether the models use it, and what deleting it does."""
    titles, share = results.names("data", model=MODELS), f"share by value, {names[0]}"
    unable = results.names("data", model=list(UNABLE))
    methods = [PAPER, OURS, *baselines]

    def paper(row: str, column: str) -> float | None:
        dataset, _, model = row.lower().partition(", ")
        known = ACCURACY.get((dataset + suffix, model))
        return known[2] if known and column == "test accuracy" else None

    def counts(title: str) -> dict[str, list[float]]:
        keys = {m: results.keys(measure=f"number, {names[0]}", data=title, method=m)
                for m in methods}  # fmt: skip
        return {m: [v for key in found for values in results.series[key].values()
                    for v in values.values()] for m, found in keys.items() if found}  # fmt: skip

    def looked(title: str, words: str) -> Estimate:
        return results.paired(("", f"attention {words}, noisy"),
                              ("", f"attention {words}, normal"), data=title)  # fmt: skip

    claims = []
    for title in [*titles, *unable]:
        claims.append(Claim.of(f"Close to no noisy {what} among GraphSVX's top ({title})",
                               "close to 0", results.estimate(share, method=PAPER, data=title),
                               is_little))  # fmt: skip
        claims.append(Claim.first(f"Fewer than with any baseline ({title})", "fewest",
                                  results.tests(share, PAPER, baselines, sign=-1, data=title)))  # fmt: skip
    claims += [
        Claim.of(f"Attention on noisy minus normal nodes ({title}, {words})", -0.04,
                 looked(title, words), is_negative)
        for title in titles for words in LOOPS if looked(title, words).seeds
    ]  # fmt: skip
    tables = tuple(
        table
        for name in names
        for table in pivots(results, by("method", methods), by("data", [*titles, *unable]), {
            f"Number of noisy ones among the top k; candidates: {name}": f"number, {name}",
            f"Share of noise by value; candidates: {name}": f"share by value, {name}",
            f"Share of noise by magnitude; candidates: {name}": f"share by magnitude, {name}",
            f"Chance: share of noise among the candidates, {name}": {
                "measure": f"chance, {name}", "method": OURS},
        })
    )  # fmt: skip
    about_model = results.names("measure", method="")
    use = (
        pivot(results, "Test nodes with and without the noise", by("data", titles),
              by("measure", [n for n in about_model if not n.startswith("attention")]), method="",
              paper=paper, digits=3, note="The paper says that its models do not use the noise."),
        *(pivot(results, f"Our credit and the effect of deletion: {name}",
                by("measure", results.names("measure", method=name)), by("data", titles),
                method=name, digits=3) for name in DELETIONS),
        pivot(results, "Mean attention", by("measure", about_model), by("data", titles), method="",
              note="Attention that v pays to u, averaged over heads, layers, the edges from u, and "
              "nodes u; *if even*: the same for all neighbours of v. Paper: 0.11 on noisy, 0.15 on "
              "normal nodes.") if any(n.startswith("attention") for n in about_model) else "",
    )  # fmt: skip
    return Page(
        f"Noisy {what} among the most important ones",
        tuple(claims),
        Figure("kde", f"Noisy {what} among the top k by value: densities over all explained nodes",
               lambda: densities({title: counts(title) for title in titles}, what)),
        (Section("Noise among the top", tables), Section("Do the models use the noise?", use)),
        f"20 % more {what} that mean nothing are added, and a model is trained. Test nodes are "
        f"drawn at random and their predicted class is explained. Candidates are the same for all "
        f"methods: {names[0]}, or {names[1]}. k is {TOP}, or 20 % of the candidates where there "
        f"are fewer than {FEW}; ties count with the expected number of noisy ones. Models with "
        f"noise weights 0 cannot use the noise.",
    )  # fmt: skip


def features_page(results: Measurements) -> Page:
    """Of the study `noisy-features`."""
    names = (STANDING_OUT, PRESENT)
    return _page(results, "features", list(FEATURE_BASELINES), names, FEATURES_SUFFIX)


def nodes_page(results: Measurements) -> Page:
    """Of the study `noisy-nodes`."""
    return _page(results, "nodes", list(NODE_BASELINES), (FIELD, NEAR), NODES_SUFFIX)


FEATURES_STUDY = Study(
    "noisy-features",
    f"how many meaningless features are among the top {TOP} (or 20 %), GraphSVX and baselines",
    (FEATURES, CANNOT_USE),
    features_page,
)
NODES_STUDY = Study(
    "noisy-nodes",
    f"how many meaningless nodes are among the top {TOP} (or 20 %); the GAT's attention on them",
    (NODES,),
    nodes_page,
)
