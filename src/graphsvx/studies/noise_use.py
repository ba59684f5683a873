"""Does a model use the noise that was added? Accuracy, weights, attention, and single deletions.

The paper's test of explainers rests on models that do not use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import nan

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from graphsvx.data.base import generator
from graphsvx.errors import InputError
from graphsvx.explanation import Explanation
from graphsvx.studies.noise import correlation
from graphsvx.zoo import Trained


@dataclass(frozen=True)
class Use:
    """How far a model uses its noisy columns.

    accuracy, without, shuffled: on test nodes; with the noisy columns at 0; with their rows dealt
        out anew among the nodes.
    weight: mean length of the first layer's weights of a noisy column over that of the others.
    moved: mean |change| of the probability of the predicted class without the noisy columns.
    moved_by_words: the same without as many other columns, drawn at random (mean of `draws`).
    flipped: share of test nodes whose class changes without the noisy columns.
    helps_train, helps_test: mean that noise adds to the probability of the true class.
    """

    accuracy: float
    without: float
    shuffled: float
    weight: float
    moved: float
    moved_by_words: float
    flipped: float
    helps_train: float
    helps_test: float


@torch.no_grad()
def use_of_features(world: Trained, draws: int = 5) -> Use:
    """Measure it on the test nodes."""
    dataset = world.dataset
    x, labels, test = dataset.graph.x, dataset.labels, dataset.split.test
    noisy = noisy_columns(world)
    rng = generator(dataset.seed, dataset.name, "use of noise")

    def everybody(features: Tensor) -> Tensor:
        out: Tensor = world.model(features, dataset.graph.edge_index).softmax(1)
        return out

    def probabilities(features: Tensor) -> Tensor:
        return everybody(features)[test]

    def zeroed(columns: Tensor) -> Tensor:
        features = x.clone()
        features[:, columns] = 0
        return features

    full = probabilities(x)
    said = full.argmax(1)

    def accuracy(found: Tensor) -> float:
        return float((found.argmax(1) == labels[test]).double().mean())

    def moved(found: Tensor) -> float:
        return float((full - found).gather(1, said[:, None]).abs().mean())

    shuffled = x.clone()
    shuffled[:, noisy] = x[torch.randperm(len(x), generator=rng)][:, noisy]
    without = probabilities(zeroed(noisy))
    gained = (everybody(x) - everybody(zeroed(noisy))).gather(1, labels[:, None])[:, 0]
    words = (~noisy).nonzero()[:, 0]
    others = [
        moved(
            probabilities(zeroed(words[torch.randperm(len(words), generator=rng)[: noisy.sum()]]))
        )
        for _ in range(draws)
    ]
    lengths = first_weights(world.model).norm(dim=0)
    return Use(
        accuracy=accuracy(full),
        without=accuracy(without),
        shuffled=accuracy(probabilities(shuffled)),
        weight=float(lengths[noisy].mean() / lengths[~noisy].mean()),
        moved=moved(without),
        moved_by_words=float(np.mean(others)),
        flipped=float((without.argmax(1) != said).double().mean()),
        helps_train=float(gained[dataset.split.train].mean()),
        helps_test=float(gained[test].mean()),
    )


def noisy_columns(world: Trained) -> Tensor:
    """A mask over the columns of x."""
    mask = torch.zeros(world.dataset.features, dtype=torch.bool)
    if world.dataset.noise is not None:
        mask[world.dataset.noise.features] = True
    return mask


def first_weights(model: torch.nn.Module) -> Tensor:
    """Weights of the first layer of a citation model, [units, columns]."""
    found = getattr(getattr(getattr(model, "first", None), "lin", None), "weight", None)
    if not isinstance(found, Tensor):
        raise InputError(f"expected a citation model, got {type(model).__name__}")
    return found


def deaf_to_noise(world: Trained) -> Trained:
    """The same model with the weights of its noisy columns at 0: it cannot use them."""
    model = deepcopy(world.model)
    with torch.no_grad():
        first_weights(model)[:, noisy_columns(world)] = 0
    return replace(world, model=model)


@dataclass(frozen=True)
class NodeUse:
    """What taking all noisy nodes away does: accuracy before and after, classes that change,
    mean |change| of the probability of the predicted class; on test nodes."""

    accuracy: float
    without: float
    flipped: float
    moved: float


@torch.no_grad()
def use_of_nodes(world: Trained) -> NodeUse:
    """Measure it on the test nodes."""
    dataset = world.dataset
    graph, labels, test = dataset.graph, dataset.labels, dataset.split.test
    noisy = noisy_nodes(world)
    kept = ~noisy[graph.edge_index].any(0)
    full, less = (
        world.model(graph.x, edges)[test].softmax(1)
        for edges in (graph.edge_index, graph.edge_index[:, kept])
    )
    said = full.argmax(1)
    return NodeUse(
        accuracy=float((said == labels[test]).double().mean()),
        without=float((less.argmax(1) == labels[test]).double().mean()),
        flipped=float((less.argmax(1) != said).double().mean()),
        moved=float((full - less).gather(1, said[:, None]).abs().mean()),
    )


def noisy_nodes(world: Trained) -> Tensor:
    """A mask over the nodes."""
    mask = torch.zeros(int(world.dataset.graph.num_nodes), dtype=torch.bool)
    if world.dataset.noise is not None:
        mask[world.dataset.noise.nodes] = True
    return mask


# --- single deletions -----------------------------------------------------------------------


@dataclass(frozen=True)
class Effects:
    """Credit of candidates beside what deleting them does, over all explained nodes of a seed."""

    credit: tuple[float, ...]
    effect: tuple[float, ...]
    noisy: tuple[bool, ...]
    top: tuple[bool, ...]
    """Whether the candidate is among the top k by value."""

    def correlation(self, noisy: bool) -> float:
        """Of credit and effect, over noisy candidates or over the others."""
        chosen = [i for i, one in enumerate(self.noisy) if one == noisy]
        return correlation([self.credit[i] for i in chosen], [self.effect[i] for i in chosen])

    def raising(self, noisy: bool) -> float:
        """Share of the top ones (noisy, or others) without which the score really falls."""
        chosen = [
            effect > 0
            for effect, one, top in zip(self.effect, self.noisy, self.top, strict=True)
            if top and one == noisy
        ]
        return float(np.mean(chosen)) if chosen else nan

    def harming(self, noisy: bool) -> float:
        """Share of the candidates (noisy, or others) without which the score rises."""
        signs = [e < 0 for e, one in zip(self.effect, self.noisy, strict=True) if one == noisy]
        return float(np.mean(signs)) if signs else nan

    def size(self, noisy: bool) -> float:
        """Mean |effect| of deleting a noisy candidate, or another one."""
        sizes = [abs(e) for e, one in zip(self.effect, self.noisy, strict=True) if one == noisy]
        return float(np.mean(sizes)) if sizes else nan


def effects_beside(
    credits: Sequence[dict[int, float]],
    effects: Sequence[dict[int, float]],
    noise: set[int],
    k: Sequence[int],
) -> Effects:
    """Put credit and effect of the same candidates side by side."""
    rows = []
    for credit, effect, size in zip(credits, effects, k, strict=True):
        best = set(sorted(credit, key=lambda one: -credit[one])[:size])
        rows += [
            (credit[one], effect[one], one in noise, one in best) for one in credit if one in effect
        ]
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    return Effects(*columns)


@torch.no_grad()
def deleted_alone(world: Trained, explanation: Explanation) -> dict[int, float]:
    """What the isolated node's score loses when one feature becomes its mean."""
    x = world.dataset.graph.x
    columns = explanation.feature_ids
    rows = x[explanation.centres[0]].repeat(len(columns) + 1, 1)
    rows[torch.arange(len(columns)), columns] = x.mean(0)[columns]
    nothing = torch.zeros(2, 0, dtype=torch.long)
    scores = world.model(rows, nothing).double().softmax(1)[:, explanation.target]
    return dict(zip(columns.tolist(), (scores[-1] - scores[:-1]).tolist(), strict=True))


# --- attention --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """Attention that nodes get, averaged over heads, layers, their edges, and nodes.

    noisy, normal: of noisy and of other nodes.
    even_noisy, even_normal: what they would get if every node spread its attention evenly.
    """

    noisy: float
    normal: float
    even_noisy: float
    even_normal: float


@torch.no_grad()
def attention(world: Trained, loops: bool) -> Attention:
    """Attention of both GAT layers: mean over heads, then layers, then a node's edges, then nodes.

    An edge from u to v has the attention that v pays to u. `loops`: with the attention that each
    node pays to itself.
    """
    model, graph = world.model, world.dataset.graph
    first, second = getattr(model, "first", None), getattr(model, "second", None)
    if not isinstance(first, GATConv) or not isinstance(second, GATConv):
        raise InputError(f"expected a GAT with two layers, got {type(model).__name__}")
    hidden, (edges, one) = first(graph.x, graph.edge_index, return_attention_weights=True)
    _, (same, two) = second(hidden.relu(), graph.edge_index, return_attention_weights=True)
    if not torch.equal(edges, same):
        raise InputError("expected both layers to see the same edges, got others in the second")
    mean = (one.mean(1) + two.mean(1)) / 2
    noisy = noisy_nodes(world)
    incoming = torch.bincount(edges[1], minlength=graph.num_nodes)
    spread = 1 / incoming[edges[1]].to(mean)
    if not loops:
        others = edges[0] != edges[1]
        edges, mean, spread = edges[:, others], mean[others], spread[others]
    got, known = per_node(edges, mean, graph.num_nodes)
    even, _ = per_node(edges, spread, graph.num_nodes)
    return Attention(
        *(float(values[known & who].mean()) for values in (got, even) for who in (noisy, ~noisy))
    )


def per_node(edges: Tensor, weights: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Mean weight of the edges that start at each node, and which nodes have any."""
    count = torch.bincount(edges[0], minlength=nodes)
    total = torch.bincount(edges[0], weights.double(), minlength=nodes)
    return total / count.clamp(min=1), count > 0
