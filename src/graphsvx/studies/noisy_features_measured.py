"""What the study `noisy-features` measures; its page is in `noisy_features.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphsvx import GraphSVX
from graphsvx.baselines import LIME, SHAP, GNNExplainer, GraphLIME, Greedy, Random
from graphsvx.data.noise import FEATURES_SUFFIX
from graphsvx.explanation import Explanation
from graphsvx.methods import Method
from graphsvx.studies.desk import Desk
from graphsvx.studies.noise import (
    DATASETS,
    MODELS,
    LeaveOneOut,
    Tally,
    explained_nodes,
    ids,
    noisy_worlds,
    outcome,
    top_k,
    with_credit,
)
from graphsvx.studies.noise_figures import OURS, PAPER, Place
from graphsvx.studies.noise_use import (
    Effects,
    Use,
    deaf_to_noise,
    deleted_alone,
    effects_beside,
    use_of_features,
)
from graphsvx.zoo import Trained

BASELINES = ("GNNExplainer", "GraphLIME", "LIME", "SHAP", "Greedy", "Random")
METHODS = (PAPER, OURS, *BASELINES)
AROUND = ("GraphSVX, subgraph features (paper's mask)", "GraphSVX, subgraph features (our default)")
WIDE = ("LIME, all features play", "SHAP, all features play")
Explained = dict[int, Explanation]
"""Explanations of one method, by node."""


@dataclass(frozen=True)
class Size:
    """How much is measured. Nodes are counted for each data set, model and seed."""

    seeds: tuple[int, ...] = (0, 1, 2)
    datasets: tuple[str, ...] = DATASETS
    nodes: tuple[tuple[str, int], ...] = (("cora", 50), ("citeseer", 12), ("pubmed", 12))
    deaf: int = 10
    """Nodes for the models that cannot use noise (Cora)."""
    around: int = 10
    """Nodes for the features of the whole neighbourhood (Cora)."""
    wide: int = 3
    """Nodes where all features play (Cora, GAT)."""
    models: tuple[str, ...] = MODELS


QUICK = Size((0,), ("cora", "pubmed"), (("cora", 2), ("pubmed", 2)), 1, 1, 1, ("gat",))


@dataclass(frozen=True, eq=False)
class Found:
    """Everything that the page tells.

    standing_out, present: candidates are the features outside mu +- lambda sigma, or not 0.
    around: candidates are the features that stand out somewhere in the neighbourhood.
    deaf_*: the same with models that cannot use noise.
    wide: (noisy, chosen) of the top 20 of all features, by (model, method), seed by seed.
    """

    size: Size
    standing_out: Tally = field(default_factory=Tally)
    present: Tally = field(default_factory=Tally)
    around: Tally = field(default_factory=Tally)
    deaf_standing_out: Tally = field(default_factory=Tally)
    deaf_present: Tally = field(default_factory=Tally)
    wide: dict[str, list[list[tuple[float, int]]]] = field(default_factory=dict)
    use: dict[Place, list[Use]] = field(default_factory=dict)
    alone: dict[Place, list[Effects]] = field(default_factory=dict)
    whole: dict[Place, list[Effects]] = field(default_factory=dict)
    credit: dict[Place, list[tuple[float, float, float]]] = field(default_factory=dict)
    """Mean |credit| of noise, of words that are there, and of words that are not."""
    examples: list[tuple[Explanation, set[int]]] = field(default_factory=list)


def methods(dataset: str, quick: bool) -> dict[str, Method]:
    """The explainers by their names on the page; all but two perturb the features that stand out.

    GNNExplainer, GraphLIME and Random score every column.
    """
    few = {"samples": 150} if quick else {}
    return {
        PAPER: GraphSVX.paper(dataset),
        OURS: GraphSVX(),
        "GNNExplainer": GNNExplainer(epochs=5) if quick else GNNExplainer(),
        "GraphLIME": GraphLIME(),
        "LIME": LIME(**few),
        "SHAP": SHAP(**few),
        "Greedy": Greedy(players="features"),
        "Random": Random(players="features", features="all"),
    }


def explain_all(
    desk: Desk, world: Trained, nodes: Sequence[int], chosen: dict[str, Method]
) -> dict[str, Explained]:
    """Explanations by method and node."""
    return {
        name: {one.centres[0]: one for one in desk.explanations(world, method, nodes, label=name)}
        for name, method in chosen.items()
    }


def count_all(
    world: Trained, place: Place, explained: dict[str, Explained], out: Tally, present: Tally
) -> None:
    """Count noise with both sets of candidates, which our players decide for everybody."""
    noise, x = noisy_features(world), world.dataset.graph.x
    for name, found in explained.items():
        pairs = [(found[v], ours) for v, ours in explained[OURS].items() if v in found]
        for tally, only_present in ((out, False), (present, True)):
            tally.add(
                (*place, name),
                world.dataset.seed,
                [
                    outcome(
                        one.features,
                        [
                            column
                            for column in ours.feature_ids.tolist()
                            if not only_present or x[ours.centres[0], column] != 0
                        ],
                        noise,
                    )
                    for one, ours in pairs
                ],
            )


def noisy_features(world: Trained) -> set[int]:
    """The columns that were added."""
    return set() if world.dataset.noise is None else ids(world.dataset.noise.features)


def measure_reasons(
    desk: Desk, world: Trained, place: Place, ours: Explained, found: Found
) -> None:
    """How far the model uses noise, and whether credit follows what deleting a feature does."""
    noise, x = noisy_features(world), world.dataset.graph.x
    found.use.setdefault(place, []).append(use_of_features(world))
    deleted = desk.explanations(
        world, LeaveOneOut("features"), ours, label="features deleted one by one"
    )
    whole = {one.centres[0]: one.features for one in deleted}
    known = [one for v, one in ours.items() if v in whole]
    k = [top_k(one.feature_credit.players) for one in known]
    credits = [one.features for one in known]
    alone = [deleted_alone(world, one) for one in known]
    found.alone.setdefault(place, []).append(effects_beside(credits, alone, noise, k))
    found.whole.setdefault(place, []).append(
        effects_beside(credits, [whole[one.centres[0]] for one in known], noise, k)
    )
    sizes: tuple[list[float], list[float], list[float]] = ([], [], [])
    for one in known:
        for column, value in one.features.items():
            there = bool(x[one.centres[0], column] != 0)
            sizes[0 if column in noise else 1 if there else 2].append(abs(value))
    found.credit.setdefault(place, []).append((_mean(sizes[0]), _mean(sizes[1]), _mean(sizes[2])))


def measure_around(
    desk: Desk, world: Trained, place: Place, explained: dict[str, Explained], found: Found
) -> None:
    """Features of the whole neighbourhood: candidates stand out at one of its nodes."""
    nodes = list(explained[OURS])[: found.size.around]
    chosen: dict[str, Method] = {
        AROUND[0]: GraphSVX.paper(place[0], features_of="subgraph", indirect=False),
        AROUND[1]: GraphSVX(features_of="subgraph"),
    }
    # What fails at the first node is told once, not for every node.
    if not explain_all(desk, world, nodes[:1], {AROUND[1]: chosen[AROUND[1]]})[AROUND[1]]:
        return
    whole = explain_all(desk, world, nodes, chosen)
    whole |= {name: explained[name] for name in ("GNNExplainer", "GraphLIME", "Random")}
    players = {v: one.feature_ids.tolist() for v, one in whole[AROUND[1]].items()}
    for name, of_node in whole.items():
        found.around.add(
            (*place, name),
            world.dataset.seed,
            [
                outcome(of_node[v].features, columns, noisy_features(world))
                for v, columns in players.items()
                if v in of_node
            ],
        )


def measure_wide(desk: Desk, world: Trained, explained: dict[str, Explained], found: Found) -> None:
    """All features are candidates, and each method plays as many as it can."""
    nodes = list(explained[OURS])[: found.size.wide]
    lime, shap = LIME(features="all"), SHAP(features="all")
    if desk.quick:  # so few rows do not do for all columns
        lime, shap = LIME(150, "nonzero"), SHAP(150, "nonzero")
    wide = explain_all(desk, world, nodes, {WIDE[0]: lime, WIDE[1]: shap})
    for name, of_node in (explained | wide).items():
        found.wide.setdefault(name, []).append(
            [
                with_credit(of_node[v].features, noisy_features(world), "value")
                for v in nodes
                if v in of_node
            ]
        )


def measure(desk: Desk, size: Size) -> Found:
    """All figures of the page."""
    found = Found(size)
    for place, world in noisy_worlds(desk, size.datasets, FEATURES_SUFFIX, size.models, size.seeds):
        _measure_world(desk, world, place, found)
    return found


def _measure_world(desk: Desk, world: Trained, place: Place, found: Found) -> None:
    dataset, model = place
    size = found.size
    nodes = explained_nodes(world, dict(size.nodes)[dataset])
    chosen = methods(dataset, desk.quick)
    explained = explain_all(desk, world, nodes, chosen)
    count_all(world, place, explained, found.standing_out, found.present)
    measure_reasons(desk, world, place, explained[OURS], found)
    if dataset != size.datasets[0]:
        return
    measure_around(desk, world, place, explained, found)
    deaf = deaf_to_noise(world)
    again = explain_all(desk, deaf, nodes[: size.deaf], chosen)
    count_all(deaf, place, again, found.deaf_standing_out, found.deaf_present)
    if model == "gat":
        measure_wide(desk, world, explained, found)
        noise = noisy_features(world)
        found.examples.extend((one, noise) for one in explained[OURS].values())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
