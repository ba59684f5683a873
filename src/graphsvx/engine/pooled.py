"""A graph model in two parts: layers that give each node an embedding, and a pooled head.

A model of known structure (`engine.structure`) computes with nodes up to its poolings and with
graphs after them. `PooledModel` runs either part by itself: it calls the model with its poolings
replaced, so that no model has to be written in a special way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.pool import glob

from graphsvx.core.graph import Graph
from graphsvx.core.model import Model
from graphsvx.engine.structure import aggregates_locally
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back

Reduction = Literal["sum", "mean", "max", "min"]

_REDUCTIONS: dict[Any, Reduction] = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
    "sum": "sum",
    "add": "sum",
    "mean": "mean",
    "max": "max",
    "min": "min",
}


@dataclass(frozen=True, eq=False)
class Pooling:
    """One pooling of a model: a function of node embeddings and the graph of each node."""

    reduction: Reduction | None
    """The reduction, if it can be computed from parts of a graph; None: it needs all nodes."""
    call: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class PooledModel:
    """A model of known structure with `batch`, as an encoder of nodes and a head on graphs."""

    model: Model
    graph: Graph

    def embed(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None
    ) -> tuple[list[Tensor], list[Pooling]]:
        """Inputs [nodes, width] of the model's poolings, and the poolings."""
        embeddings: list[Tensor] = []
        poolings: list[Pooling] = []

        def record(pooling: Pooling, nodes: Tensor, batch: Tensor) -> Tensor:
            embeddings.append(nodes.detach())
            poolings.append(pooling)
            return pooling.call(nodes[:1], batch[:1])  # what the head makes of it is not used

        self._call(record, x, edge_index, edge_weight, edge_attr)
        if not embeddings:
            raise ModelError("the model has no pooling over the nodes of a graph")
        return embeddings, poolings

    def head(self, pooled: list[Tensor]) -> Tensor:
        """Raw outputs, [graphs, outputs], of what the poolings gave, [graphs, width] each."""
        results = iter(pooled)

        def replace(pooling: Pooling, nodes: Tensor, batch: Tensor) -> Tensor:  # noqa: ARG001  (a pooling's arguments)
            return next(results)

        graph, none = self.graph, slice(0, 0)
        out = self._call(
            replace,
            graph.x[:1],
            graph.edge_index[:, none],
            None if graph.edge_weight is None else graph.edge_weight[none],
            None if graph.edge_attr is None else graph.edge_attr[none],
        )
        out = out[:, None] if out.dim() == 1 else out
        if len(out) != len(pooled[0]):
            raise ModelError("the model's head does not give a row for each graph")
        return out

    def _call(
        self,
        handle: Callable[[Pooling, Tensor, Tensor], Tensor],
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        edge_attr: Tensor | None,
    ) -> Tensor:
        inputs = {
            "x": x,
            "edge_index": edge_index,
            "edge_weight": edge_weight,
            "edge_attr": edge_attr,
            "batch": torch.zeros(len(x), dtype=torch.long, device=x.device),
        }
        try:
            with _replaced_poolings(self.model.submodules, handle):
                out = self.model.returned(inputs)
        except (KeyboardInterrupt, MemoryError, ModelError):
            raise
        except Exception as error:
            raise ModelError(f"the model failed: {type(error).__name__}: {error}") from error
        if not isinstance(out, Tensor):
            raise ModelError(f"the model must return one tensor, got {type(out).__name__}")
        return out


@contextmanager
def _replaced_poolings(
    parts: list[nn.Module], handle: Callable[[Pooling, Tensor, Tensor], Tensor]
) -> Iterator[None]:
    """Within it, `handle` gives the result of each pooling over the nodes of a graph."""
    layers = [part for part in parts if isinstance(part, MessagePassing)]
    inside = {id(child) for layer in layers for child in layer.modules()}
    scatter, aggregate = glob.scatter, aggr.Aggregation.__call__
    signature = inspect.signature(scatter)
    nested = False

    def handled(pooling: Pooling, nodes: Tensor, batch: Tensor) -> Tensor:
        nonlocal nested
        if nested:  # an aggregation that consists of others
            return pooling.call(nodes, batch)
        nested = True
        try:
            return handle(pooling, nodes, batch)
        finally:
            nested = False

    def scattered(*args: Any, **kwargs: Any) -> Tensor:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()

        def again(nodes: Tensor, batch: Tensor) -> Tensor:
            return scatter(*signature.bind(**{**call.arguments, "src": nodes, "index": batch}).args)

        pooling = Pooling(_REDUCTIONS.get(call.arguments["reduce"]), again)
        return handled(pooling, call.arguments["src"], call.arguments["index"])

    def aggregated(module: Any, *args: Any, **kwargs: Any) -> Any:
        if id(module) in inside or not aggregates_locally(module):
            return aggregate(module, *args, **kwargs)
        x, index, *rest = args if len(args) > 1 else (*args, kwargs.pop("index"))
        pooling = Pooling(
            _REDUCTIONS.get(type(module)),
            lambda nodes, batch: aggregate(module, nodes, batch, *rest, **kwargs),
        )
        return handled(pooling, x, index)

    def restore() -> None:
        glob.scatter = scatter
        aggr.Aggregation.__call__ = aggregate

    with taking_back(restore):
        glob.scatter = scattered
        aggr.Aggregation.__call__ = aggregated
        yield
