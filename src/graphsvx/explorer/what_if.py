"""What if: the model's own output for a graph with nodes, edges or features changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.graph import Graph
from graphsvx.core.query import Query, build_query
from graphsvx.explorer.questions import Changes, Question
from graphsvx.explorer.workspace import Workspace


def scores_after(workspace: Workspace, question: Question, changes: Changes) -> Tensor:
    """Scores of all outputs [outputs], by one call of the model on the changed graph."""
    copy = workspace.model_copy(question.model)
    query = query_of(workspace, question, copy.module)
    x, edge_index, weight, attr = changed_graph(query.graph, query.centres.tolist(), changes)
    centres = torch.from_numpy(query.centres).to(x.device)
    batch = pairs = None
    if query.kind == "graph":
        batch = torch.zeros(len(x), dtype=torch.long, device=x.device)
    elif query.model.scores_pairs:
        pairs = centres[:, None]
    with copy.ready():
        out = query.model(x, edge_index, weight, attr, batch, pairs)
        if batch is None and pairs is None:
            out = out[centres]
        return query.scores(out[None])[0]


def query_of(workspace: Workspace, question: Question, model: Any) -> Query:
    """The library's query for a question; model and graph are checked the first time only.

    Checking takes the lock that explanations hold, and a prediction must not wait for them.
    """
    key = (question.model, question.kind, question.which if question.kind == "graph" else ())
    cached = workspace.queries.get(key)
    if cached is None:
        ids = question.which
        cached = workspace.queries[key] = build_query(
            model,
            workspace.data_of(question.kind, ids),
            node=ids[0] if question.kind == "node" else None,
            graph=question.kind == "graph",
            edge=(ids[0], ids[1]) if question.kind == "link" else None,
            decoder=workspace.decoder if question.kind == "link" else None,
            output=workspace.output,
            scale=workspace.scale,
        )
    if question.kind == "graph":
        return cached
    return replace(cached, centres=np.asarray(question.which, dtype=np.int64))


def changed_graph(
    graph: Graph, centres: list[int], changes: Changes
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Features, edges, edge weights and edge attributes after the changes."""
    x, edge_index = graph.x, graph.edge_index
    if changes.features_off or changes.values:
        x = x.clone()
        columns = torch.tensor(changes.features_off, dtype=torch.long, device=x.device)
        rows = torch.tensor(centres or range(len(x)), dtype=torch.long, device=x.device)
        x[rows[:, None], columns] = graph.statistics.mean.to(x)[columns]
        for node, column, value in changes.values:
            x[node, column] = value
    removed = torch.zeros(graph.num_edges, dtype=torch.bool, device=x.device)
    if changes.nodes_off:
        off = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        off[list(changes.nodes_off)] = True
        removed |= off[edge_index[0]] | off[edge_index[1]]
    for u, v in changes.edges_off:
        removed |= (edge_index[0] == u) & (edge_index[1] == v)
        removed |= (edge_index[0] == v) & (edge_index[1] == u)
    if not bool(removed.any()):
        return x, edge_index, graph.edge_weight, graph.edge_attr
    keep = ~removed
    return (
        x,
        edge_index[:, keep],
        None if graph.edge_weight is None else graph.edge_weight[keep],
        None if graph.edge_attr is None else graph.edge_attr[keep],
    )
