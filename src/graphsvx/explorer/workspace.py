"""What is served: models, graphs and names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Literal

import torch
from torch import nn
from torch_geometric.data import Dataset

from graphsvx.core.calling import unwrapped
from graphsvx.core.convert import as_data
from graphsvx.core.data import check_graph_of, is_typed
from graphsvx.core.graph import Graph
from graphsvx.core.model import Decoder, Output, Pick, Scale
from graphsvx.core.modules import evaluation_mode, modules
from graphsvx.core.names import find_names
from graphsvx.core.query import Query
from graphsvx.errors import InputError
from graphsvx.explorer.predictions import Predictions, predict_all, query_of, table_of_run
from graphsvx.explorer.questions import NodeTypes, Question
from graphsvx.utils.printable import one_line
from graphsvx_lab.datasets import DataSet

Task = Literal["node", "graph", "link"]


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
    output: Output | Pick | None = None
    asked_scale: Scale | None = None
    """The scale that is explained; None: it is found out from the model (`scale`)."""
    decoder: Decoder | None = None
    run: Any = None
    """A `runs.Run` that is browsed, or None."""
    atoms: bool = False
    """Whether the graphs are molecules: features are one-hot kinds of atoms."""
    _checked: dict[int, Graph] = field(default_factory=dict)
    _tables: dict[str, Predictions] = field(default_factory=dict)
    _copies: dict[str, ModelCopy] = field(default_factory=dict)
    queries: dict[tuple[Any, ...], Query] = field(default_factory=dict)
    """Checked models and graphs, by model and kind of question (`predictions.query_of`)."""
    _lock: Any = field(default_factory=Lock)

    @property
    def live(self) -> bool:
        """Whether there is a model and a graph to ask, not only a finished run."""
        return bool(self.models and self.graphs)

    @cached_property
    def typed(self) -> bool:
        """Whether the graphs have node or edge types that the model takes."""
        if not self.live:
            return False
        return is_typed(unwrapped(self.models[self.default_model]), self.graphs[0])

    @cached_property
    def types(self) -> NodeTypes | None:
        """Node types; None: there is one node set. Those of many graphs differ in their counts."""
        if self.task == "graph":
            return None
        if self.live:
            graph = self.checked(self.graph)
            if not graph.has_types or graph.types.flat:
                return None
            return NodeTypes(graph.types.node_types, tuple(graph.types.node_starts.tolist()))
        first = None if self.run is None else next(iter(self.run), None)
        if first is None or first.types is None or first.types.flat:
            return None
        return NodeTypes(first.types.node_types, first.types.node_starts)

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations that a link can be asked for."""
        if self.task != "link" or not self.typed:
            return ()
        graph = self.checked(self.graph)
        return graph.types.relation_labels if graph.has_types else ()

    @cached_property
    def scale(self) -> Scale:
        """What is explained: as asked for, or as found out from the model."""
        if self.asked_scale is not None or not self.live or self.task == "link":
            return self.asked_scale or "probability"
        question = Question(self.task, (0,), self.default_model)
        return query_of(self, question, self.model_copy(self.default_model).module).model.scale

    @cached_property
    def run_start(self) -> int:
        """What is added to a query of the run to have the number of its node."""
        first = None if self.run is None else next(iter(self.run), None)
        if self.types is None or first is None or first.kind != "node":
            return 0
        return self.types.starts[self.types.names.index(self.types.split(first.centres[0])[0])]

    @property
    def graph(self) -> Any:
        """The graph of a node or link task."""
        return self.graphs[0]

    def data_of(self, kind: str, ids: tuple[int, ...]) -> Any:
        """The graph that a question is about."""
        return self.graphs[ids[0]] if kind == "graph" else self.graph

    def checked(self, data: Any) -> Graph:
        """The graph with its indices; nodes of typed graphs are numbered through all types.

        Cached: checking again would wait for the explanation that is being computed.
        """
        graph = self._checked.get(id(data))
        if graph is None:
            graph = check_graph_of(unwrapped(self.models[self.default_model]), data)
            self._checked[id(data)] = graph
        return graph

    def asked(self, question: Question) -> dict[str, Any]:
        """The arguments of `explain` that say what is asked."""
        if question.kind == "graph":
            return {"graph": True}
        nodes = [n if self.types is None else self.types.split(n) for n in question.which]
        if question.kind == "node":
            return {"node": nodes[0]}
        relation = {} if question.relation is None else {"relation": question.relation}
        return {"edge": (nodes[0], nodes[1]), "decoder": self.decoder, **relation}

    @cached_property
    def default_model(self) -> str:
        """The name of the model that is asked if none is named."""
        return next(iter(self.models), "")

    def model_copy(self, name: str) -> ModelCopy:
        """The model for single predictions, which do not wait for explanations."""
        with self._lock:
            if name not in self._copies:
                self._copies[name] = ModelCopy(unwrapped(self.models[name]))
            return self._copies[name]

    def feature_name(self, column: int) -> str:
        """The name of a feature in one line."""
        if self.feature_names is not None:
            return one_line(self.feature_names[column])
        if self.live and self.typed:
            return one_line(self.checked(self.graphs[0]).types.feature_label(column))
        return f"feature {column}"

    def node_name(self, node: int) -> str:
        """The name of a node in one line."""
        if self.node_names is not None:
            return one_line(self.node_names[node])
        if self.types is None:
            return f"node {node}"
        if self.live:
            graph = self.checked(self.graph)
            if graph.has_types:
                return one_line(graph.types.label(node))
        return one_line(" ".join(map(str, self.types.split(node))))

    def graph_name(self, number: int) -> str:
        """The name of one of many graphs in one line."""
        name = getattr(self.graphs[number], "name", None) if self.live else None
        return one_line(name) if isinstance(name, str) and name else f"graph {number}"

    def table(self, model: str | None = None) -> Predictions:
        """Classes and predictions of every node or graph, computed once for each model."""
        name = model or self.default_model
        if name not in self._tables:
            self._tables[name] = predict_all(self, name) if self.live else table_of_run(self)
        return self._tables[name]


def make_workspace(
    model: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    data: Any,
    *,
    task: Task | None = None,
    title: str = "Explorer",
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    output: Output | Pick | None = None,
    scale: Scale | None = None,
    decoder: Decoder | None = None,
    run: Any = None,
    atoms: bool = False,
) -> Workspace:
    """The workspace of a user's own models and data, validated."""
    models = dict(model) if isinstance(model, Mapping) else {_model_name(model): model}
    if not models or not all(isinstance(name, str) and name for name in models):
        raise InputError("model must be a model, or a dictionary of models by name")
    many = isinstance(data, (list, tuple, Dataset))
    graphs = tuple(map(as_data, data)) if many else (as_data(data),)
    if not graphs:
        raise InputError("data must hold at least one graph, got an empty list")
    if task is None:
        task = "graph" if many else "link" if decoder is not None else "node"
    if task not in ("node", "graph", "link"):
        raise InputError(f'task must be "node", "graph" or "link", got {task!r}')
    if many and task != "graph":
        raise InputError(f'a list of graphs is for task="graph", got task={task!r}')
    if node_names is not None and task == "graph":
        raise InputError("node_names are for one graph; leave them out for a list of graphs")
    workspace = Workspace(
        models=models,
        graphs=graphs,
        task=task,
        title=title,
        output=output,
        asked_scale=scale,
        decoder=decoder,
        run=run,
        atoms=atoms,
    )
    for graph in graphs:
        workspace.checked(graph)
    first = workspace.checked(graphs[0])
    if workspace.types is not None and (feature_names is not None or node_names is not None):
        raise InputError(
            "feature_names and node_names are for graphs of one node type; the nodes of a "
            'HeteroData get names by data["author"].names = [...]'
        )
    named = find_names(graphs[0])
    class_names = class_names or (None if task == "link" else named.classes)
    if workspace.types is None:
        feature_names = named.features if feature_names is None else feature_names
        node_names = named.nodes if node_names is None and task != "graph" else node_names
    workspace = replace(
        workspace,
        class_names=_names(class_names, None, "class_names"),
        feature_names=_names(feature_names, first.num_features, "feature_names"),
        node_names=_names(node_names, first.num_nodes, "node_names"),
    )
    for name in models:  # a model that fails is reported here, not on the page
        workspace.table(name)
    return workspace


def workspace_of(
    models: Mapping[str, Callable[..., Any]], dataset: DataSet, run: Any = None
) -> Workspace:
    """The workspace of models that were trained on a data set."""
    task, regression = dataset.task, dataset.regression
    return make_workspace(
        models,
        dataset.graphs if task == "graph" else dataset.graph,
        task=task,
        title=dataset.name,
        class_names=None if task == "link" else dataset.class_names,
        feature_names=dataset.feature_names,
        output="regression" if regression else None,
        scale="value" if regression else None,
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


def _model_name(model: Any) -> str:
    return type(model).__name__ if isinstance(model, torch.nn.Module) else "model"


def _names(names: Sequence[str] | None, count: int | None, argument: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{argument} must be a list of names, got {names!r:.80}")
    if count is not None and len(names) != count:
        raise InputError(f"{argument} must have {count} names, got {len(names)}")
    return tuple(names)


# A copy of a model for single predictions, which need not wait for running explanations.
#
# An explanation changes modes and layers of its model and holds a lock meanwhile. A prediction must
# answer within milliseconds, so it goes through a copy of the model that no other thread uses.


class ModelCopy:
    """A model in eval mode for predictions of one thread at a time."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self._lock = Lock()
        self._private = False
        self.module = model
        """The copy; the model itself if it cannot be copied."""
        if isinstance(model, nn.Module):
            try:
                self.module, self._private = copy.deepcopy(model), True
            except Exception:  # a model may hold anything
                return
            for layer in modules(self.module):
                layer.training = False
                if layer.__dict__.get("cached") is True:  # of the graph that it saw first
                    cached = [name for name in vars(layer) if name.startswith("_cached")]
                    vars(layer).update(dict.fromkeys(cached), cached=False)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Eval mode, no gradients, one thread."""
        if not self._private:
            with evaluation_mode(modules(self.module)):
                yield
            return
        with self._lock, torch.no_grad():
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # of this thread; another number would round differently
            try:
                yield
            finally:
                torch.set_num_threads(threads)
