"""The receptive field of a question for baselines: who plays in it, its perturbed graphs, and the
field as a graph of its own, for methods that differentiate, fit or sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.field import Field, Perturbations
from graphsvx.core.players import FeatureChoice, Players, Sides
from graphsvx.core.query import Query
from graphsvx.engine.choose import choose_evaluator, evaluate
from graphsvx.engine.evaluator import Evaluator, Plain, unperturbed
from graphsvx.generators import GameSetup
from graphsvx.methods.pipeline import Prediction
from graphsvx.methods.player_kinds import KINDS
from graphsvx.utils.exclusive import taking_back


def played_field(
    query: Query, seed: int, sides: Sides, features: FeatureChoice = "all", hops: int | None = None
) -> tuple[Evaluator, GameSetup]:
    """The fastest evaluator that passes its checks, and the players of a baseline in its field."""
    evaluator = choose_evaluator(query, hops, seed)
    return evaluator, baseline_setup(evaluator, sides, features, hops)


def baseline_setup(
    evaluator: Evaluator, sides: Sides, features: FeatureChoice, hops: int | None = None
) -> GameSetup:
    """The players of a baseline, as those of GraphSVX; each edge is a player of its own."""
    query, field, graph = evaluator.query, evaluator.field, evaluator.query.graph
    if sides == "edges" and not graph.has_types:
        inner = field.inner_edges[np.argsort(field.edges[field.inner_edges])]
        players = Players(edge_members=inner, edge_owner=np.arange(len(inner)))
        return GameSetup(graph, field, players, graph.statistics.mean)
    settings: Any = {} if sides in ("nodes", "edges") else {"features": features}
    setup = KINDS[sides](hops=hops, **settings).setup(query, evaluator, 0)
    return replace(setup, keeps_features=not setup.players.features)


def scores_in_parts(
    evaluator: Evaluator, perturb: Callable[[slice], Perturbations], rows: Sized, bytes_each: int
) -> Tensor:
    """Scores of the perturbed graphs of many rows, as many at a time as the memory holds.

    `perturb`: the perturbed graphs of part of the rows.
    """
    step = max(1, evaluator.query.memory // max(1, bytes_each))
    parts = [slice(first, first + step) for first in range(0, len(rows), step)]
    return torch.cat([perturbed_scores(evaluator, perturb(part)) for part in parts])


def perturbed_scores(evaluator: Evaluator, perturbations: Perturbations) -> Tensor:
    """Scores of perturbed graphs, [graphs, outputs]."""
    return evaluator.query.scores(evaluate(evaluator, perturbations)).cpu()


@dataclass(frozen=True, eq=False)
class LocalGraph:
    """The receptive field of a query as tensors, nodes and edges in the order of the user's graph.

    If the field is the full graph, these tensors equal those of the user's graph.
    """

    query: Query
    evaluator: Evaluator
    ids: Ids
    """Node ids in the user's graph, ascending."""
    edges: Ids
    """Positions in the user's edge_index, ascending."""
    x: Tensor
    edge_index: Tensor
    others: Mapping[str, Any]
    """What else the model is given: weights and attributes of edges, further attributes."""

    @property
    def centres(self) -> Tensor:
        """Positions of the explained nodes in `ids`; empty for a graph query."""
        return as_tensor(np.searchsorted(self.ids, self.query.centres), self.x.device)

    def outputs(self, x: Tensor | None = None, **others: Tensor) -> Tensor:
        """The model's raw output for every node (for the graph, or for the explained pair)."""
        arguments = {"edge_index": self.edge_index, **self.others, **others}
        return self.query.model(self.x if x is None else x, **arguments)

    def explained(self, out: Tensor) -> Tensor:
        """Raw outputs of the explained nodes, [centres, outputs], or of the graph, [1, outputs]."""
        one_row = self.query.kind == "graph" or self.query.model.scores_pairs
        return out if one_row else out[self.centres]

    def prediction(self) -> Prediction:
        """What is explained."""
        return Prediction.of(self.query, self.evaluator, self.scores())

    def scores(self, x: Tensor | None = None) -> Tensor:
        """The explained scores [outputs], float64; differentiable in `x`."""
        return self.query.scores(self.explained(self.outputs(x))[None])[0]

    @property
    def inner_edges(self) -> Tensor:
        """Positions of the edges between nodes of the field, which are the edge players."""
        field = self.evaluator.field
        return torch.from_numpy(np.flatnonzero(np.isin(self.edges, field.edges[field.inner_edges])))

    def edge_ids(self) -> Tensor:
        """Ends of the inner edges, [2, players], by the user's node ids."""
        ends = self.edge_index[:, self.inner_edges.to(self.edge_index.device)].cpu()
        return torch.from_numpy(self.ids)[ends]


def local_graph_of(query: Query, seed: int) -> LocalGraph:
    """The receptive field of a query as a graph, or the full graph if the model is not local."""
    evaluator = choose_evaluator(query, None, seed)
    return graph_around(query, evaluator, evaluator.field if evaluator.local else None)


def graph_around(query: Query, evaluator: Evaluator, field: Field | None) -> LocalGraph:
    """A field of a query as a graph; None: the full graph."""
    graph, device = query.graph, query.graph.x.device
    ids, edges = np.arange(graph.num_nodes), np.arange(graph.num_edges)
    if field is not None:
        ids, edges = np.sort(field.ids), np.sort(field.edges)
    nodes, columns = as_tensor(ids, device), as_tensor(edges, device)
    ends = np.searchsorted(ids, graph.edge_index[:, columns].cpu().numpy())
    weight, attr = graph.edge_rows(columns)
    others: dict[str, Any] = {"edge_weight": weight, "edge_attr": attr}
    others["attributes"] = graph.attributes_at(nodes, columns)
    if query.kind == "graph":
        others["batch"] = torch.zeros_like(nodes)
    if query.model.scores_pairs:
        others["pairs"] = as_tensor(np.searchsorted(ids, query.centres), device)[:, None]
    x = graph.x.index_select(0, nodes).detach()
    return LocalGraph(query, evaluator, ids, edges, x, as_tensor(ends, device), others)


def unperturbed_prediction(query: Query, seed: int) -> Prediction:
    """The prediction, for methods that do not perturb the graph."""
    if not query.graph.has_types:
        return local_graph_of(query, seed).prediction()
    evaluator = choose_evaluator(query, None, seed)
    return Prediction.of(query, evaluator, typed_scores(query, evaluator))


def typed_scores(query: Query, evaluator: Evaluator) -> Tensor:
    """Scores [outputs] of the unperturbed graph by a plain call."""
    field = evaluator.field
    return query.scores(Plain(query, field).evaluate(field, unperturbed(query, field)))[0]


@contextmanager
def model_restored(module: object) -> Iterator[None]:
    """Enable gradients with frozen parameters; restore parameters and layers afterwards.

    PyG's algorithms leave a `_edge_mask` entry and another `propagate` in each layer, and gradients
    on the parameters.
    """
    if not isinstance(module, nn.Module):
        with torch.enable_grad():
            yield
        return
    parameters = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    layers = [layer for layer in module.modules() if isinstance(layer, MessagePassing)]
    attributes = [(dict(vars(layer)), dict(layer._parameters)) for layer in layers]

    def restore() -> None:
        for parameter, requires_grad in parameters:
            parameter.requires_grad_(requires_grad)
        for layer, (values, registered) in zip(layers, attributes, strict=True):
            vars(layer).clear()
            vars(layer).update(values)
            layer._parameters.clear()
            layer._parameters.update(registered)

    with taking_back(restore):
        for parameter, _ in parameters:
            parameter.requires_grad_(False)
        with torch.enable_grad():
            yield
