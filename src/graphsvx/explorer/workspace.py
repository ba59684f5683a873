"""What is served: models, graphs, names, and the predictions of all nodes or graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, HeteroData

from graphsvx.core import graph as graphs_module
from graphsvx.core import model as models_module
from graphsvx.core.model import Output, Scale
from graphsvx.core.query import Decoder, Query
from graphsvx.errors import InputError, see
from graphsvx.explorer.model_copy import ModelCopy
from graphsvx.utils.printable import one_line
from graphsvx.zoo import Trained

Task = Literal["node", "graph", "link"]
_TYPED = (
    "the explorer shows graphs with one type of nodes, got a HeteroData; explain its nodes with "
    "explain(model, data, node=...) or `graphsvx explain DATASET --node N`, and look at them with "
    "to_html" + see("typed-graphs-in-the-explorer")
)
_BATCH = 256
"""Graphs that go through a model together."""


@dataclass(frozen=True, eq=False)
class Table:
    """One row per node (or graph): its class, the model's class, and how sure the model is."""

    label: NDArray[np.int64] | None
    """The known class; -1 where it is unknown. None: the data has no classes."""
    predicted: NDArray[np.int64]
    """The model's class; of a link task, which predicts none, the known one."""
    score: NDArray[np.float64]
    """The score of the predicted class (its probability on the probability scale)."""
    size: NDArray[np.int64]
    """Edges into the node, or nodes of the graph."""
    ids: NDArray[np.int64]
    """What the rows are: node ids, or positions in the list of graphs."""

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether the model's class differs from the known one."""
        if self.label is None:
            return np.zeros(len(self.predicted), dtype=bool)
        return (self.label >= 0) & (self.label != self.predicted)


@dataclass(frozen=True, eq=False)
class Workspace:
    """Models and graphs with their names; what the server answers questions about."""

    models: Mapping[str, Callable[..., Any]]
    """By name; the first is the default. Empty: a run is browsed without its model."""
    graphs: tuple[Any, ...]
    task: Task
    title: str = "Explorer"
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None
    output: Output = "raw"
    scale: Scale = "probability"
    decoder: Decoder | None = None
    run: Any = None
    """A `runs.Run` that is browsed, or None."""
    atoms: bool = False
    """Whether the graphs are molecules: features are one-hot kinds of atoms."""
    _tables: dict[str, Table] = field(default_factory=dict)
    _copies: dict[str, ModelCopy] = field(default_factory=dict)
    queries: dict[tuple[Any, ...], Query] = field(default_factory=dict)
    """Checked models and graphs, by model and kind of question (`what_if.query_of`)."""
    _lock: Any = field(default_factory=Lock)

    @property
    def live(self) -> bool:
        """Whether there is a model and a graph to ask, not only a finished run."""
        return bool(self.models and self.graphs)

    @property
    def graph(self) -> Any:
        """The graph of a node or link task."""
        return self.graphs[0]

    def data_of(self, kind: str, ids: tuple[int, ...]) -> Any:
        """The graph that a question is about."""
        return self.graphs[ids[0]] if kind == "graph" else self.graph

    @cached_property
    def default_model(self) -> str:
        """The name of the model that is asked if none is named."""
        return next(iter(self.models), "")

    def model_copy(self, name: str) -> ModelCopy:
        """The model for single predictions, which do not wait for explanations."""
        with self._lock:
            if name not in self._copies:
                self._copies[name] = ModelCopy(self.models[name])
            return self._copies[name]

    def feature_name(self, column: int) -> str:
        """The name of a feature in one line."""
        names = self.feature_names
        return f"feature {column}" if names is None else one_line(names[column])

    def node_name(self, node: int) -> str:
        """The name of a node in one line."""
        return f"node {node}" if self.node_names is None else one_line(self.node_names[node])

    def table(self, model: str | None = None) -> Table:
        """Classes and predictions of every node or graph, computed once for each model."""
        name = model or self.default_model
        if name not in self._tables:
            self._tables[name] = self._predictions(name) if self.live else _table_of_run(self.run)
        return self._tables[name]

    def _predictions(self, name: str) -> Table:
        copy = self.model_copy(name)
        if self.task == "graph":
            scores = torch.cat([
                self._scores(copy, Batch.from_data_list(list(self.graphs[i : i + _BATCH])))
                for i in range(0, len(self.graphs), _BATCH)
            ])  # fmt: skip
            size = np.array([graph.num_nodes for graph in self.graphs], dtype=np.int64)
            labels = [_graph_label(graph) for graph in self.graphs]
            label = None if None in labels else np.array(labels, dtype=np.int64)
        else:
            graph = graphs_module.check_graph(self.graph)
            size = np.diff(graph.index.start)
            label = None if graph.y is None else graph.y.cpu().numpy().astype(np.int64)
            if self.task == "link":  # links are predicted, classes of nodes are not
                none = np.zeros(graph.num_nodes, dtype=np.int64)
                classes = none if label is None else np.maximum(label, 0)
                return Table(label, classes, none.astype(np.float64), size, np.arange(len(none)))
            scores = self._scores(copy, self.graph)
        if self.scale == "value":
            label = None
        predicted = scores.argmax(-1)
        best = scores.gather(1, predicted[:, None])[:, 0]
        ids = np.arange(len(scores))
        return Table(label, predicted.cpu().numpy(), best.cpu().numpy(), size, ids)

    def _scores(self, copy: ModelCopy, data: Any) -> Tensor:
        """Scores [nodes or graphs, outputs] of a graph, or of a batch of graphs."""
        graph = graphs_module.check_graph(data)
        of_graphs = self.task == "graph"
        model = models_module.check_model(
            copy.module, graph, self.output, self.scale, whole_graphs=of_graphs
        )
        batch = data.batch if of_graphs else None
        with copy.ready():
            out = model(graph.x, graph.edge_index, graph.edge_weight, graph.edge_attr, batch)
        return model.scores(out)


def make_workspace(
    model: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    data: Any,
    *,
    task: Task | None = None,
    title: str = "Explorer",
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    output: Output = "raw",
    scale: Scale = "probability",
    decoder: Decoder | None = None,
    run: Any = None,
    atoms: bool = False,
) -> Workspace:
    """The workspace of a user's own models and data, validated."""
    models = dict(model) if isinstance(model, Mapping) else {_model_name(model): model}
    if not models or not all(isinstance(name, str) and name for name in models):
        raise InputError("model must be a model, or a dictionary of models by name")
    many = isinstance(data, (list, tuple, Dataset))
    graphs = tuple(data) if many else (data,)
    if not graphs:
        raise InputError("data must hold at least one graph, got an empty list")
    for graph in graphs:
        if isinstance(graph, HeteroData):
            raise InputError(_TYPED)
        graphs_module.check_graph(graph)
    if task is None:
        task = "graph" if many else "link" if decoder is not None else "node"
    if task not in ("node", "graph", "link"):
        raise InputError(f'task must be "node", "graph" or "link", got {task!r}')
    if many and task != "graph":
        raise InputError(f'a list of graphs is for task="graph", got task={task!r}')
    first = graphs_module.check_graph(graphs[0])
    for net in models.values():
        models_module.check_model(
            net, first, output, scale, whole_graphs=task == "graph", links=task == "link"
        )
    if node_names is not None and task == "graph":
        raise InputError("node_names are for one graph; leave them out for a list of graphs")
    workspace = Workspace(
        models=models,
        graphs=graphs,
        task=task,
        title=title,
        class_names=_names(class_names, None, "class_names"),
        feature_names=_names(feature_names, first.num_features, "feature_names"),
        node_names=_names(node_names, first.num_nodes, "node_names"),
        output=output,
        scale=scale,
        decoder=decoder,
        run=run,
        atoms=atoms,
    )
    workspace.table()  # a model that fails is reported here, not on the page
    return workspace


def workspace_of(trained: Sequence[Trained], run: Any = None) -> Workspace:
    """The workspace of models of the zoo, all trained on the same data set."""
    dataset = trained[0].dataset
    return Workspace(
        models={entry.card.settings.model: entry.model for entry in trained},
        graphs=dataset.graphs,
        task=dataset.task,
        title=dataset.name,
        class_names=dataset.class_names,
        feature_names=dataset.feature_names,
        run=run,
        atoms=dataset.name == "mutag",
    )


def workspace_of_run(run: Any) -> Workspace:
    """A run without its model: its explanations can be looked at, nothing new can be asked."""
    first = next(iter(run), None)
    return Workspace(
        models={},
        graphs=(),
        task="graph" if first is not None and first.kind == "graph" else "node",
        title=run.folder.name,
        class_names=None if first is None else first.class_names,
        run=run,
    )


def _table_of_run(run: Any) -> Table:
    rows = run.table(["query", "error", "target", "prediction", "label", "field_ids"])
    rows = rows.filter([error is None for error in rows["error"].to_pylist()])
    labels = rows["label"].to_pylist()
    has_labels = any(label is not None for label in labels)
    return Table(
        label=np.array([-1 if label is None else label for label in labels])
        if has_labels
        else None,
        predicted=np.array(rows["target"].to_pylist(), dtype=np.int64),
        score=np.array(rows["prediction"].to_pylist(), dtype=np.float64),
        size=np.array([len(ids) for ids in rows["field_ids"].to_pylist()], dtype=np.int64),
        ids=np.array(rows["query"].to_pylist(), dtype=np.int64),
    )


def _model_name(model: Any) -> str:
    return type(model).__name__ if isinstance(model, torch.nn.Module) else "model"


def _graph_label(graph: Data) -> int | None:
    y = getattr(graph, "y", None)
    if not isinstance(y, Tensor) or y.numel() != 1 or y.is_floating_point():
        return None
    return int(y)


def _names(names: Sequence[str] | None, count: int | None, argument: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{argument} must be a list of names, got {names!r:.80}")
    if count is not None and len(names) != count:
        raise InputError(f"{argument} must have {count} names, got {len(names)}")
    return tuple(names)
