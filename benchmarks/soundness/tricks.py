"""Steps that real models take before, between or after layers, and that shortcuts may not expect.

Each is a function of (x, edge_index, edge_weight) that returns the same three. Most of them read
more than the neighbourhood of a node: all degrees, all edges, the number or the order of nodes.
"""

# ruff: noqa: ARG001, ARG004, ARG005  (functions that are called alike have the same arguments)

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

State = tuple[Tensor, Tensor, Tensor | None]
Trick = Callable[[Tensor, Tensor, Tensor | None], State]


def _degree(ends: Tensor, x: Tensor) -> Tensor:
    return x.new_zeros(len(x)).index_add(0, ends, x.new_ones(len(ends)))


def _neighbours(x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """The sum over in-neighbours, by hand."""
    messages = x[edges[0]] if weight is None else x[edges[0]] * weight[:, None]
    return torch.zeros_like(x).index_add(0, edges[1], messages)


def _adjacency(x: Tensor, edges: Tensor) -> Tensor:
    dense = x.new_zeros(len(x), len(x))
    return dense.index_put((edges[1], edges[0]), x.new_ones(edges.shape[1]), accumulate=True)


def _on_features(change: Callable[[Tensor, Tensor], Tensor]) -> Trick:
    return lambda x, edges, weight: (change(x, edges), edges, weight)


def _on_edges(change: Callable[[Tensor, Tensor], Tensor]) -> Trick:
    return lambda x, edges, weight: (x, change(x, edges), None)


def _on_weights(change: Callable[[Tensor], Tensor]) -> Trick:
    def apply(x: Tensor, edges: Tensor, weight: Tensor | None) -> State:
        given = x.new_ones(edges.shape[1]) if weight is None else weight
        return x, edges, change(given) if len(given) else given

    return apply


def _by_degree(factor: Callable[[Tensor], Tensor], end: int = 1) -> Trick:
    return _on_features(lambda x, edges: x * (0.5 + factor(_degree(edges[end], x)))[:, None])


# --- degrees ---------------------------------------------------------------------------------


def _rank(values: Tensor) -> Tensor:
    return (values[:, None] > values[None]).to(values.dtype).mean(1)


def _quantile(values: Tensor) -> Tensor:
    return (values > values.quantile(0.7)).to(values.dtype)


DEGREES: dict[str, Trick] = {
    "degree / largest": _by_degree(lambda d: d / d.max().clamp(min=1)),
    "degree / mean": _by_degree(lambda d: d / d.mean().clamp(min=0.1)),
    "degree above quantile": _by_degree(_quantile),
    "degree rank": _by_degree(_rank),
    "out-degree / largest": _by_degree(lambda d: d / d.max().clamp(min=1), end=0),
    "1 / out-degree": _by_degree(lambda d: 1 / d.clamp(min=1), end=0),
    "1 / in-degree": _by_degree(lambda d: 1 / d.clamp(min=1)),
    "isolated nodes counted": _by_degree(lambda d: (d == 0).to(d.dtype).mean().expand_as(d)),
    "largest degree": _by_degree(lambda d: d.max().log1p().expand_as(d)),
    "standard deviation of degrees": _by_degree(lambda d: d.std(correction=0).expand_as(d)),
    "degree as feature": _on_features(
        lambda x, e: torch.cat([x[:, :-1], _degree(e[1], x)[:, None].log1p()], 1)),
    "in-degree / out-degree": _on_features(
        lambda x, e: x * ((_degree(e[1], x) + 1) / (_degree(e[0], x) + 1))[:, None]),
}  # fmt: skip


# --- edges -----------------------------------------------------------------------------------


def fewer_edges_than(limit: int, factor: float = -0.5) -> Trick:
    """Features are scaled where the graph has fewer edges than this."""
    return _on_features(lambda x, e: x * factor if e.shape[1] < limit else x)


def exactly_edges(count: int) -> Trick:
    """Features are scaled where the graph has exactly so many edges."""
    return _on_features(lambda x, e: x * -2 if e.shape[1] == count else x)


def exactly_heard(node: int, count: int) -> Trick:
    """Features are scaled where a certain node hears exactly so many others."""
    return _on_features(lambda x, e: x * -2 if int((e[1] == node).sum()) == count else x)


def exactly_isolated(count: int) -> Trick:
    """Features are scaled where exactly so many nodes have no edge."""
    return _on_features(lambda x, e: x * -2 if len(x) - len(e.unique()) == count else x)


def turned_without(first: int, second: int) -> Trick:
    """Features change places where one node does not hear another."""
    return _on_features(
        lambda x, e: x if bool(((e[1] == first) & (e[0] == second)).any()) else x.flip(1)
    )


def node_is_isolated(node: int) -> Trick:
    """Features are scaled where a certain node has no edge."""
    return _on_features(lambda x, e: x if bool((e == node).any()) else x * 0.5)


def _hashed(x: Tensor, edges: Tensor) -> Tensor:
    return edges[:, (31 * edges[0] + 17 * edges[1]) % 10 < 7]


def _two_hops(x: Tensor, edges: Tensor) -> Tensor:
    near = _adjacency(x, edges)
    return (near @ near).t().nonzero().t()


def _last_edge(x: Tensor, edges: Tensor) -> Tensor:
    """Each node adds the sender of its last edge."""
    last = torch.full((len(x),), -1)
    for position, node in enumerate(edges[1].tolist()):
        last[node] = edges[0, position]
    return x + torch.where((last >= 0)[:, None], x[last], 0 * x)


EDGES: dict[str, Trick] = {
    "weight / largest": _on_weights(lambda w: w / w.max()),
    "weight / sum": _on_weights(lambda w: 3 * w / w.sum()),
    "weight - mean": _on_weights(lambda w: w - w.mean()),
    "weight rank": _on_weights(_rank),
    "order of edges": _on_weights(lambda w: w * torch.linspace(0.5, 1.5, len(w)).to(w)),
    "first edges": _on_weights(lambda w: w * (torch.arange(len(w)) < 5).to(w)),
    "last edge of a node": _on_features(_last_edge),
    "edges counted": _on_features(lambda x, e: x * (1 + e.shape[1]) ** -0.5),
    "edges / nodes": _on_features(lambda x, e: x + e.shape[1] / len(x)),
    "parity of edges": _on_features(lambda x, e: x + e.shape[1] % 2),
    "edges dropped by hash": _on_edges(_hashed),
    "edges turned round": _on_edges(lambda x, e: e.flip(0)),
    "edges made undirected": _on_edges(lambda x, e: to_undirected(e, num_nodes=len(x))),
    "two hops as edges": _on_edges(_two_hops),
    "half of the edges": _on_edges(lambda x, e: e[:, ::2]),
    "hash by numbers of nodes": _on_edges(lambda x, e: e[:, (e[0] * len(x) + e[1]) % 3 > 0]),
}


# --- all nodes -------------------------------------------------------------------------------


def _top_half(x: Tensor, edges: Tensor) -> Tensor:
    chosen = x.sum(1).topk(max(1, len(x) // 2)).indices
    pooled = torch.zeros(len(x), 1, dtype=x.dtype)
    pooled[chosen] = 1
    return x * pooled


def _seeded_noise(x: Tensor, edges: Tensor) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return x + 0.2 * torch.randn(x.shape, generator=rng).to(x.dtype)


NODES: dict[str, Trick] = {
    "minus the mean": _on_features(lambda x, e: x - x.mean(0)),
    "standardised": _on_features(lambda x, e: (x - x.mean(0)) / (x.std(0, correction=0) + 0.1)),
    "plus the largest": _on_features(lambda x, e: x + x.max(0).values),
    "divided by the largest": _on_features(lambda x, e: x / x.abs().max().clamp(min=0.1)),
    "softmax over nodes": _on_features(lambda x, e: x.softmax(0) * 3),
    "rank among nodes": _on_features(
        lambda x, e: x + x.argsort(dim=0, stable=True).argsort(dim=0).to(x) / len(x)),
    "sorted": _on_features(lambda x, e: x + x.sort(0).values.flip(0)),
    "nodes counted": _on_features(lambda x, e: x * (1 + 1 / len(x))),
    "virtual node": _on_features(lambda x, e: x + x.mean(0, keepdim=True).tanh().expand_as(x)),
    "number of the node": _on_features(lambda x, e: x + torch.arange(len(x)).to(x).sin()[:, None]),
    "parity of the node": _on_features(lambda x, e: x * (1 + torch.arange(len(x)) % 2)[:, None]),
    "first node": _on_features(lambda x, e: x + x[:1].tanh()),
    "last node": _on_features(lambda x, e: x + x[-1:].tanh()),
    "running sum": _on_features(lambda x, e: x.cumsum(0) / (1 + torch.arange(len(x))[:, None])),
    "next node": _on_features(lambda x, e: x + 0.5 * x.roll(1, 0)),
    "top half": _on_features(_top_half),
    "above the median": _on_features(lambda x, e: x * (x > x.median(0).values)),
    "seeded noise": _on_features(_seeded_noise),
    "global attention": _on_features(
        lambda x, e: x + (x @ x.t() / x.shape[1] ** 0.5).softmax(-1) @ x),
}  # fmt: skip


# --- messages by hand ------------------------------------------------------------------------


def _rounds(count: int, step: Callable[[Tensor, Tensor], Tensor]) -> Trick:
    def apply(x: Tensor, edges: Tensor) -> Tensor:
        for _ in range(count):
            x = step(x, edges)
        return x

    return _on_features(apply)


def _mean(x: Tensor, edges: Tensor) -> Tensor:
    return 0.5 * x + 0.5 * _neighbours(x, edges) / _degree(edges[1], x).clamp(min=1)[:, None]


def _largest(x: Tensor, edges: Tensor) -> Tensor:
    into = edges[1][:, None].expand(-1, x.shape[1])
    return x.scatter_reduce(0, into, x[edges[0]], "amax", include_self=True)


def _attention(x: Tensor, edges: Tensor) -> Tensor:
    score = (x[edges[0]] * x[edges[1]]).sum(1).tanh().exp()
    total = x.new_zeros(len(x)).index_add(0, edges[1], score)
    return x + _neighbours(x, edges, score / total[edges[1]])


def _sparse(x: Tensor, edges: Tensor) -> Tensor:
    ones = x.new_ones(edges.shape[1])
    matrix = torch.sparse_coo_tensor(
        edges.flip(0), ones, (len(x), len(x)), check_invariants=False
    ).coalesce()
    return x + 0.3 * torch.sparse.mm(matrix, x + torch.zeros_like(x))


def _until_small(x: Tensor, edges: Tensor) -> Tensor:
    start = x
    for _ in range(60):
        new = 0.5 * start + 0.5 * _mean(x, edges)
        change = float((new - x).abs().max())
        x = new
        if change < 1e-2:
            break
    return x


def _until_equal(x: Tensor, edges: Tensor) -> Tensor:
    """The largest value that can reach a node."""
    while True:
        new = _largest(x, edges)
        if torch.equal(new, x):
            return x
        x = new


def _page_rank(x: Tensor, edges: Tensor) -> Tensor:
    share = 1 / _degree(edges[0], x).clamp(min=1)
    rank = x.new_full((len(x),), 1 / len(x))
    for _ in range(8):
        sent = (rank * share)[edges[0]]
        rank = 0.15 / len(x) + 0.85 * torch.zeros_like(rank).index_add(0, edges[1], sent)
    return x * (0.5 + len(x) * rank)[:, None]


def _returns(x: Tensor, edges: Tensor) -> Tensor:
    """Random-walk positional encoding: how often a walk is back after 2 and 3 steps."""
    walk = _adjacency(x, edges) / _degree(edges[1], x).clamp(min=1)[:, None]
    two = walk @ walk
    return x + two.diagonal()[:, None] - (two @ walk).diagonal()[:, None]


def _radius(x: Tensor, edges: Tensor) -> Tensor:
    near = _adjacency(x, edges)
    return x / (1 + torch.linalg.eigvalsh(near + near.t()).abs().max())


def _triangles(x: Tensor, edges: Tensor) -> Tensor:
    near = (_adjacency(x, edges) > 0).to(x)
    return x * (1 + (near @ near * near.t()).sum(1))[:, None].log1p()


def _component(x: Tensor, edges: Tensor) -> Tensor:
    """The number of nodes in a node's component, either way along the edges."""
    label = torch.arange(len(x))
    while True:
        new = label.clone()
        new.scatter_reduce_(0, edges[1], label[edges[0]], "amin")
        new.scatter_reduce_(0, edges[0], new[edges[1]], "amin")
        if torch.equal(new, label):
            break
        label = new
    return x * torch.bincount(label, minlength=len(x))[label][:, None].to(x).log1p()


MESSAGES: dict[str, Trick] = {
    "sum by hand": _rounds(1, lambda x, e: x + 0.3 * _neighbours(x, e)),
    "mean by hand": _rounds(1, _mean),
    "two rounds by hand": _rounds(2, _mean),
    "four rounds by hand": _rounds(4, _mean),
    "largest by hand": _rounds(1, _largest),
    "attention by hand": _rounds(1, _attention),
    "sparse product": _rounds(1, _sparse),
    "two sparse products": _rounds(2, _sparse),
    "dense product": _rounds(1, lambda x, e: x + 0.3 * _adjacency(x, e) @ x),
    "until small": _on_features(_until_small),
    "until equal": _on_features(_until_equal),
    "page rank": _on_features(_page_rank),
    "walks that return": _on_features(_returns),
    "spectral radius": _on_features(_radius),
    "triangles": _on_features(_triangles),
    "component": _on_features(_component),
}

# --- steps that are hard to see from outside ---------------------------------------------------


@torch.jit.script
def _scripted_mean(x: Tensor) -> Tensor:
    return x.mean(0)


@torch.jit.script
def _scripted_degree(x: Tensor, edges: Tensor) -> Tensor:
    ones = torch.ones(edges.shape[1], dtype=x.dtype)
    return torch.zeros(x.shape[0], 1, dtype=x.dtype).index_add(0, edges[0], ones[:, None])


class _Largest(torch.autograd.Function):
    """The largest row by a function with a gradient of its own."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.max(0).values

    @staticmethod
    def backward(context: Any, *gradient: Tensor) -> Tensor:
        raise NotImplementedError


def _by_columns(x: Tensor, edges: Tensor) -> Tensor:
    return x - torch.func.vmap(torch.mean, in_dims=1)(x)


def _through_numpy(x: Tensor, edges: Tensor) -> Tensor:
    return x + torch.from_numpy(np.tanh(x.detach().numpy().sum(0)))


def _through_a_list(x: Tensor, edges: Tensor) -> Tensor:
    return x * (0.5 + max(abs(value) for row in x.tolist() for value in row))


def _in_place(x: Tensor, edges: Tensor) -> Tensor:
    x = x.clone()
    x[0] += 1
    x[edges[0][:1]] *= 2
    return x


def _doubling(x: Tensor, edges: Tensor) -> Tensor:
    """As many rounds as it takes to double up to the number of nodes."""
    for _ in range(math.ceil(math.log2(max(2, x.shape[0])))):
        x = _mean(x, edges)
    return x


def _integers(change: Callable[[int], float], end: int) -> Trick:
    return _on_features(lambda x, e: x * (1 + change((x.size(0), e.size(1))[end])))


def _in_a_thread(compute: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(compute).result()


HIDDEN: dict[str, Trick] = {
    "scripted mean": _on_features(lambda x, e: x - _scripted_mean(x)),
    "scripted degree": _on_features(lambda x, e: x / (1 + _scripted_degree(x, e))),
    "function of its own": _on_features(lambda x, e: x + _Largest.apply(x)),
    "mean by vmap": _on_features(_by_columns),
    "sum by numpy": _on_features(_through_numpy),
    "largest by a list": _on_features(_through_a_list),
    "rows changed in place": _on_features(_in_place),
    "rounds by log2": _on_features(_doubling),
    "edges & 1": _integers(lambda n: n & 1, 1),
    "edges >> 2": _integers(lambda n: (n >> 2) / 10, 1),
    "nodes >> 3": _integers(lambda n: (n >> 3) / 5, 0),
    "divmod of edges": _integers(lambda n: divmod(n, 7)[1] / 7, 1),
    "bits of nodes": _integers(lambda n: n.bit_length() / 5, 0),
    "log of nodes": _integers(lambda n: math.log(n + 1) / 5, 0),
    "root of edges": _integers(lambda n: math.sqrt(n) / 5, 1),
    "list as long as nodes": _integers(lambda n: len([0] * n) / 20, 0),
    "operator of aten": _on_features(lambda x, e: x - torch.ops.aten.mean.dim(x, [0])),
    "einsum": _on_features(lambda x, e: x + torch.einsum("nf->f", x) / 10),
    "matrix product over nodes": _on_features(lambda x, e: x @ (x.t() @ x).tanh()),
    "outside of the trace": _on_features(lambda x, e: x + _unseen_mean(x)),
    "largest degree in a thread": _on_features(
        lambda x, e: x / (1 + _in_a_thread(lambda: _degree(e[1], x).max()))
    ),
    "isolated nodes in a thread": _on_features(
        lambda x, e: x * (1 + _in_a_thread(lambda: (_degree(e[1], x) == 0).to(x).mean()))
    ),
    "two hops in a thread": _on_features(
        lambda x, e: x + 0.3 * _in_a_thread(lambda: _neighbours(_neighbours(x, e), e))
    ),
    "more than 12 edges by a loop": _integers(lambda n: float(len(range(n)) > 12), 1),
    "more than 50 nodes by a loop": _integers(lambda n: float(len(range(n)) > 50), 0),
    "edges as a key": _integers(lambda n: dict.fromkeys(range(0, 200, 3), 0.5).get(n, 0.0), 1),
}


def _unseen_mean(x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return torch.Tensor.mean(x.as_subclass(Tensor) if type(x) is not Tensor else x, 0)


ALL: dict[str, Trick] = {**DEGREES, **EDGES, **NODES, **MESSAGES}


def _threaded(trick: Trick) -> Trick:
    return lambda x, edges, weight: _in_a_thread(lambda: trick(x, edges, weight))


THREADS: dict[str, Trick] = {f"{name} in a thread": _threaded(trick) for name, trick in ALL.items()}


def _factor(*values: float) -> Trick:
    def apply(x: Tensor, edges: Tensor) -> Tensor:
        return x * torch.tensor(values[: x.shape[1]], dtype=x.dtype)

    return _on_features(apply)


SCALES: dict[str, Trick] = {
    "1e-4": _on_features(lambda x, e: 1e-4 * x),
    "1e-9": _on_features(lambda x, e: 1e-9 * x),
    "1e5": _on_features(lambda x, e: 1e5 * x),
    "1e6 and 1": _factor(1e6, 1.0, 1.0, 1.0),
    "1 and 1e-5": _factor(1.0, 1e-5, 1e-5, 1e-5),
    "1 + 1e-4": _on_features(lambda x, e: 1 + 1e-4 * x),
    "-100 + 1e-2": _on_features(lambda x, e: -100 + 1e-2 * x),
}


def names_of(*groups: dict[str, Any]) -> list[str]:
    """All names in some of the dictionaries."""
    return [name for group in groups for name in group]
