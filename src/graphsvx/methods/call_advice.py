"""What to write instead, where `explain` is called in a way that it does not take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from torch import Tensor, nn
from torch_geometric.data import FeatureStore, GraphStore

from graphsvx import methods
from graphsvx.errors import InputError
from graphsvx.methods.base import Method
from graphsvx.methods.graphsvx import SETTINGS, MethodSetting
from graphsvx.utils.constraints import checked, shown
from graphsvx.utils.printable import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

_OTHER_NAMES = {
    **dict.fromkeys(("index", "idx", "node_index", "node_idx", "node_id"), "node"),
    **dict.fromkeys(("node_ids", "indices"), "nodes"),
    **dict.fromkeys(("link", "edge_label_index", "edge_id"), "edge"),
    **dict.fromkeys(("label", "target_class", "class_index"), "target"),
}
"""Arguments of other explainers, by what they are called here."""


def with_advice(function: Callable[P, R]) -> Callable[P, R]:
    """The function (model, data, *, ...), which says of unknown arguments what to write instead."""
    names = {*inspect.signature(function).parameters}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        positional: tuple[Any, ...] = args
        keywords: dict[str, Any] = kwargs
        unknown = [name for name in keywords if name not in names]
        missing = {"model", "data"} - {"model", "data"}.intersection(keywords)
        if any(isinstance(value, Tensor) for value in positional[1:3]) or {"x"} & {*unknown}:
            raise InputError(
                f"{function.__name__}() takes a graph as one object; write "
                f"{function.__name__}(model, Data(x=x, edge_index=edge_index), node=...)"
            )
        if unknown:
            raise InputError(advice(function.__name__, unknown[0], keywords[unknown[0]], names))
        if len(positional) != len(missing):
            example = shown(positional[2]) if len(positional) > len(missing) else "..."
            raise InputError(
                f"{function.__name__}() takes the model and the graph, and what to explain by "
                f"name; write {function.__name__}(model, data, node={example})"
            )
        return function(*args, **kwargs)

    return call


def advice(function: str, name: str, value: Any, names: Iterable[str]) -> str:
    """What to write in place of an argument that `function` does not have."""
    start = f"{function}() does not take {name!r}; "
    argument = _OTHER_NAMES.get(name)
    if argument in {*names}:
        example = "(u, v)" if argument == "edge" else shown(value)
        return f"{start}write {argument}={example}"
    if name in SETTINGS:
        return f"{start}it is a setting of the method: write method=GraphSVX({name}={shown(value)})"
    return f"{start}{did_you_mean(name, [*names, *SETTINGS])}it takes {', '.join(sorted(names))}"


def check_method(method: Any) -> Method:
    """The method; an InputError that says how to write it if it is a name or a class."""
    name = method.__name__ if isinstance(method, type) else method
    if isinstance(name, str):
        letters = name.lower().replace("-", "").replace("_", "")
        name = next(
            (class_name for class_name in methods.__all__ if class_name.lower() == letters),
            "GraphSVX",
        )
        raise InputError(
            "method must be an explainer with its settings, such as GraphSVX(), got "
            f"{shown(method)}; write method={name}() after from graphsvx.methods import {name}"
        )
    method_object: Method = checked(method, MethodSetting, "method")
    return method_object


def check_model_and_data(model: Any, data: Any) -> None:
    """Raise an InputError where a class, swapped arguments or stores of a graph were given."""
    if isinstance(model, type):
        raise InputError(
            f"model must be a trained model, got the class {model.__name__}; make an instance with "
            f"its weights first: model = {model.__name__}(...)"
        )
    is_graph = hasattr(model, "edge_index") or hasattr(model, "edge_types")
    if isinstance(data, nn.Module) and (is_graph or not callable(model)):
        raise InputError("model and data are swapped; write explain(model, data, ...)")
    stores = data if isinstance(data, tuple) else (data,)
    if all(isinstance(s, (FeatureStore, GraphStore)) and not hasattr(s, "keys") for s in stores):
        raise InputError(
            "data must be a graph in memory, got a FeatureStore or GraphStore; make a Data or "
            "HeteroData of the tensors in them: Data(x=..., edge_index=...)"
        )
