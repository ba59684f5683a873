"""Training with Adam on cross-entropy; returns the weights with the lowest validation loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch_geometric.data import Batch

from graphsvx.errors import InputError
from graphsvx.utils.console import stderr_console
from graphsvx_lab.datasets import DataSet
from graphsvx_lab.datasets.base import generator
from graphsvx_lab.datasets.catalogue import checked_seed
from graphsvx_lab.datasets.typed import RELATIONS, TYPES
from graphsvx_lab.zoo.models import (
    CitationGAT,
    CitationGCN,
    GraphClassifier,
    HeteroClassifier,
    NodeClassifier,
    RelationalEncoder,
)
from graphsvx_lab.zoo.settings import Card, Settings, checked_model, settings_for, versions

# Graphs per forward pass in evaluation.
EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class Step:
    """State of the training after an epoch, passed to the progress callback.

    best_validation_loss: of links minus the mean reciprocal rank.
    """

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

    @torch.no_grad()
    def predicted_classes(self, graphs: Sequence[int] = ()) -> Tensor:
        """The predicted class of every node, or of the given graphs."""
        data: Any = self.dataset
        if data.task == "node":
            logits: Tensor = self.model(data.graph.x, data.graph.edge_index)
        else:
            data = Batch.from_data_list([data.graphs[graph] for graph in graphs])
            logits = self.model(data.x, data.edge_index, data.batch)
        return logits.argmax(-1)

    def with_zeros(self, parameter: str, columns: Sequence[int] | slice) -> Trained:
        """The same model with these columns of a matrix of weights at 0."""
        model = deepcopy(self.model)
        with torch.no_grad():
            model.get_parameter(parameter)[:, columns] = 0
        return replace(self, model=model)


def build(
    settings: Settings, *, features: int, classes: int, task: str, dataset: str | None = None
) -> nn.Module:
    """An untrained model, initialised from torch's global random state.

    Args:
        settings: architecture; those of training are not used.
        features: columns of `x`.
        classes: outputs, [nodes or graphs, classes].
        task: "node", "graph" or "link".
        dataset: the name of a typed set, whose node and edge types the model needs.

    Returns:
        The model; it returns raw logits.

    Raises:
        InputError: a typed model of a data set that has no types.

    """
    if settings.family == "citation":
        citation = CitationGAT if settings.model == "gat" else CitationGCN
        return citation(features, classes, settings)
    if settings.family == "blocks":
        return (NodeClassifier if task == "node" else GraphClassifier)(features, classes, settings)
    types = TYPES.get(dataset or "")
    if types is None:
        raise InputError(f"a typed model needs one of the data sets {list(TYPES)}, got {dataset!r}")
    if settings.family == "typed":
        return HeteroClassifier(types, classes, settings)
    layers: dict[str, Any] = {"hidden": settings.hidden, "layers": settings.layers}
    entities = types.nodes["node"][0]
    return RelationalEncoder(entities, 2 * RELATIONS, dropout=settings.dropout, **layers)


def train(
    dataset: DataSet,
    model: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    *,
    settings: Settings | None = None,
) -> Trained:
    """Train a model on a data set; the same arguments give the same model.

    torch's global random state is restored afterwards.

    Args:
        dataset: what `datasets.load` returned.
        model: a name from `zoo.models(dataset.name)`, by default the first.
        seed: of initial weights, dropout and batches.
        progress: called with a `Step` after each epoch.
        settings: those to use in place of the defaults of the data set and model.

    Returns:
        The model in eval mode with its card (accuracy by part of the split) and data set.

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
        best_epoch = _fit(_TASKS[dataset.task](net, dataset, settings), settings, progress)
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
    """Accuracy on the three parts of the split ("train", "val" and "test").

    Args:
        model: of this data set; it is left in eval mode.
        dataset: with the labels.

    Returns:
        The share that is classified right; of links the mean reciprocal rank, of a regression R²
        (0 where it is negative).

    """
    task = _TASKS[dataset.task](model.eval(), dataset, Settings())
    return {name: task.accuracy(part) for name, part in dataset.split.parts().items()}


def _fit(task: _Predictions | _Links, settings: Settings, progress: Progress | None) -> int:
    """Train; the epoch whose weights are best on the validation part, which are left in place."""
    net = task.net
    optimizer = torch.optim.Adam(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    best, best_epoch, weights = inf, 0, dict[str, Tensor]()
    for epoch in range(1, settings.epochs + 1):
        net.train()
        total, count = 0.0, 0
        for loss, items in task.losses():
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch leaves it without types
            nn.utils.clip_grad_norm_(net.parameters(), task.largest_gradient)
            optimizer.step()
            total, count = total + float(loss.detach()) * items, count + items
        if epoch % task.check_every == 0 or epoch == settings.epochs:
            net.eval()
            value = task.validation()
            if not weights or value < best:
                best, best_epoch = value, epoch
                weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        if progress is not None:
            progress(Step(epoch, settings.epochs, total / count, best if weights else None))
    net.load_state_dict(weights)
    net.eval()
    return best_epoch


def _loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of classes, squared error of numbers."""
    if labels.is_floating_point():
        return mse_loss(outputs.flatten(), labels)
    return cross_entropy(outputs, labels)


class _Predictions:
    """Logits and labels for parts of a node or graph data set."""

    check_every = 5
    """Epochs between two evaluations on the validation part."""
    largest_gradient = 2.0
    """Norm to clip to: sums over the neighbours of hubs give rare, very large gradients."""

    def __init__(self, net: nn.Module, dataset: DataSet, settings: Settings) -> None:
        self.net, self.dataset, self.settings = net, dataset, settings
        self.of_graphs = dataset.task == "graph"

    def losses(self) -> Iterator[tuple[Tensor, int]]:
        part = self.dataset.split.train
        batches: Iterable[Tensor] = [part]
        if self.of_graphs:
            order = part[torch.randperm(part.numel())]
            batches = order.split(self.settings.batch_size)  # type: ignore[no-untyped-call] # torch leaves it without types
        for batch in batches:
            logits, labels = self._outputs(batch)
            yield _loss(logits, labels), labels.numel()

    def validation(self) -> float:
        return float(_loss(*self._predicted(self.dataset.split.val)))

    def accuracy(self, part: Tensor) -> float:
        logits, labels = self._predicted(part)
        if labels.is_floating_point():
            residual = (logits.flatten() - labels).double().square().mean()
            return max(0.0, float(1 - residual / labels.double().var(correction=0)))
        return float((logits.argmax(dim=1) == labels).double().mean())

    @torch.no_grad()
    def _predicted(self, part: Tensor) -> tuple[Tensor, Tensor]:
        batches = part.split(EVALUATION_BATCH) if self.of_graphs else [part]  # type: ignore[no-untyped-call] # torch leaves it without types
        logits, labels = zip(*map(self._outputs, batches), strict=True)
        return torch.cat(logits), torch.cat(labels)

    def _outputs(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """Also of a copy with random edges removed, in training with `cut_edges`."""
        graph: Any = self.dataset.graphs[0]
        rows: Tensor | slice = part
        more: list[Tensor] = []
        if self.dataset.node_type is not None:
            logits = self.net(graph.x_dict, graph.edge_index_dict)[part]
            return logits, self.dataset.labels[part]
        if self.of_graphs:
            graph = Batch.from_data_list([self.dataset.graphs[i] for i in part.tolist()])
            rows, more = slice(None), [graph.batch]
        elif "edge_weight" in graph and isinstance(self.net, CitationGCN):
            more = [graph.edge_weight]
        edges = [graph.edge_index]
        if self.settings.cut_edges and self.net.training:
            edges.append(drop_edges(graph.edge_index, len(graph.x)))
        logits = [self.net(graph.x, edge_index, *more)[rows] for edge_index in edges]
        return torch.cat(logits), graph.y[rows].repeat(len(edges))


def drop_edges(edge_index: Tensor, nodes: int) -> Tensor:
    """Remove each undirected edge (both directions) with a common random probability.

    The probability is drawn uniformly from [0, 1] in each call: explainers evaluate a model on
    everything between the full graph and no edges, so it should be trained on such graphs too.
    """
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    edges, edge_of_column = torch.unique(low * nodes + high, return_inverse=True)
    remains = torch.rand(edges.numel()) >= torch.rand(1)
    return edge_index[:, remains[edge_of_column]]


# Relational encoders, on the facts of a knowledge graph.

# Share of the facts that are edges in a training step; some of the others are asked.
EDGES = 0.25
# Entities among which an answer is to be found in a training step, besides all other answers.
CANDIDATES = 512
_RANKED = 2048
"""Facts that are ranked for the metrics of a part; all of them if there are fewer."""


class _Links:
    """Finding the tail (and the head) of facts among other entities.

    An epoch is one step: a part of the facts is the graph, `batch_size` of the others are asked.
    """

    check_every, largest_gradient = 50, inf

    def __init__(self, net: Any, dataset: DataSet, settings: Settings) -> None:
        self.net, self.dataset, self.settings = net, dataset, settings
        self.relations = net.decoder.relation.shape[0] // 2

    def losses(self) -> Iterator[tuple[Tensor, int]]:
        facts = self.dataset.graph.triples[:, self.dataset.split.train]
        order = torch.randperm(facts.shape[1])
        cut = int(EDGES * len(order))
        asked = facts[:, order[cut : cut + self.settings.batch_size]]
        # Facts as edges in both directions; relation r + `relations` is r turned round.
        source, edge_type, target = self._questions(facts[:, order[:cut]])
        entities = self.net(torch.stack([source, target]), edge_type)
        start, kind, answer = self._questions(asked)
        candidates, place = torch.unique(answer, return_inverse=True)
        others = torch.randint(len(entities), (CANDIDATES,))
        among = entities[torch.cat([candidates, others])]
        scores = (entities[start] * self.net.decoder.relation[kind]) @ among.t()
        yield cross_entropy(scores, place), len(place)

    def validation(self) -> float:
        return -self.accuracy(self.dataset.split.val)

    @torch.no_grad()
    def accuracy(self, part: Tensor) -> float:
        """Filtered MRR of tails and heads: other known facts do not count as mistakes."""
        graph = self.dataset.graph
        entities = self.net(graph.edge_index, graph.edge_type)
        step = max(1, len(part) // _RANKED)
        known: dict[tuple[int, int], list[int]] = {}
        for start, kind, answer in torch.stack(self._questions(graph.triples), 1).tolist():
            known.setdefault((start, kind), []).append(answer)
        ranks = []
        for rows in torch.stack(self._questions(graph.triples[:, part[::step]]), 1).split(512):  # type: ignore[no-untyped-call] # torch leaves it without types
            starts, kinds, answers = rows.t()
            scores = (entities[starts] * self.net.decoder.relation[kinds]) @ entities.t()
            answer_scores = scores.gather(1, answers[:, None])
            for row, (start, kind, _) in enumerate(rows.tolist()):
                scores[row, known[start, kind]] = -inf
            ranks.append(1 + (scores > answer_scores).sum(1))
        return float((1 / torch.cat(ranks).double()).mean())

    def _questions(self, facts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tails, then heads, as questions: an entity, a relation, and the entity that answers."""
        head, relation, tail = facts
        kinds = torch.cat([relation, relation + self.relations])
        return torch.cat([head, tail]), kinds, torch.cat([tail, head])


_TASKS: dict[str, type[_Predictions | _Links]] = {
    "node": _Predictions,
    "graph": _Predictions,
    "link": _Links,
}


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
