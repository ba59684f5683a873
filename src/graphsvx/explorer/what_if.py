"""What if: the model's own output for a graph with nodes, edges or features changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core import field as fields
from graphsvx.core.graph import Graph
from graphsvx.core.modules import evaluation_mode
from graphsvx.core.query import Query, build_query
from graphsvx.engine.checks import unperturbed
from graphsvx.engine.evaluator import Plain
from graphsvx.engine.reading import with_reading
from graphsvx.errors import InputError
from graphsvx.explorer.questions import Changes, Question

if TYPE_CHECKING:
    from graphsvx.explorer.workspace import Workspace


def scores_after(workspace: Workspace, question: Question, changes: Changes) -> Tensor:
    """Scores of all outputs [outputs], by one call of the model on the changed graph."""
    copy = workspace.model_copy(question.model)
    query = query_of(workspace, question, copy.module)
    edges = remaining_edges(query.graph, changes)
    with copy.ready():
        graph = changed(query.graph, query.centres.tolist(), changes)
        out = _called(replace(query, graph=graph), edges)
        return query.scores(out)[0]


def _called(query: Query, edges: Any) -> Tensor:
    """Outputs at the centres, [1, centres, outputs], with these edges only."""
    graph = query.graph
    field = (
        fields.whole_graph(graph)
        if query.kind == "graph"
        else fields.undirected_neighbourhood(graph, query.centres, None, everyone=True)
    )
    cut = np.ones((1, graph.num_edges), dtype=bool)
    cut[0, edges] = False
    full = unperturbed(query, field)
    return Plain(query, field).evaluate(field, replace(full, removed_edges=cut[:, field.edges]))


def query_of(workspace: Workspace, question: Question, model: Any) -> Query:
    """The library's query for a question; model and graph are checked the first time only.

    Checking takes the lock that explanations hold, and a prediction must not wait for them.
    """
    of_graph = question.kind == "graph"
    # The two types of a typed link choose its decoder.
    is_typed_link = workspace.typed and question.kind == "link"
    nodes = question.which if of_graph or is_typed_link else ()
    key = (question.model, question.kind, nodes, question.relation)
    cached = workspace.queries.get(key)
    if cached is None:
        query = build_query(
            model,
            workspace.data_of(question.kind, question.which),
            **workspace.asked(question),
            output=workspace.output,
            scale=workspace.asked_scale,
        )
        with evaluation_mode(query.model.submodules):
            query = with_reading(query)
        cached = workspace.queries[key] = query
    if of_graph:
        return cached
    return replace(cached, centres=np.asarray(question.which, dtype=np.int64))


def remaining_edges(graph: Graph, changes: Changes) -> Any:
    """Positions of the edges that are left."""
    source, target = graph.edge_index.cpu().numpy()
    keeps = np.ones(graph.num_edges, dtype=bool)
    if changes.nodes_off:
        off = np.zeros(graph.num_nodes, dtype=bool)
        off[list(changes.nodes_off)] = True
        keeps &= ~(off[source] | off[target])
    for u, v in changes.edges_off:
        keeps &= ~((source == u) & (target == v)) & ~((source == v) & (target == u))
    return np.flatnonzero(keeps)


def changed(graph: Graph, centres: list[int], changes: Changes) -> Graph:
    """The graph with its features after the changes."""
    if not (changes.features_off or changes.values):
        return graph
    types = graph.types
    features = {name: x.clone() for name, x in types.features.items()}
    owner = {
        column: name
        for name, block in types.blocks.items()
        for column in range(block.start, block.stop)
    }
    for column in changes.features_off:
        name = owner[column]
        at, x = types.type_id(name), features[name]
        first = int(types.node_starts[at])
        mine = [node - first for node in centres if types.node_type[node] == at]
        if centres and not mine:
            raise InputError(f"feature {column} is one of {name!r}, not of the explained node")
        rows = torch.tensor(mine or range(len(x)), dtype=torch.long, device=x.device)
        x[rows, column - types.blocks[name].start] = graph.statistics.mean[column].to(x)
    for node, column, value in changes.values:
        at, name = int(types.node_type[node]), owner[column]
        if types.node_types[at] != name:
            raise InputError(f"feature {column} is one of {name!r}, not of {types.label(node)}")
        features[name][node - int(types.node_starts[at]), column - types.blocks[name].start] = value
    return graph.with_features(features)
