"""Ground truth explanations of the data sets that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphsvx.errors import DataError


@dataclass(frozen=True, eq=False)
class RelationTruth:
    """Ground truth of a typed set: the relation and the nodes that decide a node's class."""

    relation: tuple[str, str, str]
    nodes: Mapping[int, tuple[tuple[str, int], ...]]
    """For each classified node, the nodes (type, id) that decide."""
    kind: str = "relation"


@dataclass(frozen=True, eq=False)
class NodeTruth:
    """Ground truth of a node set: the motifs planted in its graph.

    The explanation of a motif's node is the nodes and edges of its motif; a node of the base graph
    has no known explanation. The edge between a motif and the base graph belongs to neither.

    motif_of: [nodes] motif id of every node, -1 in the base graph.
    role: [nodes] role of every node in its motif, 0 in the base graph. House: 1 top, 2 middle,
        3 bottom; cycle and grid: 1.
    edge_motif: [edges] motif id of every column of `edge_index`, -1 outside motifs.
    edge_index: [2, edges] the edges of the graph.
    attached: [motifs] first node of every motif, the one linked to the base graph.
    kind: "house", "cycle" or "grid".
    informative_features: columns that separate the classes; None where features are constant.
    """

    motif_of: Tensor
    role: Tensor
    edge_motif: Tensor
    edge_index: Tensor
    attached: Tensor
    kind: str
    informative_features: frozenset[int] | None = None

    @property
    def motifs(self) -> int:
        """Number of motifs."""
        return self.attached.numel()

    def motif(self, node: int) -> frozenset[int]:
        """Nodes of the motif of `node`, including `node`; empty for a node of the base graph."""
        return frozenset(self.motif_mask(node).nonzero().flatten().tolist())

    def motif_mask(self, node: int) -> Tensor:
        """`motif(node)` as a boolean mask [nodes]."""
        return (self.motif_of == self._motif_id(node)) & (self.motif_of >= 0)

    def motif_edges(self, node: int) -> frozenset[tuple[int, int]]:
        """Directed edges (both directions) inside the motif of `node`."""
        pairs = self.edge_index[:, self.motif_edge_mask(node)].t().tolist()
        return frozenset((source, target) for source, target in pairs)

    def motif_edge_mask(self, node: int) -> Tensor:
        """`motif_edges(node)` as a boolean mask over the columns of `edge_index`."""
        return (self.edge_motif == self._motif_id(node)) & (self.edge_motif >= 0)

    def nodes(self) -> Tensor:
        """Ids of all nodes with a known explanation, ascending."""
        return (self.motif_of >= 0).nonzero().flatten()

    def _motif_id(self, node: int) -> int:
        size = self.motif_of.numel()
        if not 0 <= node < size:
            raise DataError(f"node must be between 0 and {size - 1}, got {node}")
        return int(self.motif_of[node])

    def extended(self, edge_index: Tensor, nodes: int) -> NodeTruth:
        """The same truth for a graph with other edges and `nodes` more nodes at the end."""
        motif_of = torch.cat([self.motif_of, self.motif_of.new_full((nodes,), -1)])
        role = torch.cat([self.role, self.role.new_zeros(nodes)])
        return replace(
            self,
            motif_of=motif_of,
            role=role,
            edge_index=edge_index,
            edge_motif=edges_inside(edge_index, motif_of),
        )


@dataclass(frozen=True, eq=False)
class GraphTruth:
    """Ground truth of a graph set: the nodes and edges of each graph that determine its class.

    node_masks, edge_masks: one boolean mask per graph; all False where nothing is known.
    kind: description of the motif.
    """

    node_masks: tuple[Tensor, ...]
    edge_masks: tuple[Tensor, ...]
    kind: str
    alternatives: tuple[tuple[Tensor, ...], ...] | None = None
    """For each graph, the node masks that each explain its class on their own, where there may be
    several; `node_masks` is their union."""
    contributions: tuple[Tensor, ...] | None = None
    """For each graph, the contribution of every node to its value, where the truth is a number."""

    def alternative_nodes(self, graph: int) -> list[set[int]]:
        """Sets of nodes of which each explains the class on its own, without that of all nodes."""
        masks = self.alternatives[graph] if self.alternatives else ()
        return [set(mask.nonzero().flatten().tolist()) for mask in masks if not mask.all()]

    def graph_nodes(self, graph: int) -> Tensor:
        """Boolean mask [nodes] of the motif nodes of a graph."""
        return self.node_masks[self._checked(graph)]

    def graph_edges(self, graph: int) -> Tensor:
        """Boolean mask [edges] of the columns of a graph's `edge_index` inside its motifs."""
        return self.edge_masks[self._checked(graph)]

    def graphs(self) -> tuple[int, ...]:
        """Indices of all graphs with a known explanation, ascending."""
        return tuple(i for i, mask in enumerate(self.edge_masks) if bool(mask.any()))

    def _checked(self, graph: int) -> int:
        if not 0 <= graph < len(self.node_masks):
            raise DataError(f"graph must be between 0 and {len(self.node_masks) - 1}, got {graph}")
        return graph


Truth = NodeTruth | GraphTruth | RelationTruth


def edges_inside(edge_index: Tensor, motif_of: Tensor) -> Tensor:
    """Motif id of every edge with both ends in the same motif, -1 for the others."""
    source, target = motif_of[edge_index[0]], motif_of[edge_index[1]]
    return torch.where(source == target, source, torch.full_like(source, -1))


def from_masks(masks: Sequence[tuple[Tensor, Tensor]], kind: str) -> GraphTruth:
    """A `GraphTruth` from one (node mask, edge mask) pair per graph."""
    return GraphTruth(tuple(n for n, _ in masks), tuple(e for _, e in masks), kind)
