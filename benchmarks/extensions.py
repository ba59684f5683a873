"""Informative features of BA-Community: the node's own against those of its subgraph.

python -m benchmarks.extensions
"""

from __future__ import annotations

import torch

import graphsvx
from graphsvx import GraphSVX, zoo

# The first nodes of motifs that the authors' script scores.
PAPER = [*range(400, 421, 5), *range(1100, 1121, 5)]


def share(seed: int, nodes: list[int], method: GraphSVX) -> float:
    """Mean share of the informative columns among as many features with the most credit."""
    trained = zoo.ensure("ba-community", seed=seed)
    wanted = {int(column) for column in trained.dataset.node_truth.informative_features}
    graph = trained.dataset.graph
    hits = 0
    for e in graphsvx.explain_many(trained.model, graph, nodes, workers=2, method=method):
        hits += sum(one.id in wanted for one in e.top_features(len(wanted)))
    return hits / (len(wanted) * len(nodes))


def node_sets(seed: int) -> dict[str, list[int]]:
    """The paper's nodes, and nodes of motifs that the model classifies right."""
    trained = zoo.ensure("ba-community", seed=seed)
    graph = trained.dataset.graph
    with torch.no_grad():
        right = trained.model(graph.x, graph.edge_index).argmax(-1) == graph.y
    motif = [node for node in range(1400) if node % 700 >= 300]
    first = [node for node in motif if node % 5 == 0 and right[node]]
    return {
        "paper's nodes": PAPER,
        "first node of each motif": first,
        "every fourth motif node": [node for node in motif[::4] if right[node]],
    }


if __name__ == "__main__":
    for seed in (0, 1):
        for name, nodes in node_sets(seed).items():
            own = share(seed, nodes, GraphSVX())
            around = share(seed, nodes, GraphSVX(features_of="subgraph"))
            print(f"| {name} ({len(nodes)}) | {seed} | {own:.2f} | {around:.2f} |")
