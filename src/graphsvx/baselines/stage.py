"""The part of the graph on which a baseline works, and the record that it returns.

Cost follows the receptive field: methods that differentiate, fit or sample see the field of the
question as a small graph of its own, never the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.certificate import Certificate, GameReport
from graphsvx.engine import field as fields
from graphsvx.engine.exclusive import taking_back
from graphsvx.engine.states import States
from graphsvx.engine.survey import Survey, evaluate, survey
from graphsvx.errors import UnsupportedError
from graphsvx.explanation import Credit, Explanation, Kind
from graphsvx.graph import Ids
from graphsvx.methods import neighbourhood, no_edges
from graphsvx.query import Query


@dataclass(frozen=True, eq=False)
class Stage:
    """The field of a query as plain tensors, nodes and edges in the order of the user's graph.

    Where the field is the whole graph, a package that is called with these tensors sees exactly
    what it would see if it were called directly.
    """

    query: Query
    found: Survey
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
    """Where the explained nodes are among `ids`; empty for a graph."""

    def outputs(self, x: Tensor | None = None) -> Tensor:
        """The model's raw output for every node of the stage (or for the graph)."""
        return self.query.model(
            self.x if x is None else x,
            self.edge_index,
            self.edge_weight,
            self.edge_attr,
            self.batch,
        )

    def explained(self, out: Tensor) -> Tensor:
        """Raw outputs of the explained nodes, [centres, outputs], or of the graph, [1, outputs]."""
        return out if self.batch is not None else out[self.centres]

    def scores(self, x: Tensor | None = None) -> Tensor:
        """The explained scores [outputs], float64; differentiable in `x`."""
        return self.query.read(self.explained(self.outputs(x))[None])[0]

    @property
    def others(self) -> Tensor:
        """Positions of the nodes that are not explained themselves, rim left out."""
        inside = np.isin(self.ids, self.found.field.ids[: self.found.field.size])
        inside[self.centres.cpu().numpy()] = False
        return torch.from_numpy(np.flatnonzero(inside))

    @property
    def inner(self) -> Tensor:
        """Positions of the edges between nodes of the field: those that get credit."""
        return torch.from_numpy(
            np.flatnonzero(np.isin(self.edges, self.found.field.edges[self.found.field.inner]))
        )

    def edge_ids(self) -> Tensor:
        """Ends of the inner edges, [2, players], by the user's node ids."""
        ends = self.edge_index[:, self.inner.to(self.edge_index.device)].cpu()
        return torch.from_numpy(self.ids)[ends]


def prepare(query: Query, seed: int) -> Stage:
    """Survey the query and cut its stage out; the whole graph where the field is not enough."""
    found = survey(query, None, seed)
    graph, device = query.graph, query.graph.x.device
    if not found.local:
        ids, edges = np.arange(graph.num_nodes), np.arange(graph.num_edges)
        x, edge_index = graph.x, graph.edge_index
    else:
        ids, edges = np.sort(found.field.ids), np.sort(found.field.edges)
        ends = graph.edge_index[:, fields.tensor(edges, device)].cpu().numpy()
        x = graph.x.index_select(0, fields.tensor(ids, device))
        edge_index = fields.tensor(np.searchsorted(ids, ends), device)
    where = fields.tensor(edges, device)
    return Stage(
        query=query,
        found=found,
        ids=ids,
        edges=edges,
        x=x.detach(),
        edge_index=edge_index,
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[where],
        edge_attr=None if graph.edge_attr is None else graph.edge_attr[where],
        batch=torch.zeros(len(ids), dtype=torch.long, device=device)
        if query.kind == "graph"
        else None,
        centres=fields.tensor(np.searchsorted(ids, query.centres), device),
    )


def play(query: Query, found: Survey, states: States) -> Tensor:
    """Scores [states, outputs] of perturbed graphs, in as few calls as the survey allows."""
    return query.read(evaluate(query, found, states)).cpu()


# --- habits ---------------------------------------------------------------------------


def refuse_unless(query: Query, method: object, *kinds: Kind) -> None:
    """Say what a method cannot do, before any work starts."""
    if query.kind not in kinds:
        known = {
            "node": "a node",
            "nodes": "a group of nodes",
            "graph": "a graph",
            "edge": "an edge",
        }
        can = " or ".join(known[kind] for kind in kinds)
        raise UnsupportedError(
            f"{type(method).__name__} explains {can}, got a question about "
            f"{known.get(query.kind, query.kind)}; choose another method"
        )


def layers_with_edges(query: Query, method: object) -> nn.Module:
    """The model as a module whose messages can be weighed edge by edge, or an error."""
    module = query.model.call
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


_MASK_ATTRIBUTES = ("_edge_mask", "_loop_mask", "_apply_sigmoid", "explain")


@contextmanager
def borrowed(module: object) -> Iterator[None]:
    """Gradients on, the model's parameters out of them, and its layers as found afterwards.

    PyG's algorithms leave a `_edge_mask` entry in each layer and gradients on the parameters.
    """
    if not isinstance(module, nn.Module):
        with torch.enable_grad():
            yield
        return
    parameters = [(one, one.requires_grad) for one in module.parameters()]
    layers = [layer for layer in module.modules() if isinstance(layer, MessagePassing)]
    found = [{name: getattr(layer, name) for name in _MASK_ATTRIBUTES} for layer in layers]
    registered = ["_edge_mask" in layer._parameters for layer in layers]

    def restore() -> None:
        for one, needed in parameters:
            one.requires_grad_(needed)
        for layer, before, was in zip(layers, found, registered, strict=True):
            if not was:
                layer._parameters.pop("_edge_mask", None)
            for name, value in before.items():
                setattr(layer, name, value)

    with taking_back(restore):
        for one, _ in parameters:
            one.requires_grad_(False)
        with torch.enable_grad():
            yield


# --- the record -----------------------------------------------------------------------


def nobody(outputs: int) -> Credit:
    """Credit of a kind of players that a method does not speak of."""
    return Credit.none(outputs)


def report(name: str, players: int, made: int, mask: str, **known: Any) -> GameReport:
    """A baseline's line in the certificate; R² is 0 where there is no surrogate."""
    return GameReport(
        name=name,
        players=players,
        exact=known.get("exact", False),
        asked=known.get("asked", made),
        made=made,
        rows=known.get("rows", made),
        r2=known.get("r2"),
        mask=mask,
    )


def record(
    query: Query,
    found: Survey,
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
    extra: dict[str, Any] | None = None,
    kind: Kind | None = None,
) -> Explanation:
    """The explanation, with an honest residual.

    `predictions` are the scores of all outputs. A method that shares nothing out has base 0, and
    its residual is whatever its values leave: only the Shapley family makes it 0.
    """
    count = len(outputs)
    here = predictions.detach().double().cpu()[list(outputs)]
    bases = torch.zeros(count, dtype=torch.float64) if bases is None else bases.double().cpu()
    parts = [
        nobody(count) if nodes is None else nodes,
        nobody(count) if features is None else features,
        no_edges(count) if edges is None else edges,
    ]
    total = sum((part.values.sum(1) for part in parts), torch.zeros(count, dtype=torch.float64))
    return Explanation(
        kind=kind or query.kind,
        centres=tuple(query.centres.tolist()),
        outputs=outputs,
        target=target,
        bases=bases,
        predictions=here,
        node_credit=parts[0],
        feature_credit=parts[1],
        edge_credit=parts[2],
        certificate=Certificate(
            games=games,
            residual=float((here - bases - total)[outputs.index(target)]),
            seed=seed,
            hops=found.depth,
            checks=found.checks,
            fallback=found.fallback,
        ),
        neighbourhood=neighbourhood(query, found),
        method=repr(method),
        meaning=meaning,
        scale=query.model.scale,
        class_names=query.class_names,
        extra=extra or {},
    )
