"""What the studies of the estimator share: nodes to explain, and how good an explanation is.

Two things are judged and kept apart: whether the motif is found (two protocols that are never
mixed, and AUROC), and how far the credit is from the Shapley values that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from graphsvx import baselines
from graphsvx.errors import InputError
from graphsvx.explanation import Explanation, Ranking
from graphsvx.masks import Auto, Mask, Masks
from graphsvx.masks.base import Game
from graphsvx.methods import GraphSVX
from graphsvx.studies.chosen import TITLES, Choice, choice
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Asked, Measure, without_credit
from graphsvx.zoo import Trained

SEEDS = (0, 1, 2, 3, 4)
STRICT_NODES = 12
"""Nodes of the strict protocol that are drawn for each seed."""
REFERENCE = 20
"""The reference may make this many times the model calls."""


@dataclass(frozen=True)
class Elsewhere:
    """Our rows from random numbers of their own: a reference that shares no luck with others.

    `separate=False` plays one joint game of features and nodes, as the paper's first masks do.
    """

    inner: Mask = Auto()  # noqa: RUF009  (a frozen record)
    separate: bool = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """As `inner`, with another stream."""
        fresh = int(torch.randint(2**62, (1,), generator=rng))
        return self.inner(game, budget, torch.Generator().manual_seed(fresh))


@dataclass(frozen=True)
class Score:
    """How good one explanation is; NaN where a figure does not apply."""

    node: int
    paper: float
    """Accuracy under the paper's protocol, for its nodes."""
    strict: float
    """Accuracy under the strict protocol, for its nodes."""
    auroc: float
    error: float
    """Relative squared error against the reference."""
    calls: int
    exact: bool


def score(
    found: Explanation, reference: Explanation | None, world: Trained, asked: Asked, by: Ranking
) -> Score:
    """All figures of one explanation of a node."""
    node = query_of(found)

    def figure(what: Literal["paper", "strict", "auroc"]) -> float:
        scored = asked.paper if what == "paper" else asked.strict
        return Measure(what, by)(world, found) if node in scored else nan

    return Score(
        node,
        paper=figure("paper"),
        strict=figure("strict"),
        auroc=figure("auroc"),
        error=nan if reference is None else relative_error(found, reference),
        calls=found.certificate.calls,
        exact=found.certificate.exact,
    )


def scores(
    found: Iterable[Explanation],
    references: Iterable[Explanation] | None,
    world: Trained,
    asked: Asked,
    by: Ranking,
) -> list[Score]:
    """`score` for each explanation, with the reference of the same node where there is one."""
    known = {query_of(one): one for one in references or ()}
    return [score(one, known.get(query_of(one)), world, asked, by) for one in found]


def relative_error(found: Explanation, reference: Explanation) -> float:
    """|phi - phi_ref|^2 / |phi_ref|^2 over all players; NaN if the reference is 0 everywhere."""
    if _players(found) != _players(reference):
        raise InputError(
            f"an error needs the same players on both sides, got {found.title} with "
            f"{found.method} and {reference.title} with {reference.method}"
        )
    credit, known = _credit(found), _credit(reference)
    size = float((known**2).sum())
    return float(((credit - known) ** 2).sum()) / size if size > 0 else nan


def own_error(explanation: Explanation) -> float:
    """The relative squared error that an estimate expects of itself, from its error bars."""
    size = float((_credit(explanation) ** 2).sum())
    return float((explanation.errors**2).sum()) / size if size > 0 else nan


def _players(one: Explanation) -> list[list[int]]:
    return [ids.flatten().tolist() for ids in (one.feature_ids, one.node_ids, one.edge_ids)]


def _credit(one: Explanation) -> Tensor:
    """In the order of `Explanation.errors`."""
    return torch.cat([one.feature_values, one.node_values, one.edge_values])


def middle(groups: Sequence[Sequence[float]]) -> Estimate:
    """The median of each seed, averaged over seeds: for figures with a few huge ones."""
    kept = [[one for one in group if not isnan(one)] for group in groups]
    kept = [group for group in kept if group]
    found = Estimate.of([[median(group)] for group in kept])
    return replace(found, count=sum(map(len, kept)))


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    datasets: tuple[str, ...]
    seeds: tuple[int, ...] = SEEDS
    strict: int = STRICT_NODES
    paper: int | None = None
    """Only the first nodes of the paper's protocol; None: all."""
    divisor: int = 1
    """A quick look takes only this part of the samples."""

    def choice(self, dataset: str) -> Choice:
        """What is asked: the paper's rows and number of samples in the game of `GraphSVX()`.

        Without the indirect effect more of the values can be had exactly. Probabilities are
        explained and nodes ranked by signed value, as in the paper.
        """
        samples = GraphSVX.paper(dataset).samples // self.divisor
        return Choice(GraphSVX.paper(dataset, samples=samples, indirect=False))

    def letter(self, dataset: str) -> Choice:
        """The same with the indirect effect: the paper's own game."""
        samples = self.choice(dataset).method.samples
        return Choice(GraphSVX.paper(dataset, samples=samples))

    def tuned(self, dataset: str) -> Choice:
        """The paper's method with the settings that were chosen on validation seeds."""
        chosen = choice(dataset)
        samples = chosen.method.samples // self.divisor
        return replace(chosen, method=replace(chosen.method, samples=samples))

    def asked(self, world: Trained) -> Asked:
        """The nodes that are explained."""
        return Asked.of(world, self.strict, self.paper)

    def words(self) -> dict[str, object]:
        """For the page."""
        return {
            "seeds": self.seeds,
            "nodes": f"all of the paper's protocol, and {self.strict} a seed, drawn from the motif "
            f"nodes that the model classifies right, for the strict one",
            "games": {TITLES[name]: game_words(self.choice(name)) for name in self.datasets},
        }


def reference_method(method: GraphSVX, separate: bool = True) -> GraphSVX:
    """Exact where that many calls allow it, our estimator with all of them elsewhere."""
    mask = Elsewhere(separate=separate)
    return replace(method, mask=mask, samples=REFERENCE * method.samples)


def references(
    desk: Desk, world: Trained, chosen: Choice, asked: Asked, separate: bool = True
) -> list[Explanation]:
    """The reference of every node, in the two separate games or in the joint one."""
    return desk.explanations(
        world, reference_method(chosen.method, separate), asked.all,
        label="reference" if separate else "reference, joint", scale=chosen.scale,
    )  # fmt: skip


def at_random(desk: Desk, world: Trained, asked: Asked) -> list[Explanation]:
    """The random explainer without its luck: scored as the average over all its draws."""
    drawn = desk.explanations(world, baselines.Random(), asked.all, label="Random explainer")
    return [without_credit(one) for one in drawn]


def game_words(chosen: Choice) -> str:
    """The game that is played, in a few words."""
    method = chosen.method
    hops = "as far as the model looks" if method.hops is None else f"{method.hops} hops"
    joined = f"indirect effect ({method.indirect})" if method.indirect else "no indirect effect"
    ranked = "signed value" if chosen.by == "value" else "magnitude"
    hops += ", edges play" if method.players == "edges" else ""
    return f"{hops}, {joined}, {chosen.scale}, ranked by {ranked}"
