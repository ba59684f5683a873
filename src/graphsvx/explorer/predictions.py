"""The model's own output: of all nodes or graphs as a table, and for a graph that is changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch

from graphsvx.core import field as fields
from graphsvx.core.calling import whole
from graphsvx.core.data import check_graph
from graphsvx.core.graph import Graph
from graphsvx.core.model import call_on, evaluation_mode, rows_of
from graphsvx.core.query import Query, build_query
from graphsvx.engine.evaluator import Plain, unperturbed
from graphsvx.engine.reading import with_reading
from graphsvx.errors import GraphSVXError, InputError, ModelError
from graphsvx.explorer.questions import Changes, Question

if TYPE_CHECKING:
    from graphsvx.explorer.workspace import Workspace

_BATCH = 256
"""Graphs that go through a model together."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """One row per node (or graph): its class, the model's class, and how sure the model is."""

    label: NDArray[np.int64] | None
    """The known class; -1 where it is unknown. None: the data has no classes."""
    predicted: NDArray[np.int64]
    """The model's class; -1 where it has no output; of a link task, which predicts none, the known
    one."""
    score: NDArray[np.float64]
    """The score of the predicted class (its probability on the probability scale)."""
    size: NDArray[np.int64]
    """Edges into the node, or nodes of the graph."""
    ids: NDArray[np.int64]
    """What the rows are: node ids, or positions in the list of graphs."""

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether the model's class differs from the known one."""
        return self.judged & (self.label != self.predicted)

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Whether the model's class and the known one can be compared."""
        if self.label is None:
            return np.zeros(len(self.predicted), dtype=bool)
        return (self.label >= 0) & (self.predicted >= 0)


def predict_all(workspace: Workspace, model: str) -> Predictions:
    """Classes and predictions of every node or graph."""
    if workspace.task == "graph":
        return _table_of_graphs(workspace, model)
    graph = workspace.checked[0]
    size = np.diff(graph.index.start)
    ids = np.arange(graph.num_nodes)
    label = _labels(graph)
    if workspace.task == "link":  # links are predicted, classes of nodes are not
        none = np.zeros(graph.num_nodes, dtype=np.int64)
        classes = none if label is None else np.maximum(label, 0)
        return Predictions(label, classes, none.astype(np.float64), size, ids)
    query = query_of(workspace, Question("node", (0,), model))
    predicted = np.full(graph.num_nodes, -1)
    score = np.zeros(graph.num_nodes)
    with workspace.copies[model].ready():
        for first, scores in _scores(query):
            best, winner = scores.max(-1)
            rows = slice(first, first + len(scores))
            predicted[rows], score[rows] = winner.cpu().numpy(), best.cpu().numpy()
    if (predicted < 0).all():
        raise ModelError("the model must return a row for each node of a type, got other numbers")
    return Predictions(None if workspace.scale == "value" else label, predicted, score, size, ids)


def _scores(query: Query) -> list[tuple[int, Tensor]]:
    """Scores of nodes [nodes, outputs], with the number of the first node."""
    if not query.graph.has_types:
        return [(0, query.model.scores(call_on(query.model, query.graph)))]
    graph = query.graph
    starts = graph.types.node_starts
    out = query.model.run(graph, whole(graph))
    tables = []
    for at, (name, count) in enumerate(zip(graph.types.node_types, np.diff(starts), strict=True)):
        with suppress(ModelError):  # a type without outputs
            if count:
                tables.append((at, rows_of(out, name, int(count))))
    if not isinstance(out, Mapping):
        # Several types may have as many nodes as there are outputs: those with labels are meant.
        with_labels = [table for table in tables if _label_of(graph, table[0]) is not None]
        tables = (with_labels or tables)[:1]
    return [(int(starts[at]), query.model.scores(rows)) for at, rows in tables]


def _labels(graph: Graph) -> NDArray[np.int64] | None:
    """Known classes of the nodes; -1 where there is none."""
    label = np.full(graph.num_nodes, -1)
    for at, first in enumerate(graph.types.node_starts[:-1].tolist()):
        y = _label_of(graph, at)
        if y is not None:
            label[first : first + len(y)] = y.cpu().numpy()
    return label if (label >= 0).any() else None


def _label_of(graph: Graph, at: int) -> Tensor | None:
    y = graph.types.node_values.get("y", {}).get(graph.types.node_types[at])
    return None if y is None or y.dim() != 1 or y.is_floating_point() else y


def _table_of_graphs(workspace: Workspace, model: str) -> Predictions:
    scores = _batched_scores(workspace, model)
    if scores is None:
        scores = torch.stack(
            [
                scores_after(workspace, Question("graph", (i,), model), Changes())
                for i in range(len(workspace.graphs))
            ]
        )
    best, predicted = scores.max(-1)
    size = np.array([graph.num_nodes for graph in workspace.graphs], dtype=np.int64)
    labels = [graph.stores[0].get("y") for graph in workspace.graphs]
    has_classes = workspace.scale != "value" and all(
        torch.is_tensor(y) and y.numel() == 1 and not y.is_floating_point() for y in labels
    )
    label = np.array([int(y) for y in labels], dtype=np.int64) if has_classes else None
    ids = np.arange(len(scores))
    return Predictions(label, predicted.cpu().numpy(), best.cpu().numpy(), size, ids)


def _batched_scores(workspace: Workspace, model: str) -> Tensor | None:
    """Scores of all graphs by a few calls; None where the model does not take batches."""
    query = query_of(workspace, Question("graph", (0,), model))
    if workspace.typed or query.graph.attributes or "batch" not in query.model.takes:
        return None
    parts = []
    try:
        for first in range(0, len(workspace.graphs), _BATCH):
            batch: Any = Batch.from_data_list(list(workspace.graphs[first : first + _BATCH]))
            graph = check_graph(batch)
            with workspace.copies[model].ready():
                out = query.model(
                    graph.x, graph.edge_index, graph.edge_weight, graph.edge_attr, batch.batch
                )
            parts.append(query.model.scores(out))
    except GraphSVXError:  # graphs that cannot be joined: one by one
        return None
    return torch.cat(parts)


def table_of_run(workspace: Workspace) -> Predictions:
    """The explanations of a run, of which the model may not be known."""
    names = ["query", "error", "target", "outputs", "predictions", "prediction", "label"]
    rows = workspace.run.table([*names, "field_ids"]).to_pylist()
    rows = [row for row in rows if row["error"] is None]
    ids = np.array([row["query"] for row in rows], dtype=np.int64) + workspace.run_start
    labels = [-1 if row["label"] is None else row["label"] for row in rows]
    label = np.array(labels) if any(label >= 0 for label in labels) else None
    first = workspace.first_stored
    if label is None and workspace.live and first is not None and first.kind in ("node", "graph"):
        of_all = workspace.table().label
        label = None if of_all is None else of_all[ids]
    predicted = [
        row["outputs"][int(np.argmax(row["predictions"]))]
        if len(row["outputs"]) > 1
        else row["target"]
        for row in rows
    ]
    return Predictions(
        label=label,
        predicted=np.array(predicted, dtype=np.int64),
        score=np.array([row["prediction"] for row in rows], dtype=np.float64),
        size=np.array([len(row["field_ids"]) for row in rows], dtype=np.int64),
        ids=ids,
    )


# --- what if: nodes, edges or features changed -----------------------------------------------


def scores_after(workspace: Workspace, question: Question, changes: Changes) -> Tensor:
    """Scores of all outputs [outputs], by one call of the model on the changed graph."""
    query = query_of(workspace, question)
    cut = cut_edges(query.graph, changes)
    with workspace.copies[question.model].ready():
        query = replace(query, graph=changed(query.graph, query.centres.tolist(), changes))
        field = (
            fields.whole_graph(query.graph)
            if query.kind == "graph"
            else fields.undirected_neighbourhood(query.graph, query.centres, None, everyone=True)
        )
        perturbed = replace(unperturbed(query, field), removed_edges=cut[None, field.edges])
        return query.scores(Plain(query, field).evaluate(field, perturbed))[0]


def query_of(workspace: Workspace, question: Question) -> Query:
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
            workspace.copies[question.model].module,
            workspace.graphs[question.graph],
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


def cut_edges(graph: Graph, changes: Changes) -> NDArray[np.bool_]:
    """Whether each edge is removed."""
    source, target = graph.edge_index.cpu().numpy()
    off = np.zeros(graph.num_nodes, dtype=bool)
    off[list(changes.nodes_off)] = True
    cut = np.asarray(off[source] | off[target])
    for u, v in changes.edges_off:
        cut |= ((source == u) & (target == v)) | ((source == v) & (target == u))
    return cut


def changed(graph: Graph, centres: list[int], changes: Changes) -> Graph:
    """The graph with its features after the changes."""
    if not (changes.features_off or changes.values):
        return graph
    types = graph.types
    features = {name: x.clone() for name, x in types.features.items()}

    def values(column: int) -> tuple[str, Tensor]:
        """The node type of a feature, and its values [nodes of the type]."""
        owner = next(name for name, block in types.blocks.items() if column < block.stop)
        return owner, features[owner][:, column - types.blocks[owner].start]

    named = [types.named(node) for node in centres]
    for column in changes.features_off:
        owner, of_nodes = values(column)
        mine = [node for name, node in named if name == owner]
        if centres and not mine:
            raise InputError(f"feature {column} is one of {owner!r}, not of the explained node")
        of_nodes[mine or slice(None)] = graph.statistics.mean[column].to(of_nodes)
    for node, column, value in changes.values:
        (owner, of_nodes), (name, at) = values(column), types.named(node)
        if name != owner:
            raise InputError(f"feature {column} is one of {owner!r}, not of {types.label(node)}")
        of_nodes[at] = value
    return graph.with_features(features)
