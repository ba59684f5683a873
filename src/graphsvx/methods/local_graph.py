"""The receptive field as a graph for the baselines, and building of their explanations.

Methods that differentiate, fit or sample work on the receptive field as a separate graph, so
their cost does not depend on the size of the full graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.core import arrays
from graphsvx.core.arrays import Ids
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Kind, Query
from graphsvx.engine.choose import choose_evaluator, evaluate
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import UnsupportedError
from graphsvx.methods.build_explanation import field_record, no_edges
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
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

    def outputs(self, x: Tensor | None = None) -> Tensor:
        """The model's raw output for every node of this graph (or for the graph)."""
        return self.query.model(
            self.x if x is None else x,
            self.edge_index,
            self.edge_weight,
            self.edge_attr,
            self.batch,
            None,
            self.attributes,
        )

    def explained(self, out: Tensor) -> Tensor:
        """Raw outputs of the explained nodes, [centres, outputs], or of the graph, [1, outputs]."""
        return out if self.batch is not None else out[self.centres]

    def scores(self, x: Tensor | None = None) -> Tensor:
        """The explained scores [outputs], float64; differentiable in `x`."""
        return self.query.scores(self.explained(self.outputs(x))[None])[0]

    @property
    def others(self) -> Tensor:
        """Positions of the field's nodes other than the explained ones."""
        in_field = np.isin(self.ids, self.evaluator.field.ids[: self.evaluator.field.size])
        in_field[self.centres.cpu().numpy()] = False
        return torch.from_numpy(np.flatnonzero(in_field))

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
        ids, edges = np.arange(graph.num_nodes), np.arange(graph.num_edges)
        x, edge_index = graph.x, graph.edge_index
    else:
        ids, edges = np.sort(evaluator.field.ids), np.sort(evaluator.field.edges)
        ends = graph.edge_index[:, arrays.as_tensor(edges, device)].cpu().numpy()
        x = graph.x.index_select(0, arrays.as_tensor(ids, device))
        edge_index = arrays.as_tensor(np.searchsorted(ids, ends), device)
    columns = arrays.as_tensor(edges, device)
    return LocalGraph(
        query=query,
        evaluator=evaluator,
        ids=ids,
        edges=edges,
        x=x.detach(),
        edge_index=edge_index,
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[columns],
        edge_attr=None if graph.edge_attr is None else graph.edge_attr[columns],
        batch=torch.zeros(len(ids), dtype=torch.long, device=device)
        if query.kind == "graph"
        else None,
        centres=arrays.as_tensor(np.searchsorted(ids, query.centres), device),
        attributes=graph.attributes_at(arrays.as_tensor(ids, device), columns),
    )


def perturbed_scores(query: Query, evaluator: Evaluator, perturbations: Perturbations) -> Tensor:
    """Scores of perturbed graphs, [graphs, outputs], by the query's evaluator."""
    return query.scores(evaluate(evaluator, perturbations)).cpu()


# --- checks and context managers of the baselines ---------------------------------------


def refuse_unless(query: Query, method: object, *kinds: Kind) -> None:
    """Raise an UnsupportedError if the method does not explain this kind of query."""
    if query.kind not in kinds:
        names = {
            "node": "a node",
            "nodes": "a group of nodes",
            "graph": "a graph",
            "edge": "an edge",
        }
        supported = " or ".join(names[kind] for kind in kinds)
        raise UnsupportedError(
            f"{type(method).__name__} explains {supported}, got a question about "
            f"{names.get(query.kind, query.kind)}; choose another method"
        )


def message_passing_module(query: Query, method: object) -> nn.Module:
    """The model if it has PyG layers that take an edge mask; otherwise `UnsupportedError`."""
    module = query.model.call
    if query.graph.form.edge_sets:
        raise UnsupportedError(
            f"{type(method).__name__} weighs the messages along one edge_index, got a model of "
            f"{', '.join(names[0] for names in query.graph.form.edge_sets)}; use GraphSVX or Greedy"
        )
    if not isinstance(module, nn.Module) or not any(
        isinstance(layer, MessagePassing) and layer.explain is not False
        for layer in module.modules()
    ):
        raise UnsupportedError(
            f"{type(method).__name__} weighs messages, so it needs a torch module with PyG "
            f"MessagePassing layers, got {type(module).__name__} without any; use GraphSVX, "
            f"Greedy or PGMExplainer, which only call the model"
        )
    return module


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


# --- building the explanation ---------------------------------------------------------


def no_credit(outputs: int) -> Credit:
    """Empty credit, for a kind of players that a method does not explain."""
    return Credit.none(outputs)


def game_report(name: str, players: int, calls: int, mask: str, **details: Any) -> GameReport:
    """A baseline's entry in the certificate; R² is None without a surrogate."""
    return GameReport(
        name=name,
        players=players,
        exact=details.get("exact", False),
        budget=details.get("budget", calls),
        calls=calls,
        coalitions=details.get("coalitions", calls),
        r2=details.get("r2"),
        mask=mask,
        exact_if_shortcuts_hold=details.get("exact_if_shortcuts_hold", False),
        replayed=details.get("replayed", 0),
    )


def build_explanation(
    query: Query,
    evaluator: Evaluator,
    method: object,
    seed: int,
    *,
    outputs: tuple[int, ...],
    target: int,
    predictions: Tensor,
    meaning: str,
    games: tuple[GameReport, ...],
    bases: Tensor | None = None,
    nodes: Credit | None = None,
    features: Credit | None = None,
    edges: Credit | None = None,
    kind: Kind | None = None,
) -> Explanation:
    """Build the explanation, with the residual prediction - base - total in its certificate.

    `predictions` are the scores of all outputs. Without `bases` the base value is 0; the residual
    is 0 only for methods that satisfy the efficiency axiom.
    """
    count = len(outputs)
    explained = predictions.detach().double().cpu()[list(outputs)]
    bases = torch.zeros(count, dtype=torch.float64) if bases is None else bases.double().cpu()
    parts = [
        no_credit(count) if nodes is None else nodes,
        no_credit(count) if features is None else features,
        no_edges(count) if edges is None else edges,
    ]
    total = sum((part.values.sum(1) for part in parts), torch.zeros(count, dtype=torch.float64))
    return Explanation(
        kind=kind or query.kind,
        centres=tuple(query.centres.tolist()),
        outputs=outputs,
        target=target,
        bases=bases,
        predictions=explained,
        node_credit=parts[0],
        feature_credit=parts[1],
        edge_credit=parts[2],
        certificate=Certificate(
            games=games,
            residual=float((explained - bases - total)[outputs.index(target)]),
            seed=seed,
            depth=evaluator.depth,
            checks=evaluator.checks.passed,
            fallback=evaluator.checks.fallback,
        ),
        field=field_record(query, evaluator),
        method=repr(method),
        meaning=meaning,
        scale=query.model.scale,
        class_names=query.class_names,
    )
