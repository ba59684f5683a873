"""The explainers of the study of ground truth, each asked in the same way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from graphsvx.baselines import GNNExplainer, PGExplainer, PGMExplainer, Random
from graphsvx.data.base import generator
from graphsvx.errors import InputError
from graphsvx.explanation import Explanation, Ranking
from graphsvx.studies import chosen
from graphsvx.studies.chosen import Kind
from graphsvx.studies.desk import Desk
from graphsvx.studies.motifs import both_ways, without_credit
from graphsvx.zoo import Trained

OURS = "GraphSVX, the paper's method"
DEFAULT = "GraphSVX, our estimator"
EDGES = "GraphSVX, edges play"
KINDS: dict[str, Kind] = {OURS: "paper", DEFAULT: "default", EDGES: "edges"}
"""The rows that are GraphSVX, and the settings that they take."""
NAMES = (*KINDS, "GNNExplainer", "PGM-Explainer", "PGExplainer", "Random")
QUESTIONS = 30
"""PGExplainer is trained on this many nodes or graphs of the training part."""


@dataclass(frozen=True)
class Found:
    """What one explainer says about a world."""

    name: str
    by: Ranking
    """How its credit is ranked, as chosen on validation seeds."""
    explanations: Sequence[Explanation]
    on_edges: Sequence[Explanation]
    """What edges are scored on: the same, but for Random, which is asked about edges then."""
    drawn: Sequence[Explanation]
    """Explanations with a ranking: the same, but for Random, which has one draw here."""


def explained(desk: Desk, world: Trained, name: str, queries: Sequence[int]) -> Found:
    """Explanations of one method; kept, so that the next time they are only read."""
    dataset = world.dataset.name
    if name in KINDS:
        choice = chosen.choice(dataset, KINDS[name])
        found = desk.explanations(world, choice.method, queries, label=name, scale=choice.scale)
        on_edges = [both_ways(one) for one in found] if name == EDGES else found
        return Found(name, choice.by, found, on_edges, found)
    if name == "Random":
        return _at_random(desk, world, queries)
    method: GNNExplainer | PGMExplainer | PGExplainer
    if name == "GNNExplainer":
        method = chosen.gnnexplainer(dataset)
        method = replace(method, epochs=desk.pick(method.epochs, 2))
    elif name == "PGM-Explainer":
        method = chosen.pgm(dataset)
        method = replace(method, samples=desk.pick(method.samples, 60))
    elif name == "PGExplainer":
        blank = chosen.pgexplainer(dataset)
        blank = replace(blank, epochs=desk.pick(blank.epochs, 2))
        method = trained(desk, world, blank, queries)
    else:
        raise InputError(f"name must be one of {NAMES}, got {name!r}")
    found = desk.explanations(world, method, queries, label=name)
    return Found(name, chosen.rival_ranking(name, dataset), found, found, found)


def _at_random(desk: Desk, world: Trained, queries: Sequence[int]) -> Found:
    """The average over all random rankings, not one draw."""
    nodes = desk.explanations(world, Random(players="nodes"), queries, label="random nodes")
    edges = desk.explanations(world, Random(players="edges"), queries, label="random edges")
    return Found(
        "Random",
        "value",
        [without_credit(one) for one in nodes],
        [without_credit(one) for one in edges],
        nodes,
    )


def trained(
    desk: Desk, world: Trained, method: PGExplainer, scored: Collection[int]
) -> PGExplainer:
    """PGExplainer, trained on the training part without what is scored; kept in a file."""
    questions = training_questions(world, scored, desk.pick(QUESTIONS, 3))
    folder = desk.folder(world, "pgexplainer trained", (method, questions))
    path = folder / "weights.safetensors"
    if path.exists():
        return PGExplainer.load(path)
    what = "nodes" if world.dataset.task == "node" else "graphs"
    desk.say(f"{world.card.name}: training PGExplainer on {len(questions)} {what}")
    if world.dataset.task == "node":
        ready = method.fit(world.model, world.dataset.graph, nodes=questions)
    else:
        ready = method.fit(world.model, [world.dataset.graphs[graph] for graph in questions])
    folder.mkdir(parents=True, exist_ok=True)
    ready.save(path)
    return ready


def training_questions(world: Trained, scored: Collection[int], count: int) -> list[int]:
    """Nodes or graphs with a motif, of the training part, none of them scored."""
    data = world.dataset
    known = data.node_truth.nodes().tolist() if data.task == "node" else data.graph_truth.graphs()
    usable = sorted(set(known) & set(data.split.train.tolist()) - set(scored))
    order = torch.randperm(len(usable), generator=generator(data.seed, "pgexplainer", data.name))
    return [usable[i] for i in order[:count].tolist()]
