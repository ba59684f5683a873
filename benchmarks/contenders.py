"""How others do it, written plainly: the same coalitions, model and node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.utils import k_hop_subgraph

import graphsvx
from graphsvx import GraphSVX
from graphsvx.core.players import Sides
from graphsvx.estimators import WLS
from graphsvx.games.base import FunctionGame
from graphsvx.masks import All, Mask, Masks, Paired


@dataclass(frozen=True)
class SameRows:
    """Coalitions that do not depend on the graph, so that every contender can play them.

    What was drawn for each game is kept in `rows`.
    """

    inner: Mask = Paired()
    rows: dict[str, Masks] = field(default_factory=dict, repr=False)
    separate = True

    def __call__(self, game: Any, budget: int, rng: torch.Generator) -> Masks:
        blank = FunctionGame(lambda rows: torch.zeros(len(rows)), game.players)
        drawn = self.inner(blank, budget, rng)
        self.rows[game.side] = drawn
        return replace(drawn, states=game.states(drawn.rows))


@dataclass(frozen=True)
class Given:
    """Coalitions that were drawn before: nobody's time includes drawing them."""

    rows: dict[str, Masks] = field(repr=False)
    separate = True

    def __call__(self, game: Any, budget: int, rng: torch.Generator) -> Masks:  # noqa: ARG002  (a mask's arguments)
        drawn = self.rows[game.side]
        return replace(drawn, states=game.states(drawn.rows))


@dataclass(frozen=True, eq=False)
class Task:
    """A node, and the coalitions of features and of nodes to be played for it."""

    model: nn.Module
    graph: Data
    node: int
    features: np.ndarray
    nodes: np.ndarray
    target: int
    rows: dict[str, Masks]
    mean: Tensor
    players: Sides = "both"

    @staticmethod
    def of(
        model: nn.Module, graph: Data, node: int, samples: int, mask: SameRows | None = None,
        players: Sides = "both",
    ) -> Task:  # fmt: skip
        mask = mask or SameRows()
        e = graphsvx.explain(model, graph, node=node, method=same(samples, mask, players))
        return Task(
            model, graph, node, e.feature_ids.numpy(), e.node_ids.numpy(), e.target, mask.rows,
            graph.x.double().mean(0).to(graph.x.dtype), players,
        )  # fmt: skip

    def coalitions(self) -> list[tuple[str, np.ndarray]]:
        """For each game all rows, the empty and the full one first."""
        values = []
        for side, masks in self.rows.items():
            ends = np.zeros((2, masks.rows.shape[1]), dtype=bool)
            ends[1] = True
            values.append((side, np.concatenate([ends, masks.rows])))
        return values

    def count(self) -> int:
        """Rows of all games together."""
        return sum(len(rows) for _, rows in self.coalitions())

    def credit(self, values: dict[str, Tensor]) -> dict[int | str, float]:
        """The regression that all contenders share."""
        credit: dict[int | str, float] = {}
        for side, masks in self.rows.items():
            y = values[side].double()[:, None]
            fit = WLS()(masks, y[2:], y[0], y[1])
            names = self.nodes.tolist() if side == "nodes" else [f"x{i}" for i in self.features]
            credit.update(zip(names, fit.values[0].tolist(), strict=True))
        return credit


def same(samples: int, mask: Any, players: Sides = "both") -> GraphSVX:
    """Our engine on given rows, with the plain regression."""
    return GraphSVX(samples=samples, mask=mask, estimator=WLS(), players=players)


def ours(task: Task, samples: int) -> dict[int | str, float]:
    method = same(samples, Given(task.rows), task.players)
    e = graphsvx.explain(task.model, task.graph, node=task.node, method=method)
    credit: dict[int | str, float] = dict(e.nodes)
    credit.update({f"x{i}": value for i, value in e.features.items()})
    return credit


@torch.no_grad()
def one_by_one(task: Task) -> dict[int | str, float]:
    """One call a coalition on the whole graph."""
    source, target = task.graph.edge_index
    values = {}
    for side, rows in task.coalitions():
        scores = []
        for row in torch.from_numpy(rows):
            x, edges = task.graph.x, task.graph.edge_index
            on = torch.ones(task.graph.num_nodes, dtype=torch.bool)
            if side == "features":
                x = x.clone()
                off = torch.from_numpy(task.features)[~row]
                x[task.node, off] = task.mean[off]
                on[torch.from_numpy(task.nodes)] = False
            else:
                on[torch.from_numpy(task.nodes)[~row]] = False
            edges = edges[:, on[source] & on[target]]
            scores.append(task.model(x, edges)[task.node].softmax(-1)[task.target])
        values[side] = torch.stack(scores)
    return task.credit(values)


def replicated(task: Task, depth: int, room: int = 256 * 2**20) -> dict[int | str, float]:
    """Batches of copies of the neighbourhood, each with all of its features."""
    batches = Batches.of(task.model, task.graph, task.node, task.nodes, depth, room)
    features = torch.from_numpy(task.features)
    values = {}
    for side, rows in task.coalitions():
        given = torch.from_numpy(rows)
        if side == "features":
            own = torch.where(given, task.graph.x[task.node, features], task.mean[features])
            out = batches(torch.zeros(len(rows), len(task.nodes), dtype=torch.bool), features, own)
        else:
            out = batches(given)
        values[side] = out.softmax(-1)[:, task.target]
    return task.credit(values)


@dataclass(frozen=True, eq=False)
class Batches:
    """Perturbed copies of a neighbourhood as one graph, as it is usually written for PyG.

    Nodes beyond the neighbourhood, which a GCN counts, are not copied: one set serves a batch.
    """

    model: nn.Module
    own: Tensor
    beyond: Tensor
    source: Tensor
    target: Tensor
    centre: int
    players: Tensor
    step: int

    @staticmethod
    def of(
        model: nn.Module, graph: Data, node: int, nodes: np.ndarray, depth: int,
        room: int = 256 * 2**20,
    ) -> Batches:  # fmt: skip
        inside, _, place, _ = k_hop_subgraph(node, depth, graph.edge_index,
                                             num_nodes=graph.num_nodes)  # fmt: skip
        member = torch.zeros(graph.num_nodes, dtype=torch.bool)
        member[inside] = True
        edges = graph.edge_index[:, member[graph.edge_index[1]]]
        beyond = edges[0][~member[edges[0]]].unique()
        size = len(inside)
        local = torch.full((graph.num_nodes,), -1)
        local[inside] = torch.arange(size)
        local[beyond] = torch.arange(len(beyond)) + size
        own = graph.x[inside]
        return Batches(
            model, own, graph.x[beyond], local[edges[0]], local[edges[1]], int(place),
            local[torch.from_numpy(nodes)], max(1, room // (own.numel() * own.element_size())),
        )  # fmt: skip

    @torch.no_grad()
    def __call__(
        self, rows: Tensor, columns: Tensor | None = None, vectors: Tensor | None = None
    ) -> Tensor:
        """Outputs at the explained node; `vectors` replace some of its own features."""
        size, near = len(self.own), self.source < len(self.own)
        outputs = []
        for first in range(0, len(rows), self.step):
            chunk = rows[first : first + self.step]
            count = len(chunk)
            x = self.own.repeat(count, 1)
            at = torch.arange(count) * size + self.centre
            if columns is not None and vectors is not None:
                x[at[:, None], columns] = vectors[first : first + self.step]
            on = torch.ones(count, size + len(self.beyond), dtype=torch.bool)
            on[:, self.players] = chunk
            copy, edge = (on[:, self.source] & on[:, self.target]).nonzero(as_tuple=True)
            start = torch.where(near[edge], self.source[edge] + copy * size,
                                self.source[edge] - size + count * size)  # fmt: skip
            ends = torch.stack([start, self.target[edge] + copy * size])
            outputs.append(self.model(torch.cat([x, self.beyond]), ends)[at])
        return torch.cat(outputs)


def brute_force(model: nn.Module, graph: Data, node: int, depth: int) -> dict[int | str, float]:
    """Shapley values from every coalition, evaluated plainly."""
    every = SameRows(All(separate=True))
    return replicated(Task.of(model, graph, node, 1000, every), depth)


def gnn_explainer(model: nn.Module, graph: Data, node: int) -> Tensor:
    """PyG's own, with the number of epochs that it has by default."""
    explainer = Explainer(
        model,
        GNNExplainer(epochs=100),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification", "task_level": "node", "return_type": "raw",
        },
    )  # fmt: skip
    return explainer(graph.x, graph.edge_index, index=node).edge_mask


def kernel_shap(game: Any, target: int, samples: int) -> np.ndarray:
    """`shap.KernelExplainer`, its own sampling and regression, the game played by our engine."""

    def value(z: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return game.values(game.states(z > 0.5))[:, target].numpy()

    return _kernel_shap(value, game.players, samples)


def plain_kernel_shap(
    model: nn.Module, graph: Data, node: int, samples: int, depth: int
) -> np.ndarray:
    """The same, the game played as a user of shap would write it: plain batches of copies."""
    with torch.no_grad():
        target = int(model(graph.x, graph.edge_index)[node].argmax())
    inside = k_hop_subgraph(node, depth, graph.edge_index, num_nodes=graph.num_nodes)[0]
    hops = [k_hop_subgraph(node, hop, graph.edge_index, num_nodes=graph.num_nodes)[0]
            for hop in range(depth)]  # fmt: skip
    # In the order of our explanations: by hops, then by id.
    rank = torch.full((graph.num_nodes,), depth)
    for hop in reversed(range(depth)):
        rank[hops[hop]] = hop
    players = inside[rank[inside].argsort(stable=True)][1:].numpy()
    batches = Batches.of(model, graph, node, players, depth)

    def value(z: np.ndarray) -> np.ndarray:
        probabilities: np.ndarray = (
            batches(torch.from_numpy(z > 0.5)).softmax(-1)[:, target].numpy()
        )
        return probabilities

    return _kernel_shap(value, len(players), samples)


def _kernel_shap(value: Any, players: int, samples: int) -> np.ndarray:
    import shap  # noqa: PLC0415  (slow to import)

    explainer = shap.KernelExplainer(value, np.zeros((1, players)))
    values = explainer.shap_values(np.ones((1, players)), nsamples=samples, l1_reg=False,
                                  silent=True)  # fmt: skip
    return np.asarray(values)[0]
