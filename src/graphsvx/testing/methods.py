"""Laws of methods: explainers that answer a question."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx.api import explain
from graphsvx.errors import UnsupportedError
from graphsvx.methods.baseline import Method
from graphsvx.results.explanation import Explanation
from graphsvx.testing.laws import random_graph, random_model, random_state_untouched, require

_QUESTIONS: dict[str, dict[str, Any]] = {
    "node": {"node": 0},
    "nodes": {"nodes": [0, 1]},
    "graph": {"graph": True},
}


def check_method(method: Method, *, seed: int = 0) -> None:
    """Check a method on a question about a node, a group of nodes and a whole graph.

    A method may refuse a kind of question by an UnsupportedError, but not all of them.

    Args:
        method: the method with its settings.
        seed: of the random graph and model.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    answered = 0
    for kind, question in _QUESTIONS.items():
        data, model = random_graph(seed, nodes=9), random_model(seed, kind == "graph").float()
        data.x = data.x.float()
        before, x = _snapshot(model), data.x.clone()
        edge_index = data.edge_index.clone()
        with random_state_untouched(method):
            try:
                explanation = explain(model, data, method=method, seed=1, **question)
            except UnsupportedError:
                continue
        answered += 1
        case = f"(question about a {kind})"
        require(
            _snapshot(model) == before,
            method,
            f"the model is left as it was: weights, gradients, modes {case}",
        )
        same = torch.equal(data.x, x) and torch.equal(data.edge_index, edge_index)
        require(same, method, f"the graph is left as it was {case}")
        _check_record(method, explanation, kind, question, model, data)
        again = explain(model, data, method=method, seed=1, **question)
        require(
            _text(explanation) == _text(again), method, f"the same seed gives the same bits {case}"
        )
        record = explanation.to_dict()
        back = Explanation.from_dict(json.loads(json.dumps(record)))
        require(
            repr(back.to_dict()) == repr(record),
            method,
            f"the record survives JSON without a change {case}",
        )
    require(answered, method, "answers a question about a node, nodes or a graph")


def _text(explanation: Explanation) -> str:
    return json.dumps(explanation.to_dict(), sort_keys=True)


def _snapshot(model: torch.nn.Module) -> list[Any]:
    """Everything of a model that an explainer might leave changed."""

    def bits(tensor: Tensor | None) -> bytes | None:
        return None if tensor is None else tensor.detach().numpy().tobytes()

    return [
        [
            # PyG itself sets `propagate` when a layer's `explain` is switched.
            sorted(set(vars(module)) - {"propagate"}),
            getattr(module, "explain", None),
            module.training,
            [
                (name, bits(p), p.requires_grad, bits(p.grad))
                for name, p in module.named_parameters(recurse=False)
            ],
            [(name, bits(b)) for name, b in module.named_buffers(recurse=False)],
            bits(getattr(module, "_edge_mask", None)),
            len(module._forward_hooks) + len(module._forward_pre_hooks),
        ]
        for module in model.modules()
    ]


def _check_record(
    method: Method,
    explanation: Explanation,
    kind: str,
    question: dict[str, Any],
    model: torch.nn.Module,
    data: Data,
) -> None:
    case = f"(question about a {kind})"
    require(explanation.kind in (kind, "model"), method, f"the record says what was asked {case}")
    if explanation.kind == "model":
        return
    centres = [] if kind == "graph" else [question["node"]] if kind == "node" else question["nodes"]
    require(list(explanation.centres) == centres, method, f"centres are those asked for {case}")
    with torch.no_grad():
        if kind == "graph":
            scores = model(data.x, data.edge_index, torch.zeros(len(data.x), dtype=torch.long))
        else:
            scores = model(data.x, data.edge_index)[centres]
    prediction = float(scores.softmax(-1).mean(0)[explanation.target])
    require(
        abs(explanation.prediction - prediction) < 1e-5,
        method,
        f"prediction is the model's own {case}",
    )
    features, nodes, edges = explanation.feature_ids, explanation.node_ids, explanation.edge_ids
    for name, ids, values in (
        ("features", features, explanation.feature_values),
        ("nodes", nodes, explanation.node_values),
        ("edges", edges, explanation.edge_values),
    ):
        require(ids.shape[-1] == len(values), method, f"{name} have a value each {case}")
        require(values.isfinite().all(), method, f"the values of {name} are finite {case}")
        columns = ids.t().tolist() if ids.dim() == 2 else ids.tolist()
        distinct = len({str(column) for column in columns}) == len(columns)
        require(distinct or name == "edges", method, f"{name} get credit once {case}")
    columns_there = not len(features) or 0 <= int(features.min()) <= int(features.max()) < 3
    require(columns_there, method, f"credit goes to features that the graph has {case}")
    reach = _ancestors(data, centres) if centres else set(range(len(data.x)))
    players = set(nodes.tolist())
    require(players <= reach, method, f"credit goes to nodes that can reach the explained {case}")
    require(not players & set(centres), method, f"explained nodes get no credit {case}")
    graph_edges = set(map(tuple, data.edge_index.t().tolist()))
    require(
        set(map(tuple, edges.t().tolist())) <= graph_edges,
        method,
        f"credit goes to edges of the graph {case}",
    )


def _ancestors(data: Data, centres: list[int]) -> set[int]:
    """Nodes with a path of any length to an explained node."""
    reached = set(centres)
    while True:
        grown = {u for u, v in data.edge_index.t().tolist() if v in reached} | reached
        if grown == reached:
            return reached
        reached = grown
