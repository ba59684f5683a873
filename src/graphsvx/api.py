"""The front door: explain() for one question; what to write where it is called in another way."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from threading import Timer, current_thread, main_thread
from typing import Any, Literal, ParamSpec, TypeVar

from torch import Tensor, nn
from torch_geometric.data import FeatureStore, GraphStore

from graphsvx import methods
from graphsvx.core.model import Decoder, Output, Pick, Scale, evaluation_mode, modules
from graphsvx.core.query import NodeOfType, Query, build_query
from graphsvx.engine.reading import with_reading
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.methods import GraphSVX, Method
from graphsvx.methods.baseline import Baseline, MethodSetting
from graphsvx.methods.graphsvx import SETTINGS
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Seed, checked, shown
from graphsvx.utils.context import collected
from graphsvx.utils.exclusive import exclusive
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
    """The method; an InputError that says how to write it if it is a name, a class or PyG's."""
    name = method.__name__ if isinstance(method, type) else method
    if type(method).__module__.startswith("torch_geometric.explain"):
        name = type(method).__name__
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


DEFAULT = GraphSVX()


@with_advice
def explain(
    model: Callable[..., Any],
    data: Any,
    *,
    node: int | str | NodeOfType | None = None,
    nodes: Sequence[Any] | Tensor | None = None,
    graph: bool = False,
    edge: tuple[int | str, int | str] | tuple[NodeOfType, NodeOfType] | None = None,
    relation: int | str | tuple[str, str, str] | None = None,
    decoder: Decoder | None = None,
    method: Method | None = None,
    target: int | str | None = None,
    targets: Literal["all"] | None = None,
    output: Output | Pick | None = None,
    scale: Scale | None = None,
    arguments: Mapping[str, str] | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    seed: int = 0,
    memory: int = 512 * 2**20,
) -> Explanation:
    """Explain one prediction of a trained model.

    Args:
        model: a module or callable of (x, edge_index) that may take any attribute of `data` by
            name (edge_weight, edge_attr, edge_type, pos, ...; `batch` for whole graphs), or one
            `Data`; `encode` and `decode` serve for links.
        data: a PyG `Data`, or anything with `x` and `edge_index` (or a sparse `adj_t`); a
            networkx graph with attributes, or a dictionary. A `HeteroData` for models of
            (x_dict, edge_index_dict), `Data` with `edge_type` for relational models.
        node: the node whose prediction is explained, by number or by its name in `node_names`; of
            `HeteroData` its type and id, as everywhere: ("paper", 42).
        nodes: a group of nodes whose average score is explained.
        graph: explain the prediction for the whole graph.
        edge: explain the score of a link (u, v), which need not be in the graph. The model
            returns embeddings of nodes, or takes `edge_label_index` and returns a row a pair.
        relation: of a relational model: the relation of the link by number or name, which the
            decoder (or the model's own `decoder` or `decode`) gets as a third argument, or the
            model as `edge_label_type`.
        decoder: a function (or module) of the embeddings of u and of v, [pairs, width] each,
            that returns the link's score; their inner product, a logit, by default.
        method: the explainer, `GraphSVX()` by default.
        target: the class or output to explain, by number or by its name in `class_names`; the
            predicted class by default.
        targets: "all" explains every output from the same model calls.
        output: what the model returns: scores of classes ("class" or "raw"), their
            probabilities ("probs") or logarithms ("log_probs"), logits of labels that do not
            exclude each other ("multilabel"), or numbers ("regression"). A function finds the
            scores in a tuple or dictionary. By default it is found out, with a warning where that
            is an assumption.
        scale: what is explained: probability (the default), logit, log_odds, or value
            (regression).
        arguments: {parameter of the model: attribute of data}, where their names differ.
        class_names: names of the outputs, for tables, plots, pages and files; `data.class_names`
            by default.
        feature_names: names of the columns of x, likewise.
        node_names: names of the nodes, likewise.
        seed: the same seed and settings give the same bits.
        memory: bytes that perturbed graphs, coalitions and the fit may take (64 MiB are always
            allowed); a BudgetError if they do not fit. Batches on a GPU fill it.

    Returns:
        A frozen record; for GraphSVX `base + total == prediction`.

    Raises:
        InputError: arguments, model and graph do not go together.
        TargetError: the model does not have this output.
        BudgetError: `samples` are too few, or coalitions do not fit into `memory`.
        ModelError: the model failed, is random, or returned what cannot be explained.
        UnsupportedError: the method cannot explain this kind of question.

    """
    seed = checked(seed, Seed, "seed")
    method = DEFAULT if method is None else check_method(method)
    check_model_and_data(model, data)
    options: dict[str, Any] = {
        "node": node, "nodes": nodes, "graph": graph, "edge": edge, "relation": relation,
        "decoder": decoder, "target": target, "targets": targets, "output": output, "scale": scale,
        "class_names": class_names, "feature_names": feature_names, "node_names": node_names,
        "memory": memory,
    }  # fmt: skip
    with exclusive():
        query = build_query(model, data, arguments=arguments, **options)
        check_question(method, query)
        with evaluation_mode([*query.model.submodules, *modules(decoder)]):
            query = with_reading(query)
            with _progress_of_one(), collected() as given_up:
                explanation = method(query, seed)
    if not isinstance(explanation, Explanation):
        raise InputError(f"method must return an Explanation, got {type(explanation).__name__}")
    question = explanation.question
    if given_up:
        certificate = replace(explanation.certificate, given_up=tuple(given_up))
        explanation = replace(explanation, certificate=certificate)
    return explanation.with_names(query.names).with_question(question)


def check_question(method: Any, query: Query) -> None:
    """Raise an UnsupportedError for a method that does not answer a question of this kind."""
    if isinstance(method, Baseline):
        method.check_kind(query)
    if query.graph.has_types and not getattr(method, "explains_typed_graphs", False):
        raise UnsupportedError(
            f"{type(method).__name__} explains graphs without types only; use GraphSVX(), "
            "Greedy(), IntegratedGradients(), Saliency() or Random()"
        )


def _progress_of_one() -> AbstractContextManager[None]:
    """After two seconds, the time that an explanation has taken; in a terminal only."""
    if not sys.stderr.isatty() or current_thread() is not main_thread():
        return nullcontext()
    return shown_after(2.0, _time_taken)


@contextmanager
def shown_after(seconds: float, bar: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Show `bar()` while the work goes on, if it takes longer than `seconds`."""
    with ExitStack() as stack:
        timer = Timer(seconds, lambda: stack.enter_context(bar()))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # it may have just begun to show the bar


@contextmanager
def _time_taken() -> Iterator[None]:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415  (slow)

    from graphsvx.utils.console import progress_bar  # noqa: PLC0415  (rich)

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with progress_bar(*columns, shown=True) as bar:
        bar.add_task("explaining", total=None)
        yield
