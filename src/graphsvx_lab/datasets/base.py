"""`DataSet`: graphs, classes, split, ground truth explanations and noise of a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import index_to_mask

from graphsvx.errors import DataError

Task = Literal["node", "graph", "link"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Split:
    """Indices of nodes or graphs for training, validation and test, each int64."""

    train: Tensor
    val: Tensor
    test: Tensor

    def parts(self) -> dict[str, Tensor]:
        """The three parts by name."""
        return {"train": self.train, "val": self.val, "test": self.test}

    def masks(self, size: int) -> dict[str, Tensor]:
        """The three parts as boolean masks of shape [size]."""
        return {name: index_to_mask(index, size) for name, index in self.parts().items()}


@dataclass(frozen=True, eq=False)
class Noise:
    """Ids of the uninformative feature columns and nodes that were added to a data set."""

    features: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    nodes: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))


# --- ground truth explanations of the sets that have them --------------------------------------


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


# --- data sets ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set: graphs, classes, split and, where it is known, ground truth.

    name, seed: `datasets.load(name, seed)` gives the same tensors bit for bit.
    graphs: one graph for node sets, many for graph sets; each with `x`, `edge_index` and `y`.
    task: "node", "graph" or "link": what is classified.
    class_names, feature_names: in the order of the labels and of the columns of `x`.
    split: 80/10/10 (50/25/25 in social networks), stratified by class.
    truth: ground truth explanations, None where they are unknown.
    noise: feature columns and nodes that were added as noise, None in a clean set.
    node_type: the node type that is classified, where the graph has types.
    """

    name: str
    seed: int
    graphs: tuple[Data | HeteroData, ...]
    task: Task
    class_names: tuple[str, ...]
    split: Split
    feature_names: tuple[str, ...] | None = None
    truth: Truth | None = None
    noise: Noise | None = None
    node_type: str | None = None

    @property
    def graph(self) -> Any:
        """The only graph; an error if there are several."""
        if len(self.graphs) != 1:
            raise DataError(
                f"data set {self.name!r} has {len(self.graphs)} graphs; choose one from `.graphs`"
            )
        return self.graphs[0]

    @property
    def features(self) -> int:
        """Number of feature columns, those of the classified nodes where the graph has types."""
        store = self._classified
        return int(store.x.shape[1]) if "x" in store else 0

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @cached_property
    def labels(self) -> Tensor:
        """The class of every node (node sets; -1 for noisy nodes) or of every graph."""
        if self.task == "link":
            return torch.ones(self.graph.triples.shape[1], dtype=torch.long)
        if self.task == "node":
            return self._classified.y
        return torch.cat([graph.y for graph in self.graphs])

    @property
    def _classified(self) -> Any:
        """The (first) graph, or the nodes of the classified type in it."""
        return self.graphs[0] if self.node_type is None else self.graphs[0][self.node_type]

    @property
    def regression(self) -> bool:
        """Whether labels are numbers, not classes."""
        return self.labels.is_floating_point()

    @property
    def graph_names(self) -> tuple[str, ...]:
        """Names of the graphs, in their order; empty where they have none."""
        return tuple(graph.name for graph in self.graphs if "name" in graph)

    @property
    def node_truth(self) -> NodeTruth:
        """The ground truth of a node set; an error if there is none."""
        return self._truth_of(NodeTruth, "nodes")

    @property
    def graph_truth(self) -> GraphTruth:
        """The ground truth of a graph set; an error if there is none."""
        return self._truth_of(GraphTruth, "graphs")

    def _truth_of(self, kind: type[T], whose: str) -> T:
        if not isinstance(self.truth, kind):
            raise DataError(f"data set {self.name!r} has no ground truth on {whose}")
        return self.truth

    def true_nodes(self, query: int) -> set[int]:
        """The nodes that explain a node (without itself) or a graph."""
        if self.task == "node":
            return set(self.node_truth.motif(query)) - {query}
        return set(self.graph_truth.graph_nodes(query).nonzero().flatten().tolist())

    def true_edges(self, query: int) -> set[tuple[int, int]]:
        """The directed edges that explain a node or a graph."""
        if self.task == "node":
            return set(self.node_truth.motif_edges(query))
        edge_index: Tensor = self.graphs[query].edge_index
        inside = edge_index[:, self.graph_truth.graph_edges(query)].t().tolist()
        return {(source, target) for source, target in inside}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over features, edges, labels and split: ties a checkpoint to its data."""
        digest = hashlib.sha256()
        stores = [store for graph in self.graphs for store in graph.stores]
        tensors = [store[key] for store in stores for key in _FINGERPRINTED if key in store]
        for tensor in (*tensors, *self.split.parts().values()):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()


_FINGERPRINTED = ("x", "edge_index", "edge_type", "triples", "y", "edge_weight")


def generator(seed: int, *purpose: str) -> torch.Generator:
    """A torch generator seeded by a hash of seed and purpose: independent for each purpose."""
    text = "/".join((*purpose, str(seed)))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    return torch.Generator().manual_seed(number)


def draw(ids: Sequence[int], count: int, seed: int, *purpose: str) -> list[int]:
    """`count` of the ids, in an order that seed and purpose fix."""
    order = torch.randperm(len(ids), generator=generator(seed, *purpose))
    return [ids[place] for place in order[:count].tolist()]


def stratified_split(labels: Tensor, rng: torch.Generator, held_out: float = 0.1) -> Split:
    """Stratified split of `labels` [items]; every class is proportional within one item.

    `held_out`: the share of the validation part, and of the test part; 80/10/10 by default.

    Each item gets its random rank within its class, divided by the size of the class. Sorted by
    this fraction, every contiguous range contains all classes in proportion.
    """
    position = torch.empty(labels.numel(), dtype=torch.double)
    for label in sorted(set(labels.tolist())):
        members = (labels == label).nonzero().flatten()
        rank = torch.randperm(members.numel(), generator=rng).double()
        # A common random shift breaks ties between classes and keeps the ranks.
        shift = torch.rand(1, generator=rng, dtype=torch.double)
        position[members] = (rank + shift) / members.numel()
    order = position.argsort(stable=True)
    count = round(held_out * labels.numel())
    train = labels.numel() - 2 * count
    return Split(*(part.sort().values for part in order.tensor_split((train, train + count))))


def data_set(
    name: str,
    seed: int,
    graphs: Data | HeteroData | Sequence[Data],
    class_names: Sequence[str],
    *,
    split: Split | None = None,
    task: Task | None = None,
    **facts: Any,
) -> DataSet:
    """A set of nodes of one graph, or of many graphs; by default split 80/10/10 by class.

    facts: further fields of `DataSet`.
    """
    listed = (graphs,) if isinstance(graphs, (Data, HeteroData)) else tuple(graphs)
    usual_task: Task = "node" if listed[0] is graphs else "graph"
    no_split = Split(*torch.empty(3, 0, dtype=torch.long))
    unsplit = DataSet(
        name, seed, listed, task or usual_task, tuple(class_names), split or no_split, **facts
    )
    if split is not None:
        return unsplit
    # Numbers have no classes to be stratified by.
    labels = torch.zeros_like(unsplit.labels) if unsplit.regression else unsplit.labels
    drawn = stratified_split(labels, generator(seed, name, "split"))
    return replace(unsplit, split=drawn)
