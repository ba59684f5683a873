"""Training: Adam on cross-entropy, keeping the weights with the lowest validation loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from graphsvx.datasets import DataSet
from graphsvx.datasets.base import generator
from graphsvx.datasets.registry import checked_seed
from graphsvx.errors import InputError
from graphsvx.zoo.card import Card, versions
from graphsvx.zoo.models import Blocks, CitationGAT, CitationGCN, GraphClassifier, NodeClassifier
from graphsvx.zoo.packed import Packed
from graphsvx.zoo.settings import Settings, checked_model, settings_for

# Weights are compared on the validation part every so many epochs.
CHECK_EVERY = 5
# Sums over hubs make rare, very large gradients.
LARGEST_GRADIENT = 2.0
# Graphs in one forward pass when nothing is learned.
EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class Step:
    """What a progress callback is told after each epoch."""

    epoch: int
    epochs: int
    loss: float
    best_validation_loss: float | None


Progress = Callable[[Step], None]


@dataclass(frozen=True, eq=False)
class Trained:
    """A model in eval mode, its card, and the data set that both belong to."""

    model: nn.Module
    card: Card
    dataset: DataSet


def build(settings: Settings, *, features: int, classes: int, task: str) -> nn.Module:
    """An untrained model. Weights come from torch's global random state."""
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
    blocks = Blocks(
        features,
        hidden=settings.hidden,
        layers=settings.layers,
        convolution=settings.model,
        concat=settings.concat,
        normalise=settings.normalise,
    )
    classifier = NodeClassifier if task == "node" else GraphClassifier
    return classifier(blocks, classes, settings.dropout)


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
    usual ones of the data set and model. torch's global random state is left as it was.
    """
    checked_seed(seed)
    if settings is None:
        settings = settings_for(dataset, model)
    elif model is not None and checked_model(dataset.name, model) != settings.model:
        raise InputError(f"model {model!r} was asked for, but the settings say {settings.model!r}")
    with torch.random.fork_rng(devices=[]):
        # Dropout and initial weights take from the global state: give them a stream of their own.
        torch.random.set_rng_state(generator(seed, dataset.name, "training").get_state())
        net = build(settings, features=dataset.features, classes=dataset.classes, task=dataset.task)
        rounds = _Rounds(net, dataset, settings)
        best_epoch = _fit(rounds, settings, progress)
    net.eval()
    card = Card(
        dataset=dataset.name,
        data_seed=dataset.seed,
        fingerprint=dataset.fingerprint,
        task=dataset.task,
        features=dataset.features,
        classes=dataset.classes,
        seed=seed,
        settings=settings,
        accuracy={name: rounds.accuracy(part) for name, part in dataset.split.parts().items()},
        best_epoch=best_epoch,
        versions=versions(),
    )
    return Trained(net, card, dataset)


def accuracies(model: nn.Module, dataset: DataSet) -> dict[str, float]:
    """Share of right predictions on the three parts of the split."""
    rounds = _Rounds(model.eval(), dataset, Settings())
    return {name: rounds.accuracy(part) for name, part in dataset.split.parts().items()}


def _fit(rounds: _Rounds, settings: Settings, progress: Progress | None) -> int:
    net = rounds.net
    optimizer = torch.optim.Adam(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for epoch in range(1, settings.epochs + 1):
        net.train()
        total, count = 0.0, 0
        for logits, labels in rounds.training():
            loss = cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch leaves it without types
            nn.utils.clip_grad_norm_(net.parameters(), LARGEST_GRADIENT)
            optimizer.step()
            total, count = total + float(loss.detach()) * labels.numel(), count + labels.numel()
        if epoch % CHECK_EVERY == 0 or epoch == settings.epochs:
            net.eval()
            value = rounds.loss(rounds.dataset.split.val)
            if best is None or value < best[0]:
                best = (value, epoch, {k: v.clone() for k, v in net.state_dict().items()})
        if progress is not None:
            progress(Step(epoch, settings.epochs, total / count, best[0] if best else None))
    if best is None:
        raise InputError(f"epochs must be at least 1, got {settings.epochs}")
    net.load_state_dict(best[2])
    net.eval()
    return best[1]


class _Rounds:
    """Predictions for parts of a data set, whichever its task."""

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
        for chosen in order.split(self.settings.batch_size):  # type: ignore[no-untyped-call] # torch leaves it without types
            yield self._graphs(self.packed, chosen)

    def loss(self, part: Tensor) -> float:
        logits, labels = self._predicted(part)
        return float(cross_entropy(logits, labels))

    def accuracy(self, part: Tensor) -> float:
        logits, labels = self._predicted(part)
        return float((logits.argmax(dim=1) == labels).double().mean())

    @torch.no_grad()
    def _predicted(self, part: Tensor) -> tuple[Tensor, Tensor]:
        if self.packed is None:
            return self._nodes(part)
        pieces = [
            self._graphs(self.packed, chosen)
            for chosen in part.split(EVALUATION_BATCH)  # type: ignore[no-untyped-call] # torch leaves it without types
        ]
        return torch.cat([p for p, _ in pieces]), torch.cat([y for _, y in pieces])

    def _nodes(self, part: Tensor) -> tuple[Tensor, Tensor]:
        graph = self.dataset.graph
        shown = self._shown(graph.edge_index, len(graph.x))
        logits = [self.net(graph.x, edges)[part] for edges in shown]
        return torch.cat(logits), graph.y[part].repeat(len(shown))

    def _graphs(self, packed: Packed, chosen: Tensor) -> tuple[Tensor, Tensor]:
        x, edge_index, batch, labels = packed.batch(chosen)
        shown = self._shown(edge_index, len(x))
        logits = [self.net(x, edges, batch) for edges in shown]
        return torch.cat(logits), labels.repeat(len(shown))

    def _shown(self, edge_index: Tensor, nodes: int) -> list[Tensor]:
        """The edges; in training with `cut_edges` also those that are left when some are cut."""
        if not (self.settings.cut_edges and self.net.training):
            return [edge_index]
        return [edge_index, some_edges(edge_index, nodes)]


def some_edges(edge_index: Tensor, nodes: int) -> Tensor:
    """What is left when every edge, with both its directions, is cut with the same chance.

    The chance is drawn anew each time, from 0 to 1: explainers show a model everything between the
    whole graph and no edge at all, and what it says there should be an answer, not an accident.
    """
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    pairs, which = torch.unique(low * nodes + high, return_inverse=True)
    kept = torch.rand(pairs.numel()) >= torch.rand(1)
    return edge_index[:, kept[which]]
