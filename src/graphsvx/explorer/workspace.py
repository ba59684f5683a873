"""What is served: models, graphs and names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Dataset

from graphsvx.core.calling import unwrapped
from graphsvx.core.data import check_graph_of
from graphsvx.core.graph import Graph
from graphsvx.core.model import Decoder, Output, Pick, Scale, evaluation_mode, modules
from graphsvx.core.names import as_data, find_names
from graphsvx.core.types import Types
from graphsvx.errors import InputError
from graphsvx.explorer.predictions import Predictions, predict_all, query_of, table_of_run
from graphsvx.explorer.questions import Question
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import checked
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
    checked: tuple[Graph, ...] = ()
    """The graphs with their indices; nodes of typed graphs are numbered through all types."""
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
    _tables: dict[str, Predictions] = field(default_factory=dict)
    queries: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Checked models and graphs, by model and kind of question (`predictions.query_of`)."""

    @property
    def live(self) -> bool:
        """Whether there is a model and a graph to ask, not only a finished run."""
        return bool(self.models)

    @cached_property
    def typed(self) -> bool:
        """Whether the graphs have node or edge types that the model takes."""
        return self.live and self.checked[0].has_types

    @cached_property
    def types(self) -> Types | None:
        """Node types; None: there is one node set. Those of many graphs differ in their counts."""
        if self.task == "graph":
            return None
        types = self.checked[0].types if self.typed else None
        stored = None if self.live or self.first_stored is None else self.first_stored.types
        if stored is not None:  # without the features
            starts = np.asarray(stored.node_starts), np.asarray(stored.edge_starts)
            types = Types(stored.node_types, stored.edge_types, *starts, {}, stored.flat)
        return None if types is None or types.flat else types

    @cached_property
    def first_stored(self) -> Explanation | None:
        """The first explanation of the run."""
        return None if self.run is None else next(iter(self.run), None)

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations that a link can be asked for."""
        return self.checked[0].types.relation_labels if self.task == "link" and self.typed else ()

    @cached_property
    def scale(self) -> Scale:
        """What is explained: as asked for, or as found out from the model."""
        if self.asked_scale is not None or not self.live or self.task == "link":
            return self.asked_scale or "probability"
        return query_of(self, Question(self.task, (0,), self.default_model)).model.scale

    @cached_property
    def run_start(self) -> int:
        """What is added to a query of the run to have the number of its node."""
        if self.types is None or self.first_stored is None or self.first_stored.kind != "node":
            return 0
        node_type, _ = self.types.named(self.first_stored.centres[0])
        return int(self.types.node_starts[self.types.type_id(node_type)])

    def asked(self, question: Question) -> dict[str, Any]:
        """The arguments of `explain` that say what is asked."""
        if question.kind == "graph":
            return {"graph": True}
        nodes = [n if self.types is None else self.types.named(n) for n in question.which]
        if question.kind == "node":
            return {"node": nodes[0]}
        relation = {} if question.relation is None else {"relation": question.relation}
        return {"edge": (nodes[0], nodes[1]), "decoder": self.decoder, **relation}

    @cached_property
    def default_model(self) -> str:
        """The name of the model that is asked if none is named."""
        return next(iter(self.models), "")

    @cached_property
    def copies(self) -> dict[str, ModelCopy]:
        """The models for single predictions, which do not wait for explanations."""
        return {name: ModelCopy(unwrapped(model)) for name, model in self.models.items()}

    def feature_name(self, column: int) -> str:
        """The name of a feature in one line."""
        if self.feature_names is not None:
            return one_line(self.feature_names[column])
        if self.typed:
            return one_line(self.checked[0].types.feature_label(column))
        return f"feature {column}"

    def node_name(self, node: int) -> str:
        """The name of a node in one line."""
        if self.node_names is not None:
            return one_line(self.node_names[node])
        return f"node {node}" if self.types is None else one_line(self.types.label(node))

    def graph_name(self, number: int) -> str:
        """The name of one of many graphs in one line."""
        name = find_names(self.graphs[number]).graph if self.live else None
        return one_line(name or f"graph {number}")

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
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    decoder: Decoder | None = None,
    scale: Scale | None = None,
    **others: Any,
) -> Workspace:
    """The workspace of a user's own models and data, validated; `others` are further fields."""
    name = type(model).__name__ if modules(model) else "model"
    models = dict(model) if isinstance(model, Mapping) else {name: model}
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
    default = unwrapped(next(iter(models.values())))
    checked_graphs = tuple(check_graph_of(default, graph) for graph in graphs)
    first, named = checked_graphs[0], find_names(graphs[0])
    class_names = class_names or (None if task == "link" else named.classes)
    if many or first.types.flat:
        feature_names = named.features if feature_names is None else feature_names
        node_names = named.nodes if node_names is None and task != "graph" else node_names
    elif feature_names is not None or node_names is not None:
        raise InputError(
            "feature_names and node_names are for graphs of one node type; the nodes of a "
            'HeteroData get names by data["author"].names = [...]'
        )
    workspace = Workspace(
        models=models,
        graphs=graphs,
        task=task,
        checked=checked_graphs,
        class_names=_names(class_names, None, "class_names"),
        feature_names=_names(feature_names, first.num_features, "feature_names"),
        node_names=_names(node_names, first.num_nodes, "node_names"),
        asked_scale=scale,
        decoder=decoder,
        **others,
    )
    for name in models:  # a model that fails is reported here, not on the page
        workspace.table(name)
    return workspace


def workspace_of(
    models: Mapping[str, Callable[..., Any]], dataset: DataSet, run: Any = None
) -> Workspace:
    """The workspace of models that were trained on a data set."""
    task = dataset.task
    of_numbers: Any = {"output": "regression", "scale": "value"} if dataset.regression else {}
    return make_workspace(
        models,
        dataset.graphs if task == "graph" else dataset.graph,
        task=task,
        title=dataset.name,
        class_names=None if task == "link" else dataset.class_names,
        feature_names=dataset.feature_names,
        run=run,
        atoms=dataset.name == "mutag",
        **of_numbers,
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


def _names(names: Sequence[str] | None, count: int | None, argument: str) -> tuple[str, ...] | None:
    checked_names: tuple[str, ...] | None = checked(names, tuple[str, ...] | None, argument)
    if checked_names is not None and count is not None and len(checked_names) != count:
        raise InputError(f"{argument} must have {count} names, got {len(checked_names)}")
    return checked_names


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
        if not modules(model):
            return
        with suppress(Exception):  # a model may hold anything
            self.module, self._private = copy.deepcopy(model), True
        for layer in modules(self.module) if self._private else ():
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
