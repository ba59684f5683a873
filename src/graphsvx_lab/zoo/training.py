"""Training with Adam on cross-entropy; returns the weights with the lowest validation loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch_geometric.data import Batch, Data

from graphsvx.errors import InputError
from graphsvx.utils.console import stderr_console
from graphsvx_lab.datasets import DataSet
from graphsvx_lab.datasets.base import generator
from graphsvx_lab.datasets.registry import checked_seed
from graphsvx_lab.datasets.typed import RELATIONS, TYPES
from graphsvx_lab.zoo.card import Card, versions
from graphsvx_lab.zoo.models import (
    CitationGAT,
    CitationGCN,
    ConvolutionBlocks,
    GraphClassifier,
    HeteroClassifier,
    NodeClassifier,
    RelationalEncoder,
)
from graphsvx_lab.zoo.settings import Settings, checked_model, settings_for

# Epochs between two evaluations of the validation loss.
CHECK_EVERY = 5
# Gradient norm limit: sums over the neighbours of hubs give rare, very large gradients.
LARGEST_GRADIENT = 2.0
# Graphs per forward pass in evaluation.
EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class Step:
    """State of the training after an epoch, passed to the progress callback."""

    epoch: int
    epochs: int
    loss: float
    best_validation_loss: float | None


Progress = Callable[[Step], None]


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model in eval mode, its card and its data set."""

    model: nn.Module
    card: Card
    dataset: DataSet


def build(
    settings: Settings, *, features: int, classes: int, task: str, dataset: str | None = None
) -> nn.Module:
    """An untrained model, initialised from torch's global random state.

    `dataset`: the name of a typed set, whose node and edge types the model needs.
    """
    if settings.family in ("typed", "relational"):
        return _build_typed(settings, classes, dataset)
    if settings.family == "citation":
        if settings.model == "gat":
            return CitationGAT(
                features,
                settings.hidden,
                classes,
                heads=settings.heads,
                out_heads=settings.out_heads,
                dropout=settings.dropout,
            )
        return CitationGCN(features, settings.hidden, classes, settings.dropout)
    blocks = ConvolutionBlocks(
        features,
        hidden=settings.hidden,
        layers=settings.layers,
        convolution=settings.model,
        concat=settings.concat,
        normalise=settings.normalise,
    )
    if task == "node":
        return NodeClassifier(blocks, classes, settings.dropout)
    return GraphClassifier(blocks, classes, settings.dropout, settings.pooling)


def _build_typed(settings: Settings, classes: int, dataset: str | None) -> nn.Module:
    types = TYPES.get(dataset or "")
    if types is None:
        raise InputError(f"a typed model needs one of the data sets {list(TYPES)}, got {dataset!r}")
    if settings.family == "relational":
        return RelationalEncoder(
            types.counts[0],
            2 * RELATIONS,
            hidden=settings.hidden,
            layers=settings.layers,
            dropout=settings.dropout,
        )
    return HeteroClassifier(
        dict(zip(types.node_types, types.widths, strict=True)),
        dict(zip(types.node_types, types.counts, strict=True)),
        types.edge_types,
        types.node_types[0],
        hidden=settings.hidden,
        layers=settings.layers,
        classes=classes,
        convolution=settings.model,
        normalise=settings.normalise,
        dropout=settings.dropout,
    )


def train(
    dataset: DataSet,
    model: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    *,
    settings: Settings | None = None,
) -> Trained:
    """Train a model on a data set; the same arguments give the same model.

    `model` is a name from `zoo.models(dataset.name)`, by default the first; `settings` replace the
    defaults of the data set and model. torch's global random state is restored afterwards.

    Raises:
        InputError: `model` and `settings` name different models.

    """
    checked_seed(seed)
    if settings is None:
        settings = settings_for(dataset, model)
    elif model is not None and checked_model(dataset.name, model) != settings.model:
        raise InputError(f"model {model!r} was asked for, but the settings say {settings.model!r}")
    with torch.random.fork_rng(devices=[]):
        # Dropout and initial weights use the global random state: seed it for this training.
        torch.random.set_rng_state(generator(seed, dataset.name, "training").get_state())
        net = build(
            settings,
            features=dataset.features,
            classes=dataset.classes,
            task=dataset.task,
            dataset=dataset.name,
        )
        if isinstance(net, RelationalEncoder):
            best_epoch = fit_links(net, dataset, settings, _reported(settings, progress))
        else:
            best_epoch = _fit(_Predictions(net, dataset, settings), settings, progress)
    net.eval()
    card = Card(
        dataset=dataset.name,
        data_seed=dataset.seed,
        fingerprint=dataset.fingerprint,
        task=dataset.task,
        features=max(1, dataset.features),
        classes=dataset.classes,
        seed=seed,
        settings=settings,
        accuracy=accuracies(net, dataset),
        best_epoch=best_epoch,
        versions=versions(),
    )
    return Trained(net, card, dataset)


def accuracies(model: nn.Module, dataset: DataSet) -> dict[str, float]:
    """Accuracy on the three parts of the split; of links the mean
    reciprocal rank, of a regression R² (0 where it is negative)."""
    if isinstance(model, RelationalEncoder):
        parts = dataset.split.parts().items()
        return {name: mean_reciprocal_rank(model, dataset, part) for name, part in parts}
    predictions = _Predictions(model.eval(), dataset, Settings())
    return {name: predictions.accuracy(part) for name, part in dataset.split.parts().items()}


@torch.no_grad()
def predicted_classes(trained: Trained, graphs: Sequence[int] = ()) -> Tensor:
    """The predicted class of every node, or of the given graphs."""
    data = trained.dataset
    if data.task == "node":
        logits: Tensor = trained.model(data.graph.x, data.graph.edge_index)
    else:
        batch = Batch.from_data_list([data.graphs[graph] for graph in graphs])
        logits = trained.model(batch.x, batch.edge_index, batch.batch)
    return logits.argmax(-1)


def with_zeros(trained: Trained, parameter: str, columns: Sequence[int] | slice) -> Trained:
    """The same model with these columns of a matrix of weights at 0."""
    model = deepcopy(trained.model)
    with torch.no_grad():
        model.get_parameter(parameter)[:, columns] = 0
    return replace(trained, model=model)


def _reported(
    settings: Settings, progress: Progress | None
) -> Callable[[int, float, float | None], None]:
    def report(epoch: int, loss: float, best: float | None) -> None:
        if progress is not None:
            progress(Step(epoch, settings.epochs, loss, best))

    return report


def _fit(predictions: _Predictions, settings: Settings, progress: Progress | None) -> int:
    net = predictions.net
    optimizer = torch.optim.Adam(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for epoch in range(1, settings.epochs + 1):
        net.train()
        total, count = 0.0, 0
        for logits, labels in predictions.training():
            loss = _loss(logits, labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch leaves it without types
            nn.utils.clip_grad_norm_(net.parameters(), LARGEST_GRADIENT)
            optimizer.step()
            total, count = total + float(loss.detach()) * labels.numel(), count + labels.numel()
        if epoch % CHECK_EVERY == 0 or epoch == settings.epochs:
            net.eval()
            value = predictions.loss(predictions.dataset.split.val)
            if best is None or value < best[0]:
                best = (value, epoch, {k: v.clone() for k, v in net.state_dict().items()})
        if progress is not None:
            progress(Step(epoch, settings.epochs, total / count, best[0] if best else None))
    if best is None:
        raise InputError(f"epochs must be at least 1, got {settings.epochs}")
    net.load_state_dict(best[2])
    net.eval()
    return best[1]


def _loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of classes, squared error of numbers."""
    if labels.is_floating_point():
        return mse_loss(outputs.flatten(), labels)
    return cross_entropy(outputs, labels)


class _Predictions:
    """Logits and labels for parts of a node or graph data set."""

    def __init__(self, net: nn.Module, dataset: DataSet, settings: Settings) -> None:
        self.net, self.dataset, self.settings = net, dataset, settings
        self.packed = Packed.of(dataset.graphs) if dataset.task == "graph" else None

    def training(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(logits, labels) for each step of an epoch."""
        part = self.dataset.split.train
        if self.packed is None:
            yield self._nodes(part)
            return
        order = part[torch.randperm(part.numel())]
        for batch in order.split(self.settings.batch_size):  # type: ignore[no-untyped-call] # torch leaves it without types
            yield self._graphs(self.packed, batch)

    def loss(self, part: Tensor) -> float:
        logits, labels = self._predicted(part)
        return float(_loss(logits, labels))

    def accuracy(self, part: Tensor) -> float:
        logits, labels = self._predicted(part)
        if labels.is_floating_point():
            residual = (logits.flatten() - labels).double().square().mean()
            return max(0.0, float(1 - residual / labels.double().var(correction=0)))
        return float((logits.argmax(dim=1) == labels).double().mean())

    @torch.no_grad()
    def _predicted(self, part: Tensor) -> tuple[Tensor, Tensor]:
        if self.packed is None:
            return self._nodes(part)
        batches = [
            self._graphs(self.packed, batch)
            for batch in part.split(EVALUATION_BATCH)  # type: ignore[no-untyped-call] # torch leaves it without types
        ]
        return torch.cat([logits for logits, _ in batches]), torch.cat([y for _, y in batches])

    def _nodes(self, part: Tensor) -> tuple[Tensor, Tensor]:
        graph = self.dataset.graph
        if self.dataset.node_type is not None:
            logits = self.net(graph.x_dict, graph.edge_index_dict)[part]
            return logits, self.dataset.labels[part]
        if "edge_weight" in graph and isinstance(self.net, CitationGCN):
            logits = self.net(graph.x, graph.edge_index, graph.edge_weight)[part]
            return logits, graph.y[part]
        variants = self._edge_variants(graph.edge_index, len(graph.x))
        outputs = [self.net(graph.x, edge_index)[part] for edge_index in variants]
        return torch.cat(outputs), graph.y[part].repeat(len(variants))

    def _graphs(self, packed: Packed, graphs: Tensor) -> tuple[Tensor, Tensor]:
        x, edge_index, batch, labels = packed.batch(graphs)
        variants = self._edge_variants(edge_index, len(x))
        logits = [self.net(x, edge_index, batch) for edge_index in variants]
        return torch.cat(logits), labels.repeat(len(variants))

    def _edge_variants(self, edge_index: Tensor, nodes: int) -> list[Tensor]:
        """The edges and, in training with `cut_edges`, a random subset of them."""
        if not (self.settings.cut_edges and self.net.training):
            return [edge_index]
        return [edge_index, drop_edges(edge_index, nodes)]


def drop_edges(edge_index: Tensor, nodes: int) -> Tensor:
    """Remove each undirected edge (both directions) with a common random probability.

    The probability is drawn uniformly from [0, 1] in each call: explainers evaluate a model on
    everything between the full graph and no edges, so it should be trained on such graphs too.
    """
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    edges, edge_of_column = torch.unique(low * nodes + high, return_inverse=True)
    remains = torch.rand(edges.numel()) >= torch.rand(1)
    return edge_index[:, remains[edge_of_column]]


# Many small graphs concatenated into a few tensors, for fast batching.


@dataclass(frozen=True, eq=False)
class Packed:
    """Concatenated graphs; `edge_index` has the node ids within each graph.

    first_node, first_edge: [graphs + 1] offset of each graph's first node and edge, and the end.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    first_node: Tensor
    first_edge: Tensor

    @classmethod
    def of(cls, graphs: Sequence[Data]) -> Packed:
        """Pack the graphs."""
        return cls(
            x=torch.cat([graph.x for graph in graphs]),
            edge_index=torch.cat([graph.edge_index for graph in graphs], dim=1),
            y=torch.cat([graph.y for graph in graphs]),
            first_node=_starts([int(graph.num_nodes) for graph in graphs]),
            first_edge=_starts([int(graph.edge_index.shape[1]) for graph in graphs]),
        )

    def batch(self, graphs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(x, edge_index, batch, y) of the chosen graphs as a PyG batch."""
        nodes, owner, first = _rows(self.first_node, graphs)
        edges, edge_owner, _ = _rows(self.first_edge, graphs)
        return self.x[nodes], self.edge_index[:, edges] + first[edge_owner], owner, self.y[graphs]


def _starts(sizes: list[int]) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.tensor(sizes).cumsum(0)])


def _rows(starts: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the chosen graphs, the graph of each row, and each graph's first row in the batch."""
    sizes = starts[graphs + 1] - starts[graphs]
    owner = torch.arange(graphs.numel()).repeat_interleave(sizes)
    first = sizes.cumsum(0) - sizes
    rows = torch.arange(owner.numel()) - first[owner] + starts[graphs][owner]
    return rows, owner, first


# Training of a relational encoder on the facts of a knowledge graph, and its rank metrics.


# Share of the facts that are edges in a training step; some of the others are asked.
EDGES = 0.25
# Entities among which an answer is to be found in a training step, besides all other answers.
CANDIDATES = 512
_RANKED = 2048
"""Facts that are ranked for the metrics of a part; all of them if there are fewer."""


def fit_links(
    net: RelationalEncoder,
    dataset: DataSet,
    settings: Settings,
    progress: Callable[[int, float, float | None], None],
) -> int:
    """Train by finding the tail (and the head) of facts among other entities; the best epoch.

    An epoch is one step: a part of the facts is the graph, `batch_size` of the others are asked.
    """
    facts = dataset.graph.triples[:, dataset.split.train]
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    relations = net.decoder.relation.shape[0] // 2
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for epoch in range(1, settings.epochs + 1):
        net.train()
        order = torch.randperm(facts.shape[1])
        cut = int(EDGES * len(order))
        edge_index, edge_type = _as_edges(facts[:, order[:cut]], relations)
        batch = facts[:, order[cut : cut + settings.batch_size]]
        entities = net(edge_index, edge_type)
        head, relation, tail = batch
        start = torch.cat([head, tail])
        kind = torch.cat([relation, relation + relations])
        candidates, answer = torch.unique(torch.cat([tail, head]), return_inverse=True)
        others = torch.randint(len(entities), (CANDIDATES,))
        among = entities[torch.cat([candidates, others])]
        loss = cross_entropy((entities[start] * net.decoder.relation[kind]) @ among.t(), answer)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it without types
        optimizer.step()
        if epoch % 50 == 0 or epoch == settings.epochs:
            value = mean_reciprocal_rank(net, dataset, dataset.split.val)
            if best is None or value > best[0]:
                best = (value, epoch, {k: v.clone() for k, v in net.state_dict().items()})
        progress(epoch, float(loss.detach()), None if best is None else best[0])
    if best is None:
        return 0
    net.load_state_dict(best[2])
    net.eval()
    return best[1]


def _as_edges(facts: Tensor, relations: int) -> tuple[Tensor, Tensor]:
    """Facts [3, facts] as edges in both directions; relation r + `relations` is r turned round."""
    head, relation, tail = facts
    ends = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    return ends, torch.cat([relation, relation + relations])


@torch.no_grad()
def mean_reciprocal_rank(net: RelationalEncoder, dataset: DataSet, part: Tensor) -> float:
    """Filtered MRR of tails and heads: other known facts do not count as mistakes."""
    net.eval()
    graph = dataset.graph
    relations = net.decoder.relation.shape[0] // 2
    entities = net(graph.edge_index, graph.edge_type)
    step = max(1, len(part) // _RANKED)
    head, relation, tail = graph.triples[:, part[::step]]
    true_answers = _answers(graph.triples, relations)
    ranks = []
    starts = torch.cat([head, tail])
    kinds, answers = torch.cat([relation, relation + relations]), torch.cat([tail, head])
    for first in range(0, len(starts), 512):
        rows = slice(first, first + 512)
        scores = (entities[starts[rows]] * net.decoder.relation[kinds[rows]]) @ entities.t()
        answer_scores = scores.gather(1, answers[rows, None])
        for row, (start, kind) in enumerate(
            zip(starts[rows].tolist(), kinds[rows].tolist(), strict=True)
        ):
            scores[row, true_answers[(start, kind)]] = -torch.inf
        ranks.append(1 + (scores > answer_scores).sum(1))
    return float((1 / torch.cat(ranks).double()).mean())


def _answers(triples: Tensor, relations: int) -> dict[tuple[int, int], list[int]]:
    """All known answers (entities) of each question (entity, relation)."""
    answers: dict[tuple[int, int], list[int]] = {}
    for head, relation, tail in triples.t().tolist():
        answers.setdefault((head, relation), []).append(tail)
        answers.setdefault((tail, relation + relations), []).append(head)
    return answers


@contextmanager
def training_bar(title: str) -> Iterator[Progress]:
    """A progress callback for `train` that shows epochs and loss."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    console = stderr_console()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None, loss="-")

        def show(step: Step) -> None:
            bar.update(task, completed=step.epoch, total=step.epochs, loss=f"{step.loss:.3f}")

        yield show
