"""What the study `noisy-nodes` measures; its page is in `noisy_nodes.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphsvx import GraphSVX
from graphsvx.baselines import GNNExplainer, Greedy, Random
from graphsvx.data.noise import NODES_SUFFIX
from graphsvx.explain.direct import as_nodes
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
)
from graphsvx.studies.noise_figures import OURS, PAPER, Place
from graphsvx.studies.noise_use import (
    Attention,
    Effects,
    NodeUse,
    attention,
    effects_beside,
    use_of_nodes,
)
from graphsvx.zoo import Trained

BASELINES = ("GNNExplainer", "Greedy", "Random")
METHODS = (PAPER, OURS, *BASELINES)


@dataclass(frozen=True)
class Size:
    """How much is measured. Nodes are counted for each data set, model and seed."""

    seeds: tuple[int, ...] = (0, 1, 2)
    datasets: tuple[str, ...] = DATASETS
    nodes: tuple[tuple[str, int], ...] = (("cora", 50), ("citeseer", 12), ("pubmed", 12))
    models: tuple[str, ...] = MODELS


QUICK = Size((0,), ("cora", "pubmed"), (("cora", 3), ("pubmed", 3)), ("gat",))


@dataclass(frozen=True, eq=False)
class Found:
    """Everything that the page tells; `everywhere` and `near` are the two sets of candidates."""

    size: Size
    everywhere: Tally = field(default_factory=Tally)
    near: Tally = field(default_factory=Tally)
    use: dict[Place, list[NodeUse]] = field(default_factory=dict)
    attention: dict[tuple[str, bool], list[Attention]] = field(default_factory=dict)
    """By data set, and whether nodes' attention to themselves counts."""
    effects: dict[Place, list[Effects]] = field(default_factory=dict)
    examples: list[tuple[Explanation, set[int]]] = field(default_factory=list)


def methods(dataset: str, quick: bool) -> dict[str, Method]:
    """The explainers by their names on the page."""
    return {
        PAPER: GraphSVX.paper(dataset),
        OURS: GraphSVX(),
        "GNNExplainer": GNNExplainer(epochs=5) if quick else GNNExplainer(),
        "Greedy": Greedy(players="nodes"),
        "Random": Random(players="nodes"),
    }


def noisy_nodes(world: Trained) -> set[int]:
    """The nodes that were added."""
    return set() if world.dataset.noise is None else ids(world.dataset.noise.nodes)


def measure(desk: Desk, size: Size) -> Found:
    """All figures of the page."""
    found = Found(size)
    for place, world in noisy_worlds(desk, size.datasets, NODES_SUFFIX, size.models, size.seeds):
        _measure_world(desk, world, place, found)
    return found


def _measure_world(desk: Desk, world: Trained, place: Place, found: Found) -> None:
    noise = noisy_nodes(world)
    asked = explained_nodes(world, dict(found.size.nodes)[place[0]])
    explained = {
        name: {
            one.centres[0]: as_nodes(one)
            for one in desk.explanations(world, method, asked, label=f"nodes, {name}")
        }
        for name, method in methods(place[0], desk.quick).items()
    }
    ours = explained[OURS]
    for name, by_node in explained.items():
        for tally, most in ((found.everywhere, None), (found.near, 1)):
            outcomes = [
                outcome(by_node[v].nodes, within(one, most), noise)
                for v, one in ours.items()
                if v in by_node
            ]
            tally.add((*place, name), world.dataset.seed, outcomes)
    deleted = desk.explanations(world, LeaveOneOut("nodes"), ours, label="nodes deleted one by one")
    whole = {one.centres[0]: one.nodes for one in deleted}
    known = [one for v, one in ours.items() if v in whole]
    found.effects.setdefault(place, []).append(
        effects_beside(
            [one.nodes for one in known],
            [whole[one.centres[0]] for one in known],
            noise,
            [top_k(one.node_credit.players) for one in known],
        )
    )
    found.use.setdefault(place, []).append(use_of_nodes(world))
    if place[1] == "gat":
        for loops in (False, True):
            found.attention.setdefault((place[0], loops), []).append(attention(world, loops))
    if place == (found.size.datasets[0], "gat"):
        found.examples.extend((one, noise) for one in ours.values())


def within(explanation: Explanation, hops: int | None) -> list[int]:
    """The nodes that play, or only those at most so many hops away."""
    here = explanation.neighbourhood
    far = dict(zip(here.ids.tolist(), here.hops.tolist(), strict=True))
    return [i for i in explanation.node_ids.tolist() if hops is None or far[i] <= hops]
