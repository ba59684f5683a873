"""`DataSet`: graphs, classes, split, ground truth and noise of a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from graphsvx.errors import DataError
from graphsvx_lab.datasets.truth import GraphTruth, NodeTruth, Truth

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
        masks = {}
        for name, index in self.parts().items():
            masks[name] = torch.zeros(size, dtype=torch.bool)
            masks[name][index] = True
        return masks


@dataclass(frozen=True, eq=False)
class Noise:
    """Ids of the uninformative feature columns and nodes that were added to a data set."""

    features: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    nodes: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))


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
