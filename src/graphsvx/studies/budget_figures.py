"""What the study `budget` measures: scores with every number of samples and every S."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isnan

from graphsvx.masks import Auto, Mask, SmarterSeparate
from graphsvx.studies import scoring
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.scoring import Plan, Score

SMARTER, OURS, ALL, FLOOR = "SmarterSeparate", "ours", "All", "Random explainer"
# The paper's accuracies on Tree-Cycles by number of samples (appendix).
PAPER: dict[int | str, float] = {500: 0.83, 1500: 0.95, 3000: 0.88, ALL: 0.87}
PAPER_SET = "tree-cycles"

Key = tuple[str, int]
"""Estimator and number of samples, or ("S", S)."""


@dataclass(frozen=True)
class Steps:
    """What is varied."""

    samples: tuple[int, ...] = (50, 150, 500, 1500, 3000, 6000)
    orders: tuple[int, ...] = (1, 2, 3, 4, 5)


@dataclass(eq=False)
class Found:
    """What was measured on one data set: scores by setting, then by seed."""

    scores: dict[Key, list[list[Score]]] = field(default_factory=dict)
    bars: list[list[float]] = field(default_factory=list)
    """What the reference expects its own error to be."""

    def estimate(self, key: Key, what: str) -> Estimate:
        """Mean over nodes and seeds; errors as medians over nodes."""
        made = self.scores.get(key, [])
        groups = [[float(getattr(one, what)) for one in seed] for seed in made]
        return (scoring.middle if what == "error" else Estimate.of)(groups)

    @property
    def most(self) -> int:
        """The largest number of samples that was tried."""
        return max(count for who, count in self.scores if who == SMARTER)

    def change(self, before: Key, after: Key, what: str = "paper") -> Estimate:
        """How much a figure grows from one setting to another, on the same nodes."""
        return Estimate.of(
            differences(self.scores[before], self.scores[after], lambda one: getattr(one, what))
        )


def differences(
    before: Sequence[Sequence[Score]],
    after: Sequence[Sequence[Score]],
    figure: Callable[[Score], float],
) -> list[list[float]]:
    """After minus before, node by node, for the nodes that both have."""
    found = []
    for old, new in zip(before, after, strict=True):
        known = {one.node: figure(one) for one in old}
        found.append([figure(one) - known[one.node] for one in new if one.node in known])
    return found


def halves(found: Found, key: Key) -> tuple[Estimate, Estimate]:
    """What a setting scores above `All` (protocol `paper`): on its better and worse half.

    Better and worse by its error against the reference. Were biased values the ones that find the
    motif, they would score above `All` where the error is large.
    """
    low, high = [], []
    for mine, exact in zip(found.scores[key], found.scores[ALL, 0], strict=True):
        known = {one.node: one.paper for one in exact}
        both = [
            (one.error, one.paper - known[one.node])
            for one in mine
            if one.node in known and not isnan(one.paper) and not isnan(one.error)
        ]
        both.sort()
        cut = len(both) // 2
        low.append([gain for _, gain in both[:cut]])
        high.append([gain for _, gain in both[cut:]])
    return Estimate.of(low), Estimate.of(high)


def measure(desk: Desk, dataset: str, plan: Plan, steps: Steps, *, letter: bool = False) -> Found:
    """Explain the same nodes with every budget and every S, and score them.

    `letter`: in the paper's own game, with the indirect effect.
    """
    found, chosen = Found(), plan.letter(dataset) if letter else plan.choice(dataset)
    method = chosen.method
    ways: dict[Key, tuple[Mask, int]] = {}
    # A reference has to have far more calls than what it judges.
    most = scoring.REFERENCE * method.samples // 2
    for count in [n for n in steps.samples if n <= most]:
        ways[SMARTER, count] = (method.mask, count)
        ways[OURS, count] = (Auto(), count)
    for order in steps.orders:
        ways["S", order] = (SmarterSeparate(order=order), method.samples)
    for seed in plan.seeds:
        world = desk.world(dataset, seed)
        asked = plan.asked(world)
        known = scoring.references(desk, world, chosen, asked)
        made = {(ALL, 0): known, (FLOOR, 0): scoring.at_random(desk, world, asked)}
        for key, (mask, count) in ways.items():
            name = f"{SMARTER}, S={key[1]}, {count}" if key[0] == "S" else f"{key[0]}, {count}"
            made[key] = desk.explanations(
                world, replace(method, mask=mask, samples=count), asked.all,
                label=name, scale=chosen.scale,
            )  # fmt: skip
        for key, explanations in made.items():
            against = None if key[0] == FLOOR else known
            rows = scoring.scores(explanations, against, world, asked, chosen.by)
            found.scores.setdefault(key, []).append(rows)
        found.bars.append([scoring.own_error(one) for one in known])
    return found
