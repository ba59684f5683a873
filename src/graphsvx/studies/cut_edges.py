"""Study `cut-edges`: what it does to explanations that models are also shown cut edges.

Explainers ask a model about graphs without some of their edges. A model that never saw one may
answer anything there. Our models with motifs are therefore trained with cut edges
(`Settings.cut_edges`); this study says what that changes, for other explainers too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from graphsvx import zoo
from graphsvx.baselines import GNNExplainer, PGMExplainer, Random, Saliency
from graphsvx.explanation import Explanation
from graphsvx.methods import GraphSVX, Method
from graphsvx.studies.chosen import TITLES
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Asked, Measure, over_seeds, without_credit
from graphsvx.studies.page import Cell, Page, Table
from graphsvx.studies.study import Study
from graphsvx.zoo import Settings, Trained

SEEDS = (100, 101, 102)
"""Validation seeds: the choice was made on these, and no other study scores them."""
SETS = ("ba-shapes", "tree-cycles", "ba-2motifs")
ASKED = 20
OURS = "GraphSVX"
FLOOR = "Random"


@dataclass(frozen=True)
class Variant:
    """One way of training: figures by name, one list of samples a seed."""

    words: str
    accuracy: Estimate
    alone: Estimate
    """The score of the explained class without any edge."""
    found: Mapping[str, Estimate]
    """Accuracy (strict) by explainer."""


def make(desk: Desk) -> Page:
    """Train both ways, explain the same nodes and graphs, compare."""
    variants: dict[str, list[Variant]] = {}
    for name in desk.pick(SETS, SETS[1:2]):
        usual = zoo.settings_for(name)
        variants[name] = [
            measured(desk, name, replace(usual, cut_edges=cut)) for cut in (False, True)
        ]
    return page(variants)


def measured(desk: Desk, name: str, settings: Settings) -> Variant:
    """One data set, one way of training, all explainers."""
    usual = settings == zoo.settings_for(name)
    tests: list[list[float]] = []
    alone: list[list[float]] = []
    scores: dict[str, list[list[float]]] = {}
    for seed in desk.pick(SEEDS, SEEDS[:1]):
        world = desk.world(name, seed) if usual else desk.variant(name, seed, settings)
        asked = Asked.of(world, desk.pick(ASKED, 2), 0)
        tests.append([world.card.accuracy["test"]])
        found = {
            label: desk.explanations(world, method, asked.all, label=label)
            for label, method in explainers(desk).items()
        }
        alone.append(without_edges(world, found[OURS]))
        found[FLOOR] = [without_credit(one) for one in found[FLOOR]]
        for label, explanations in found.items():
            values = Measure("strict").samples(world, explanations, asked).values()
            scores.setdefault(label, []).append(list(values))
    words = "with cut edges" if settings.cut_edges else "whole graphs only"
    return Variant(
        words,
        over_seeds(tests),
        over_seeds(alone),
        {label: over_seeds(samples) for label, samples in scores.items()},
    )


def explainers(desk: Desk) -> dict[str, Method]:
    """Who is asked, by the name in the table."""
    return {
        OURS: GraphSVX(),
        "GNNExplainer": GNNExplainer(epochs=desk.pick(100, 2)),
        "PGM-Explainer": PGMExplainer(samples=desk.pick(1000, 60), by="zero"),
        "Saliency": Saliency(),
        FLOOR: Random(players="nodes"),
    }


@torch.no_grad()
def without_edges(world: Trained, explanations: Sequence[Explanation]) -> list[float]:
    """Probability of each explained class when no edge is left."""
    graph = world.dataset.graphs[0]
    nothing = torch.empty(2, 0, dtype=torch.long)
    # All nodes have the same features in these sets, so one row stands for any of them.
    scores = world.model(graph.x[:1], nothing).softmax(-1)[0]
    return [float(scores[one.target]) for one in explanations]


def page(variants: Mapping[str, Sequence[Variant]]) -> Page:
    """One table, and what it says."""
    labels = list(next(iter(variants.values()))[0].found)
    rows: list[tuple[Cell, ...]] = [
        (TITLES[name], one.words, one.accuracy, one.alone, *(one.found[label] for label in labels))
        for name, pair in variants.items()
        for one in pair
    ]
    gains = {
        label: sum(pair[1].found[label].mean - pair[0].found[label].mean
                   for pair in variants.values()) / len(variants)
        for label in labels if label != FLOOR
    }  # fmt: skip
    said = ", ".join(f"{label} {gain:+.2f}" for label, gain in gains.items())
    falls = [
        f"{TITLES[name]} {pair[0].alone.mean:.2f} to {pair[1].alone.mean:.2f}"
        for name, pair in variants.items()
    ]
    table = Table(
        "The same settings, trained both ways",
        ("data set", "training", "test accuracy", "score without edges", *labels),
        tuple(rows),
        note=(
            "Score without edges: the probability of the explained class when every edge is cut, "
            "which is the base value of whole graphs, and of nodes whose features are constant; "
            "where it is high, nothing is left to share out. Explainers: accuracy under `strict`, "
            "signed ([protocols.md](protocols.md)); GraphSVX with its defaults."
        ),
    )
    return Page(
        "What training with cut edges changes",
        (
            "Every explainer that takes edges away asks a model about graphs that it never saw "
            "in training. In each step our models of these sets also see a copy of the graph "
            "with edges cut at a rate between 0 and 1. This was chosen by the accuracy of GraphSVX "
            "on these validation seeds (on fewer nodes, with earlier code): it is a choice of the "
            "model, made in our favour, and this table says what it is worth to each explainer.",
            table,
        ),
        headline=(
            f"Models that also saw cut edges give the explained class without any edge another "
            f"score ({'; '.join(falls)}). Mean change of accuracy (strict): {said}."
        ),
        settings={"seeds": SEEDS, "nodes or graphs a seed": ASKED},
    )


STUDY = Study("cut-edges", "what models that also saw cut edges change for explainers", make)
