"""Tensors that torch has and hardly anybody means: refused in words, or explained."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.masked import masked_tensor

from graphsvx import GraphSVX, explain
from graphsvx.errors import GraphSVXError, InputError
from graphsvx.estimators import WLS
from tests import typed_worlds
from tests.worlds import random_graph, random_model

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # torch's, of prototypes
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
METHOD = GraphSVX(samples=10, estimator=WLS())
GRAPH, GCN = random_graph(1), random_model("gcn", 1)
NODES, EDGES = GRAPH.num_nodes, GRAPH.num_edges


class OwnTensor(Tensor):
    pass


def _inference(values: Tensor) -> Tensor:
    with torch.inference_mode():
        return values.clone()


def _nested(values: Tensor, layout: torch.layout) -> Tensor:
    row = values.reshape(len(values), -1)[0]
    return torch.nested.nested_tensor([row, row[:1]], layout=layout)


# What becomes of a table of floating numbers.
TENSORS: dict[str, Callable[[Tensor], Any]] = {
    "meta": lambda v: v.to("meta"),
    "nested": lambda v: _nested(v, torch.strided),
    "jagged": lambda v: _nested(v, torch.jagged),
    "quantized": lambda v: torch.quantize_per_tensor(v.float(), 0.1, 0, torch.qint8),
    "quantized by channel": lambda v: torch.quantize_per_channel(
        v.float(), torch.ones(len(v)), torch.zeros(len(v)), 0, torch.qint8),
    "masked": lambda v: masked_tensor(v.clone(), torch.ones_like(v, dtype=torch.bool)),
    "fake": lambda v: FakeTensorMode().from_tensor(v),
    "uninitialized": lambda v: nn.UninitializedParameter(),
    "sparse": lambda v: v.to_sparse(),
    "compressed": lambda v: v.to_sparse_csr() if v.dim() == 2 else v.to_sparse(),
    "compressed columns": lambda v: v.to_sparse_csc() if v.dim() == 2 else v.to_sparse(),
    "mkldnn": lambda v: v.float().to_mkldnn(),
    "complex": lambda v: v.to(torch.complex64),
    "conjugate": lambda v: torch.complex(v, v).conj(),
    "negative bit": lambda v: torch.complex(v, v).conj().imag,
    "float8": lambda v: v.to(torch.float8_e4m3fn),
    "float16": lambda v: v.half(),
    "bfloat16": lambda v: v.bfloat16(),
    # Where torch can index them: 2.8 cannot, 2.13 can.
    "uint16": lambda v: v.abs().to(torch.uint16)[torch.arange(len(v))],
    "int8": lambda v: v.to(torch.int8),
    "long": lambda v: v.long(),
    "bool": lambda v: v > 0,
    "empty": lambda v: v[:0],
    "one row": lambda v: v[:1],
    "one more row": lambda v: torch.cat([v, v[:1]]),
    "160 GB of one number": lambda v: v.reshape(-1)[:1].expand((*v.shape[:-1], 10**11 // len(v))),
    "one row for all": lambda v: v[:1].expand(v.shape),
    "with gradients": lambda v: v.clone().requires_grad_(),
    "a parameter": lambda v: nn.Parameter(v.clone()),
    "of inference mode": _inference,
    "of an own class": lambda v: v.clone().as_subclass(OwnTensor),
    "NaN": lambda v: torch.full_like(v, math.nan),
    "infinite": lambda v: torch.full_like(v, math.inf),
    "huge numbers": lambda v: torch.full_like(v, 1e300),
    "three dimensions": lambda v: v[None],
    "a number": lambda v: v.sum(),
    "transposed": lambda v: v.t() if v.dim() == 2 else v,
    "steps of two": lambda v: torch.repeat_interleave(v, 2, 0)[::2],
    "numpy": lambda v: v.numpy(),
    "numpy of objects": lambda v: v.numpy().astype(object),
    "numpy in another order": lambda v: v.numpy().astype(">f8"),
    "masked numpy": lambda v: np.ma.masked_array(v.numpy()),
    "a list": lambda v: v.tolist(),
    "text": lambda v: "x",
    "bytes": lambda v: b"x",
    "nothing": lambda v: None,
    "an object": lambda v: object(),
    "a module": lambda v: nn.Linear(2, 2),
    "a class": lambda v: Tensor,
    "a dictionary": lambda v: {"a": v},
    "a tuple": lambda v: (v, v),
    "an iterator": iter,
}  # fmt: skip


class Takes(nn.Module):
    """Takes a further attribute, and has a tensor that is no parameter."""

    def __init__(self, own: Any = None) -> None:
        super().__init__()
        self.net, self.own = random_model("gcn", 1), own

    def forward(self, x: Tensor, edge_index: Tensor, extra: Any = None) -> Tensor:
        out: Tensor = self.net(x, edge_index)
        return out


def _with(name: str, value: Any, **others: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"x": GRAPH.x, "edge_index": GRAPH.edge_index, **others, name: value})


def _typed(name: str, value: Any) -> Any:
    data = typed_worlds.typed_graph(3)
    data["paper"][name] = value
    return data


TYPED_MODEL = typed_worlds.hetero_model("sage", typed_worlds.typed_graph(3), 3)
PAPERS = typed_worlds.typed_graph(3)["paper"].x
ONES = torch.ones(EDGES, dtype=torch.float64)

# Where the tensor is: a table that it is made of, and the question.
PLACES: dict[str, tuple[Tensor, Callable[[Any], Any]]] = {
    "x": (GRAPH.x, lambda v: explain(GCN, _with("x", v), node=1, method=METHOD)),
    "edge_index": (
        GRAPH.edge_index.double(),
        lambda v: explain(GCN, _with("edge_index", v), node=1, method=METHOD)),
    "edge_weight": (
        ONES, lambda v: explain(random_model("graphconv", 1), _with("edge_weight", v), node=1,
                                method=METHOD)),
    "edge_attr": (
        ONES[:, None], lambda v: explain(GCN, _with("edge_attr", v), node=1, method=METHOD)),
    "an attribute of nodes": (
        torch.ones(NODES, 2), lambda v: explain(Takes(), _with("extra", v), node=1, method=METHOD)),
    "an attribute of edges": (
        torch.ones(EDGES, 2), lambda v: explain(Takes(), _with("extra", v), node=1, method=METHOD)),
    "labels": (torch.ones(NODES), lambda v: explain(GCN, _with("y", v), node=1, method=METHOD)),
    "adj_t": (
        torch.eye(NODES),
        lambda v: explain(GCN, SimpleNamespace(x=GRAPH.x, adj_t=v), node=1, method=METHOD)),
    "a typed graph": (
        PAPERS, lambda v: explain(TYPED_MODEL, _typed("x", v), node=("paper", 1), method=METHOD)),
    "the output": (
        torch.ones(NODES, 3),
        lambda v: explain(lambda x, edge_index: v, GRAPH, node=1, method=METHOD)),
    "the output of a decoder": (
        torch.ones(1), lambda v: explain(GCN, GRAPH, edge=(1, 2), decoder=lambda a, b: v,
                                         method=METHOD)),
    "an attribute of the model": (
        torch.ones(NODES, 3), lambda v: explain(Takes(v), GRAPH, node=1, method=METHOD)),
    "nodes": (torch.ones(NODES), lambda v: explain(GCN, GRAPH, nodes=v, method=METHOD)),
}  # fmt: skip


def _made(kind: str, table: Tensor) -> Any:
    """The odd tensor; the table itself where torch cannot make it of this one."""
    try:
        return TENSORS[kind](table)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return table


# Every kind and every place; all pairs of them are thorough.
CASES = [
    pytest.param(
        kind, place, marks=() if (row + column) % len(PLACES) in (0, 5) else pytest.mark.thorough
    )
    for row, kind in enumerate(TENSORS)
    for column, place in enumerate(PLACES)
]


@pytest.mark.parametrize(("kind", "place"), CASES)
def test_no_tensor_ends_in_an_error_of_torch(kind: str, place: str) -> None:
    table, ask = PLACES[place]
    try:
        explanation = ask(_made(kind, table))
    except GraphSVXError as error:
        assert len(str(error)) > 20  # noqa: PT017  (any of our errors will do)
    else:
        assert math.isfinite(explanation.prediction)


@pytest.mark.parametrize("kind", ["meta", "nested", "quantized", "masked", "160 GB of one number"])
def test_what_is_wrong_with_a_tensor_is_said(kind: str) -> None:
    with pytest.raises(InputError, match=r"data.x must be a plain tensor of numbers, got"):
        explain(GCN, _with("x", TENSORS[kind](GRAPH.x)), node=1)


class ChangesGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = random_model("gcn", 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        torch.set_grad_enabled(True)
        out: Tensor = self.net(x, edge_index)
        return out


@pytest.mark.parametrize("question", [{"node": 1}, {"nodes": [1, 2]}, {"edge": (1, 2)}])
def test_a_model_that_enables_gradients_is_explained_like_another(question) -> None:
    with torch.no_grad():
        odd = explain(ChangesGradients(), GRAPH, method=METHOD, **question)
        assert not torch.is_grad_enabled()
    plain = explain(GCN, GRAPH, method=METHOD, **question)
    assert torch.allclose(odd.node_credit.values, plain.node_credit.values, atol=1e-9)
