"""Kinds of models and data, for runs that must not depend on where they are computed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphsvx import GraphSVX
from graphsvx.runs import arrow_schema
from graphsvx.runs.backends import Job
from tests import typed_worlds as worlds
from tests.runs.helpers import INNER
from tests.worlds import random_graph, random_model


class ReadsAll(nn.Module):
    """A model whose scores depend on every attribute of the data, each of which may be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.net = random_model("gcn", 3)

    def forward(
        self, x: Tensor, edge_index: Tensor, pos: Any = None, w: Any = None, u: Any = None,
        charges: Any = None, threshold: Any = None, half: Any = None,
    ) -> Tensor:  # fmt: skip
        out = self.net(x, edge_index)
        for values in (pos, w, u, charges, threshold, half):
            if values is not None:
                out = out * (1 + torch.as_tensor(values).double().sum().tanh())
        return out


def whole(x: Tensor, edge_index: Tensor, u: Any = None) -> Tensor:
    """One row for the graph."""
    out = x.mean(0, keepdim=True) + x[edge_index].prod(0).sum(0, keepdim=True)
    return out if u is None else out * (1 + u.mean())


def attributed(seed: int = 5) -> Data:
    data = random_graph(seed)
    data.pos, data.w, data.u = torch.rand(9, 2), torch.rand(data.num_edges), torch.rand(1, 4)
    data.charges, data.threshold = np.arange(9.0), 0.5
    data.half = torch.rand(9, 2).bfloat16().t()
    return data


def _over_net() -> Any:
    net = ReadsAll()
    return lambda x, edge_index, pos: net(x, edge_index, pos).tanh()


def _typed(kind: str) -> tuple[Any, Any]:
    if kind == "hetero":
        typed: Any = worlds.typed_graph(3)
        return worlds.hetero_model("sage", typed, 3), typed
    typed = worlds.relational_graph(3, nodes=6)
    typed.node_names = [f"node {i}" for i in range(6)]
    return worlds.relational_model("rgcn", 3), typed


def _in_float(data: Data) -> Data:
    data.x = data.x.float()
    return data


# Model and data, and the fields of the job.
INPUTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "attributes": lambda: (ReadsAll(), attributed()),
    "namespace": lambda: (ReadsAll(), SimpleNamespace(**attributed().to_dict())),
    "graphs": lambda: (whole, [attributed(1), attributed(2)], {"kind": "graph"}),
    "lambda": lambda: (_over_net(), attributed()),
    "autocast": lambda: (random_model("gcn", 3).float(), _in_float(attributed())),
    "links": lambda: (ReadsAll(), attributed(), {"kind": "edge", "members": ((0, 1), (1, 2))}),
    "hetero": lambda: (*_typed("hetero"), {"node_type": "paper"}),
    "relations": lambda: _typed("relations"),
}


def inputs(kind: str) -> Job:
    """A job with one kind of model and data."""
    model, data, *more = INPUTS[kind]()
    method = GraphSVX(players="nodes", samples=20) if kind in ("hetero", "relations") else INNER
    fields = {"kind": "node", **(more[0] if more else {})}
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        return Job(model, data, options={"method": method, "seed": 3}, **fields)


def rows(job: Job, backend: Any) -> Any:
    """The answers to two chunks, as one table."""
    chunks = iter([(0,), (1,)])
    return arrow_schema.merged(
        [answer.rows for answer in backend.answers(job, lambda: next(chunks, None))]
    )
