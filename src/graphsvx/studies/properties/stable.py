"""Stability: are nodes in the same place of a motif explained alike?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan

import numpy as np

from graphsvx.explain.direct import as_nodes
from graphsvx.explanation import Explanation
from graphsvx.studies.chapters import Told
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Measure, true_nodes, without_credit
from graphsvx.studies.page import Beside, Cell, Table
from graphsvx.studies.properties.asked import questions
from graphsvx.studies.properties.surrogate import EXPLAINERS, explained
from graphsvx.zoo import Trained

PAPER = "< 0.1"
CHANCE = "Random, on average"


@dataclass(frozen=True, eq=False)
class Seen:
    """One explanation as seen from its motif."""

    place: int
    """The explained node's position in its motif."""
    accuracy: float
    credit: np.ndarray
    """Of the motif's other nodes, in the order of their positions."""


def seen(world: Trained, explanation: Explanation) -> Seen:
    """An explanation with the places of the motif in place of node ids."""
    node = query_of(explanation)
    others = sorted(true_nodes(world, node))
    first = min(others[0], node)
    credit = as_nodes(explanation).nodes
    return Seen(
        place=node - first,
        accuracy=Measure("strict")(world, explanation),
        credit=np.asarray([credit.get(one, 0.0) for one in others]),
    )


def by_place(some: Sequence[Seen]) -> list[list[Seen]]:
    """Explanations of nodes in the same place; at least two each."""
    found: dict[int, list[Seen]] = defaultdict(list)
    for one in some:
        found[one.place].append(one)
    return [group for _, group in sorted(found.items()) if len(group) > 1]


def variance(values: Sequence[float]) -> float:
    """Of a sample, without bias."""
    return float(np.var(values, ddof=1))


def likeness(group: Sequence[Seen]) -> float:
    """Mean correlation between the credits of two explanations, place by place of the motif.

    0 on average for random credit of players that the model sees; pairs in which one is the same
    everywhere do not count.
    """
    found = []
    for a, b in combinations(group, 2):
        if np.ptp(a.credit) > 0 and np.ptp(b.credit) > 0:
            found.append(float(np.corrcoef(a.credit, b.credit)[0, 1]))
    return float(np.mean(found)) if found else nan


def measure(desk: Desk, seeds: Sequence[int]) -> Told:
    """Both tables and what they say."""
    sets = desk.pick(NODE_SETS, ("tree-cycles",))
    found: dict[tuple[str, str], list[list[list[Seen]]]] = {}
    for name in sets:
        for seed in seeds:
            world = desk.world(name, seed)
            for explainer in EXPLAINERS:
                some = explained(desk, world, explainer, questions(desk, world))
                groups = by_place([seen(world, one) for one in some])
                found.setdefault((explainer, name), []).append(groups)
                if explainer == "Random":
                    blank = [seen(world, without_credit(one)) for one in some]
                    found.setdefault((CHANCE, name), []).append(by_place(blank))
    tables = _accuracy(found, sets), _credit(found, sets)
    return Told(tables, *_words(found, sets))


def _over(
    over: Sequence[Sequence[Sequence[Seen]]], value: Callable[[Sequence[Seen]], float]
) -> Estimate:
    return Estimate.of([[value(group) for group in groups] for groups in over])


def _variance_of_accuracy(group: Sequence[Seen]) -> float:
    return variance([one.accuracy for one in group])


def _variance_of_credit(group: Sequence[Seen]) -> float:
    return float(np.mean(np.var([one.credit for one in group], axis=0, ddof=1)))


def _accuracy(found: dict[tuple[str, str], list[list[list[Seen]]]], sets: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for explainer in (*EXPLAINERS, CHANCE):
        cells: list[Cell] = []
        for name in sets:
            spread = _over(found[explainer, name], _variance_of_accuracy)
            ours = explainer.startswith("GraphSVX")
            means = [
                [one.accuracy for group in groups for one in group]
                for groups in found[explainer, name]
            ]
            cells += [
                Estimate.of(means),
                Beside(spread, PAPER, digits=3) if ours else spread,
            ]
        rows.append((explainer, *cells))
    return Table(
        "Stability: variance of accuracy over nodes in the same place of a motif",
        ("explainer", *(f"{TITLES[name]}, {what}" for name in sets
                        for what in ("accuracy", "variance"))),
        tuple(rows),
        note="Accuracy: `strict`, by signed value. Variance over motif nodes of one seed in the "
        "same place, the mean over places. *Random, on average*: accuracy as the average over all "
        "random rankings, so its variance is only that of the games' sizes. A variance of accuracy "
        "is at most about 0.25, and 0 for an explainer that is always equally wrong.",
        digits=3,
    )  # fmt: skip


def _credit(found: dict[tuple[str, str], list[list[list[Seen]]]], sets: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for explainer in EXPLAINERS:
        cells: list[Cell] = []
        for name in sets:
            over = found[explainer, name]
            cells += [_over(over, likeness), _over(over, _variance_of_credit)]
        rows.append((explainer, *cells))
    return Table(
        "Stability of the credit itself",
        ("explainer", *(f"{TITLES[name]}, {what}" for name in sets
                        for what in ("correlation", "variance"))),
        tuple(rows),
        note="*Correlation*: of the credits of two explained nodes in the same place of their "
        "motifs, place by place; mean over pairs; 0 for random credit, but for places that the "
        "model cannot see, which count with 0 for everybody. *Variance* of the credit of a place, "
        "in the explainer's own units.",
        digits=3,
    )  # fmt: skip


def _words(
    found: dict[tuple[str, str], list[list[list[Seen]]]], sets: Sequence[str]
) -> tuple[str, str]:
    def spread(explainer: str) -> list[Estimate]:
        return [_over(found[explainer, name], _variance_of_accuracy) for name in sets]

    ours, chance = spread(EXPLAINERS[0]), spread("Random")
    alike = [_over(found[EXPLAINERS[0], name], likeness).mean for name in sets]
    other = [_over(found["GNNExplainer", name], likeness).mean for name in sets]
    held = sum(one.mean < 0.1 for one in ours)
    brief = (
        f"the variance of accuracy within a place of the motif is at most "
        f"{max(one.mean for one in ours):.3f} (paper: below 0.1; random credit: "
        f"{max(one.mean for one in chance):.3f})"
    )
    sentence = (
        f"The variance of accuracy within a place of the motif is below 0.1 on {held} of "
        f"{len(sets)} sets (at most {max(one.mean for one in ours):.3f}; paper: below 0.1), but so "
        f"it is for random credit on {sum(one.mean < 0.1 for one in chance)} of {len(sets)} (at "
        f"most {max(one.mean for one in chance):.3f}). The credit itself correlates by "
        f"{min(alike):.2f} to {max(alike):.2f} between nodes in the same place (GNNExplainer "
        f"{min(other):.2f} to {max(other):.2f})."
    )
    return sentence, brief
