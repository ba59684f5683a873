"""What the two protocols score: nodes of planted motifs, or graphs with a known explanation."""

from __future__ import annotations

from collections.abc import Sequence

from graphsvx_lab.metrics.truth import scored_nodes
from graphsvx_lab.zoo import Trained
from graphsvx_lab.zoo.training import predicted_classes

HOUSES, MOLECULES = 100, slice(100, 120)
"""The authors' script scores the first houses of BA-2motifs, and these of MUTAG's mutagens with a
group, in the order of the files."""


def scored_by_the_paper(trained: Trained) -> tuple[int, ...]:
    """The nodes or graphs of the authors' script, whatever the model predicts for them."""
    data = trained.dataset
    if data.task == "node":
        return tuple(scored_nodes("paper", dataset=data.name))
    return data.graph_truth.graphs()[MOLECULES] if data.name == "mutag" else tuple(range(HOUSES))


def classified_right(trained: Trained) -> list[int]:
    """Everything with a known explanation that the model classifies right."""
    data = trained.dataset
    if data.task == "node":
        return scored_nodes(
            "strict", candidates=data.node_truth.nodes(), predicted=predicted_classes(trained),
            labels=data.labels,
        )  # fmt: skip
    return graphs_right(trained, data.graph_truth.graphs())


def graphs_right(trained: Trained, graphs: Sequence[int]) -> list[int]:
    """Those of the graphs that the model classifies right."""
    right = predicted_classes(trained, graphs) == trained.dataset.labels[list(graphs)]
    return [graph for graph, is_right in zip(graphs, right.tolist(), strict=True) if is_right]
