"""Infer from one call what a model's outputs are, where the user does not say.

Scores of classes (a softmax over them), labels that do not exclude each other (a sigmoid each) or
plain values: nothing in a tensor tells for certain. What tells is the model's last operation, the
labels in `data.y`, and numbers between 0 and 1 that do not sum to 1. What is assumed from less than
the last operation is said in a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graphsvx.core.arrays import as_tensor, unreadable
from graphsvx.core.calling import part_of, whole
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model, Reading, Scale, call_on, inner_product
from graphsvx.core.query import LINK_CLASSES, Query
from graphsvx.engine.profile import fits_one_call, profile_for, sample_graph
from graphsvx.engine.rowwise import name_of
from graphsvx.errors import InputError, ModelError

_SQUASHING: dict[str, Reading] = {"sigmoid": "multilabel_probs", "softmax": "probs"}
_PASSING = {"getitem", "squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "double",
            "contiguous", "detach", "to", "clone", "type_as"}  # fmt: skip


@dataclass(frozen=True)
class Assumption:
    """Assumed meaning and scale of the outputs, and the warning for the user, if any."""

    output: Reading = "raw"
    scale: Scale = "probability"
    warning: str | None = None
    one_output: bool = False


def with_reading(query: Query) -> Query:
    """The query with `model.output` and `model.scale` inferred where the user did not give them.

    The classes of a link with one score are named.

    Raises:
        InputError: a typed model's outputs are those of another node type.

    """
    model, graph = query.model, query.graph
    named = query.kind != "edge" or query.names.classes is not None
    if not graph.has_types and not _needs_reading(model) and named:
        return query
    if query.decoder not in (None, inner_product):  # each decoder has scores of its own
        return _with_assumed(query, _read(query))
    readings = profile_for(model, graph).readings
    key = (query.kind, *graph.types.kinds(query.centres).tolist())
    if key not in readings:
        readings[key] = _read(query)
    return _with_assumed(query, readings[key])


def _needs_reading(model: Model) -> bool:
    """Whether the meaning of outputs is not given, or their number matters."""
    return model.scale != "value" and (not model.output_is_given or model.scale == "logit")


def _with_assumed(query: Query, assumed: Assumption) -> Query:
    """The query with the assumed meaning of its outputs; warns where it rests on little.

    A model of one logit is asked about this logit, whichever class is predicted. The classes of a
    link with one score are named.
    """
    model, one_output = query.model, assumed.one_output
    if not model.output_is_given and model.scale != "value":
        model = _as_assumed(query, assumed)
    query = replace(query, model=model)
    if one_output and query.target is None and (model.output, model.scale) == ("raw", "logit"):
        query = replace(query, target=1)
    two_classes = one_output and model.scale != "value" and "multi" not in model.output
    if query.kind != "edge" or query.names.classes is not None or not two_classes:
        return query
    return replace(query, names=replace(query.names, classes=LINK_CLASSES))


def _as_assumed(query: Query, assumed: Assumption) -> Model:
    model = query.model
    if query.kind == "edge" and assumed.output in ("multilabel_probs", "values"):
        # One score a link is that of the link.
        output: Reading = "probs" if assumed.output == "multilabel_probs" else "raw"
        assumed = replace(assumed, output=output, scale="probability", warning=None)
    if assumed.output == "values" and model.scale_is_given:
        assumed = Assumption()
    if assumed.warning is not None and not model.scale_is_given:
        warnings.warn(assumed.warning, stacklevel=7)
    scale = model.scale if model.scale_is_given else assumed.scale
    return replace(model, output=assumed.output, scale=scale)


_ONE_OUTPUT = Assumption(
    warning="the model has one output, which is read as the logit of the second of two classes; "
    'for a number that it predicts say output="regression", for a class output="class"'
)
_BETWEEN_0_AND_1 = Assumption(
    "multilabel_probs",
    warning="the model's outputs are between 0 and 1 and do not sum to 1: they are read as a "
    'probability for each label; for logits of labels say output="multilabel", for scores of '
    'classes output="class", for values output="regression"',
)
_NUMBERS = Assumption(
    "values",
    "value",
    'data.y holds numbers: the model\'s output is read as a regression (output="regression"); '
    'for scores of classes say output="class"',
)
_LABELS = Assumption(
    "multilabel",
    warning="data.y says of each output whether it is so: the outputs are read as logits of "
    'labels (output="multilabel"); for classes that exclude each other say output="class"',
)


def _read(query: Query) -> Assumption:
    """What outputs are, by the model's last operation, labels and their range."""
    call = _LastOperation()
    out = _sample_output(query, call)
    if out is None:
        return Assumption()
    outputs, last = out.shape[-1], call.of(out)
    by_labels = None
    if last is not None:
        assumed = Assumption("probs" if outputs == 1 else last)
    elif query.kind == "edge":  # the score of a link
        assumed = Assumption()
    elif (by_labels := _by_labels(_labels(query), outputs)) is not None:
        assumed = by_labels
    elif outputs == 1:
        assumed = _ONE_OUTPUT
    else:
        separate = _are_separate_probabilities(out) and _stays_between_0_and_1(query)
        assumed = _BETWEEN_0_AND_1 if separate else Assumption()
    return replace(assumed, one_output=outputs == 1)


def _stays_between_0_and_1(query: Query) -> bool:
    """Whether outputs are within [0, 1] for large features too, which logits are not."""
    graph = query.graph
    for factor in (1000, -1000):
        features = {
            name: factor * x if x.is_floating_point() else x
            for name, x in graph.types.features.items()
        }
        scaled = replace(query, graph=graph.with_features(features))
        out = _sample_output(scaled, _LastOperation())
        if out is not None and bool(((out < 0) | (out > 1)).any()):
            return False
    return True


def _by_labels(labels: Tensor | None, outputs: int) -> Assumption | None:
    """The meaning of the outputs according to data.y [rows, labels]; None: undecided."""
    if labels is None:
        return None
    if labels.shape[1] == 1 < outputs and not labels.is_floating_point():
        return Assumption()  # numbers of classes
    if labels.shape[1] != outputs:
        return None
    values = labels.double()
    if not bool(((values == 0) | (values == 1)).all()):
        return _NUMBERS
    one_each = bool((values.sum(1) == 1).all()) and len(values) > 1
    return Assumption() if outputs == 1 or one_each else _LABELS


def _labels(query: Query) -> Tensor | None:
    """data.y as [rows, labels], if it has a row for each of what the model's outputs are of."""
    graph = query.graph
    labels, rows = graph.labels, graph.num_nodes
    if graph.has_types:
        if query.kind not in ("node", "nodes"):
            return None
        name = graph.types.node_types[graph.types.kinds(query.centres)[0]]
        labels, rows = graph.types.node_values.get("y", {}).get(name), graph.types.count(name)
    if labels is None or labels.is_complex() or not labels.numel():
        return None
    if query.kind == "graph":
        rows, labels = 1, labels.reshape(1, -1) if labels.dim() <= 1 else labels
    labels = labels[:, None] if labels.dim() == 1 else labels
    return labels if labels.dim() == 2 and labels.shape[0] == rows else None


def _are_separate_probabilities(out: Tensor) -> bool:
    """Whether rows, at least four of them different, are within (0, 1) and do not sum to 1."""
    rows = out.reshape(-1, out.shape[-1]).double()
    inside = bool(((rows > 0) & (rows < 1)).all())
    return (
        inside
        and len(torch.unique(rows, dim=0)) >= 4
        and bool(((rows.sum(-1) - 1).abs() > 1e-3).any())
    )


def _sample_output(query: Query, call: _LastOperation) -> Tensor | None:
    """Outputs for a part of the graph, or all of it where the model does not take a part."""
    model, graph = query.model, query.graph
    tries: list[Graph] = [graph]
    if not model.whole_graphs and not graph.has_types:
        tries = [sample_graph(graph), *([graph] if fits_one_call(graph) else [])]
    for part in tries:
        try:
            with call:
                out = _output_by_type(query) if graph.has_types else call_on(model, part)
                if query.decoder is None:
                    return _as_rows(out)
        except ModelError:  # the part is too small, or the model fails: later calls raise
            continue
        call.seen.clear()
        try:
            with call:
                ends = out if graph.has_types else (out[:1], out[-1:])
                return _as_rows(query.decoder(*ends))
        except Exception:  # the decoder fails: later calls raise its error
            return None
    return None


def _as_rows(out: Any) -> Tensor | None:
    """Outputs [rows, outputs], if they can be read."""
    if not isinstance(out, Tensor) or unreadable(out) or not 1 <= out.dim() <= 2:
        return None
    return out[:, None] if out.dim() == 1 else out


class _LastOperation(TorchFunctionMode):
    """Records which tensors come from a sigmoid or softmax, in one call of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, tuple[Tensor, Reading]] = {}
        """Tensors by id, which keeps them alive."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, Tensor):
            return out
        name = name_of(func).strip("_")
        kind = _SQUASHING.get(name)
        if kind is None and name in _PASSING and args:
            kind = self.seen.get(id(args[0]), (None, None))[1]
        if kind is not None:
            self.seen[id(out)] = (out, kind)
        return out

    def of(self, tensor: Tensor) -> Reading | None:
        """The operation (sigmoid, softmax) that a tensor comes from."""
        return self.seen.get(id(tensor), (None, None))[1]


# Models of graphs with types, by one call on the whole graph: of which node type outputs are too.


def _output_by_type(query: Query) -> Any:
    """The output of the asked node type, the graph or the link; of a decoder's link both ends."""
    model, graph = query.model, query.graph
    inputs, ends = whole(graph), as_tensor(graph.types.local(query.centres), graph.x.device)
    if query.kind == "graph":
        batch = {name: torch.zeros_like(rows) for name, rows in inputs.node_rows.items()}
        return model.run(graph, replace(inputs, batch=batch))
    if model.scores_pairs:
        return model.run(graph, replace(inputs, pairs=ends[:, None], relation=query.relation))
    out = model.run(graph, inputs)
    kinds = [graph.types.node_types[kind] for kind in graph.types.kinds(query.centres)]
    by_type = [out.get(kind) if isinstance(out, Mapping) else out for kind in kinds]
    if query.decoder is not None:
        return [part[ends[at : at + 1]] for at, part in enumerate(by_type) if part is not None]
    if isinstance(out, Tensor) and out.dim():
        _check_type(query, out, kinds[0])
    return by_type[0]


def _check_type(query: Query, out: Tensor, node_type: str) -> None:
    """Raise if a tensor has a row for each node of another type than the asked one.

    Where several types have as many nodes, a node of the asked type is left out to see whether a
    row goes with it.
    """
    graph = query.graph
    counts = dict(
        zip(graph.types.node_types, np.diff(graph.types.node_starts).tolist(), strict=True)
    )
    fitting = [name for name, count in counts.items() if count == len(out)]
    others = [name for name in fitting if name != node_type]
    if node_type in fitting:
        if not others or not _keeps_rows(query, len(out), node_type):
            return
    elif not others:
        return  # later calls raise the error
    example = f'node=("{others[0]}", 0)'
    raise InputError(
        f"the model returns a row for each node of type {' or '.join(map(repr, others))}, not of "
        f"{node_type!r}; ask about one of these, such as {example}, or return a dictionary with an "
        "output for each type"
    )


def _keeps_rows(query: Query, rows: int, node_type: str) -> bool:
    """Whether as many rows are returned without the last node of a type."""
    graph, model = query.graph, query.model
    last = int(graph.types.node_starts[graph.types.type_id(node_type) + 1]) - 1
    left = np.delete(np.arange(graph.num_nodes), last)
    edges = np.flatnonzero((graph.edge_index.cpu().numpy() != last).all(0))
    try:
        out = model.run(graph, part_of(graph, left, edges), bool(model.plan.tables))
    except ModelError:  # it takes whole graphs only
        return False
    return isinstance(out, Tensor) and out.dim() > 0 and len(out) == rows
