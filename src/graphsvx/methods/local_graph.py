"""The receptive field as a separate graph, for methods that differentiate, fit or sample.

Their cost then does not depend on the size of the full graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.core import arrays
from graphsvx.core.arrays import Ids
from graphsvx.core.field import Field
from graphsvx.core.query import Query
from graphsvx.engine.checks import unperturbed
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import Evaluator, Plain
from graphsvx.methods.baseline import Prediction
from graphsvx.utils.exclusive import taking_back


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
    edge_weight: Tensor | None
    edge_attr: Tensor | None
    batch: Tensor | None
    centres: Tensor
    """Positions of the explained nodes in `ids`; empty for a graph query."""
    attributes: Mapping[str, Any]
    """Further attributes that the model takes."""

    def outputs(
        self,
        x: Tensor | None = None,
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """The model's raw output for every node (for the graph, or for the explained pair)."""
        return self.query.model(
            self.x if x is None else x,
            self.edge_index if edge_index is None else edge_index,
            self.edge_weight,
            self.edge_attr if edge_attr is None else edge_attr,
            self.batch,
            self.centres[:, None] if self.query.model.scores_pairs else None,
            self.attributes,
        )

    def explained(self, out: Tensor) -> Tensor:
        """Raw outputs of the explained nodes, [centres, outputs], or of the graph, [1, outputs]."""
        one_row = self.batch is not None or self.query.model.scores_pairs
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
        return torch.from_numpy(
            np.flatnonzero(
                np.isin(self.edges, self.evaluator.field.edges[self.evaluator.field.inner_edges])
            )
        )

    def edge_ids(self) -> Tensor:
        """Ends of the inner edges, [2, players], by the user's node ids."""
        ends = self.edge_index[:, self.inner_edges.to(self.edge_index.device)].cpu()
        return torch.from_numpy(self.ids)[ends]


def local_graph_of(query: Query, seed: int) -> LocalGraph:
    """The receptive field of a query as a graph, or the full graph if the model is not local."""
    evaluator = choose_evaluator(query, None, seed)
    graph, device = query.graph, query.graph.x.device
    if not evaluator.local:
        return whole_graph_of(query, evaluator)
    ids, edges = np.sort(evaluator.field.ids), np.sort(evaluator.field.edges)
    nodes, columns = arrays.as_tensor(ids, device), arrays.as_tensor(edges, device)
    ends = graph.edge_index[:, columns].cpu().numpy()
    return replace(
        whole_graph_of(query, evaluator),
        ids=ids,
        edges=edges,
        x=graph.x.index_select(0, nodes).detach(),
        edge_index=arrays.as_tensor(np.searchsorted(ids, ends), device),
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[columns],
        edge_attr=None if graph.edge_attr is None else graph.edge_attr[columns],
        batch=torch.zeros_like(nodes) if query.kind == "graph" else None,
        centres=arrays.as_tensor(np.searchsorted(ids, query.centres), device),
        attributes=graph.attributes_at(nodes, columns),
    )


def whole_graph_of(query: Query, evaluator: Evaluator) -> LocalGraph:
    """The full graph of a query."""
    graph, device = query.graph, query.graph.x.device
    batch = torch.zeros(graph.num_nodes, dtype=torch.long, device=device)
    return LocalGraph(
        query=query,
        evaluator=evaluator,
        ids=np.arange(graph.num_nodes),
        edges=np.arange(graph.num_edges),
        x=graph.x.detach(),
        edge_index=graph.edge_index,
        edge_weight=graph.edge_weight,
        edge_attr=graph.edge_attr,
        batch=batch if query.kind == "graph" else None,
        centres=arrays.as_tensor(query.centres, device),
        attributes=graph.attributes_at(None, None),
    )


def unperturbed_prediction(query: Query, seed: int) -> Prediction:
    """The prediction, for methods that do not perturb the graph."""
    if not query.graph.has_types:
        return local_graph_of(query, seed).prediction()
    evaluator = choose_evaluator(query, None, seed)
    return Prediction.of(query, evaluator, typed_scores(query, evaluator.field))


def typed_scores(query: Query, field: Field) -> Tensor:
    """Scores [outputs] of the unperturbed graph by a plain call."""
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
