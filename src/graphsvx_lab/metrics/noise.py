"""Data sets with noise: how much of it is among the most important ones, and whether models use it.

A candidate without credit has 0. Where candidates share the last place, each of them is in with
the same chance, and the expected number counts: a method that gives credit to few is filled up
at random, not in the order of ids (noise has the last ids).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from graphsvx.errors import InputError
from graphsvx.metrics.select import expected_hits
from graphsvx_lab.zoo import Trained
from graphsvx_lab.zoo.models import CitationGAT

TOP, FEW, SHARE = 20, 100, 0.2
"""k; and the number of candidates below which it is a share of them."""
FIRST_WEIGHTS = "first.lin.weight"
"""Of a citation model, [units, columns]."""


def noise_of(trained: Trained) -> tuple[str, set[int]]:
    """What noise was added ("features" or "nodes"), and its ids."""
    noise = trained.dataset.noise
    if noise is None:
        raise InputError(f"expected a data set with noise, got {trained.dataset.name!r}")
    kind = "features" if len(noise.features) else "nodes"
    return kind, set(getattr(noise, kind).tolist())


def top_k(candidates: int) -> int:
    """How many of the candidates are looked at: 20, or 20 % of few, at least 1."""
    return TOP if candidates >= FEW else min(candidates, max(1, round(SHARE * candidates)))


def noise_shares(
    credit: Mapping[int, float], candidates: Sequence[int], noise: set[int], name: str
) -> dict[str, float]:
    """Noise among the top k of the candidates `name`, by value and by magnitude."""
    if not candidates:
        return {}
    credits = [credit.get(candidate, 0.0) for candidate in candidates]
    values = torch.tensor(credits, dtype=torch.float64)
    k = top_k(len(candidates))
    number, by_magnitude = (expected_hits(list(candidates), v, noise, k)
                            for v in (values, values.abs()))  # fmt: skip
    return {
        f"number, {name}": number,
        f"share by value, {name}": number / k,
        f"share by magnitude, {name}": by_magnitude / k,
    }


@torch.no_grad()
def use_of_noise(trained: Trained) -> dict[str, float]:
    """Test nodes with and without the noise; and how long the weights of noisy columns are."""
    data, model = trained.dataset, trained.model
    kind, noise = noise_of(trained)
    x, edges, test, ids = data.graph.x, data.graph.edge_index, data.split.test, sorted(noise)
    weights, less = {}, (x, edges[:, ~torch.isin(edges, torch.tensor(ids)).any(0)])
    if kind == "features":
        noisy = torch.zeros(x.shape[1], dtype=torch.bool).index_fill(0, torch.tensor(ids), True)
        lengths, less = model.get_parameter(FIRST_WEIGHTS).norm(dim=0), (x * ~noisy, edges)
        weights["weights, noise / words"] = float(lengths[noisy].mean() / lengths[~noisy].mean())
    full, without = (model(*inputs).softmax(1)[test] for inputs in ((x, edges), less))
    classes, labels = full.argmax(1), data.labels[test]
    return {
        "test accuracy": float((classes == labels).double().mean()),
        "accuracy without noise": float((without.argmax(1) == labels).double().mean()),
        "classes that change": float((without.argmax(1) != classes).double().mean()),
        "change without noise": float((full - without).gather(1, classes[:, None]).abs().mean()),
        **weights,
    }  # fmt: skip


def attention_on_noise(trained: Trained) -> dict[str, float]:
    """Attention of a GAT on nodes: mean over those who look at a node, then over nodes.

    Nothing for other models, and where no nodes are noise. "with loops": with the attention that
    each node pays to itself.
    """
    model, graph, (kind, noise) = trained.model, trained.dataset.graph, noise_of(trained)
    if not isinstance(model, CitationGAT) or kind != "nodes":
        return {}
    (source, target), weights = model.attention(graph.x, graph.edge_index)
    noisy = torch.isin(torch.arange(graph.num_nodes), torch.tensor(sorted(noise)))
    values = {}
    for words, counts in (("without", source != target), ("with", source >= 0)):
        degree = torch.bincount(source[counts], minlength=graph.num_nodes)
        total = torch.bincount(source[counts], weights[counts].double(), minlength=len(degree))
        for name, group in (("noisy", noisy & (degree > 0)), ("normal", ~noisy & (degree > 0))):
            mean = (total[group] / degree[group]).mean()
            values[f"attention {words} loops, {name}"] = float(mean)
    return values
