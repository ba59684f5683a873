"""The front door: explain() for one question, explain_many() for many."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from threading import current_thread, main_thread
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.loader import LinkLoader, NodeLoader, RandomNodeLoader

from graphsvx.core import graph as graphs
from graphsvx.core.calling import unwrapped
from graphsvx.core.convert import as_collection, as_data, node_positions
from graphsvx.core.decoders import Decoder
from graphsvx.core.hetero_data import check_graph_of, is_typed
from graphsvx.core.model import Output, Pick, Scale
from graphsvx.core.modules import evaluation_mode, modules
from graphsvx.core.names import find_names
from graphsvx.core.query import NodeOfType, build_query, node_list, nodes_of_one_type
from graphsvx.engine.reading import with_reading
from graphsvx.errors import (
    GraphSVXError,
    InputError,
    ModelError,
    UnsupportedError,
    error_text,
)
from graphsvx.estimators import WLS
from graphsvx.methods.answers import Question
from graphsvx.methods.base import Method
from graphsvx.methods.call_advice import (
    advice,
    check_method,
    check_model_and_data,
    with_advice,
)
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.local_graph import refuse_unless
from graphsvx.results.explanation import Explanation
from graphsvx.results.summary import ExplanationIterator
from graphsvx.utils import processes
from graphsvx.utils.constraints import Seed, Workers, checked, shown
from graphsvx.utils.exclusive import exclusive
from graphsvx.utils.given_up import collected
from graphsvx.utils.timing import shown_after

_DEFAULT = GraphSVX()


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
    method = _DEFAULT if method is None else check_method(method)
    check_model_and_data(model, data)
    options: dict[str, Any] = {
        "node": node, "nodes": nodes, "graph": graph, "edge": edge, "relation": relation,
        "decoder": decoder, "target": target, "targets": targets, "output": output, "scale": scale,
        "class_names": class_names, "feature_names": feature_names, "node_names": node_names,
        "memory": memory,
    }  # fmt: skip
    with exclusive():
        if arguments is None and is_typed(unwrapped(model), as_data(data)):
            _must_explain_types(method)
        query = build_query(model, data, arguments=arguments, **options)
        with evaluation_mode([*query.model.submodules, *modules(decoder)]):
            query = with_reading(query)
            with _progress_of_one(), collected() as given_up:
                explanation = method(query, seed)
    if not isinstance(explanation, Explanation):
        raise InputError(f"method must return an Explanation, got {type(explanation).__name__}")
    if given_up:
        certificate = replace(explanation.certificate, given_up=tuple(given_up))
        explanation = replace(explanation, certificate=certificate)
    explanation = explanation.with_names(query.names)
    if isinstance(method, GraphSVX):
        return explanation.with_question(Question(method.prepared(query), method, seed))
    return explanation


def _must_explain_types(method: Any) -> None:
    if not getattr(method, "explains_typed_graphs", False):
        raise UnsupportedError(
            f"{type(method).__name__} explains graphs without types only; use GraphSVX(), "
            "Greedy(), IntegratedGradients(), Saliency() or Random()"
        )


_OPTIONS = frozenset(inspect.signature(explain).parameters) - {
    "model", "data", "node", "nodes", "edge", "graph",
}  # fmt: skip
"""Arguments of `explain` that `explain_many` passes on."""


@dataclass(frozen=True)
class Failure:
    """A query that could not be explained, and the error."""

    which: int
    """The node, or the position of the graph or link in its list."""
    error: GraphSVXError


def failure_of(query: int, error: BaseException) -> Failure:
    """Any error as a `Failure`; one that is not ours is the model's or the method's."""
    if isinstance(error, GraphSVXError):
        return Failure(query, error)
    return Failure(query, ModelError(error_text(error)))


@dataclass(frozen=True, eq=False)
class _Job:
    """Everything that a worker process needs besides the id of the query."""

    model: Callable[..., Any]
    data: Any
    whole_graphs: bool
    links: Sequence[tuple[Any, Any]] | None
    options: dict[str, Any]
    node_type: str | None = None
    """HeteroData: the type of the nodes."""

    def __call__(self, item: int) -> Explanation | Failure:
        try:
            data, question = self.question(item)
            explanation = explain(self.model, data, **question, **self.options)
            if not self.whole_graphs:
                return explanation
            return replace(explanation, graph_index=item).with_question(explanation.question)
        except (Exception, SystemExit) as error:  # a single failure must not stop the others
            return failure_of(item, error)

    def question(self, item: int) -> tuple[Any, dict[str, Any]]:
        """The graph that a question is about, and the argument of `explain` that asks it."""
        if self.whole_graphs:
            return self.data[item], {"graph": True}
        if self.links is not None:
            return self.data, {"edge": self.links[item]}
        return self.data, {"node": item if self.node_type is None else (self.node_type, item)}

    def as_dict(self, item: int) -> dict[str, Any] | Failure:
        """The result as plain values; tensors would use a shared file each between processes."""
        result = self(item)
        return result if isinstance(result, Failure) else result.to_dict()


def check_call(
    model: Callable[..., Any], questions: Iterable[tuple[Any, dict[str, Any]]],
    options: Mapping[str, Any],
) -> None:  # fmt: skip
    """Raise what is wrong with all questions of a call: each is a graph and how it is asked about.

    The first question that can be asked tells that the arguments go together. Failures of the
    model are left to the questions.
    """
    method = check_method(options.get("method") or _DEFAULT)
    errors: list[InputError] = []
    for data, question in islice(questions, 10):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # each explanation warns itself
                few = {**options, "method": GraphSVX(samples=2, estimator=WLS())}
                query = explain(model, data, **question, **few).question.query
        except InputError as error:
            errors.append(error)
        except Exception:  # whatever else fails is told by the questions themselves
            return
        else:
            if query.graph.has_types:
                _must_explain_types(method)
            elif hasattr(method, "blocks"):
                refuse_unless(query, method, *method.blocks.tasks)
            return
    if errors:
        raise errors[0]


def explain_many(
    model: Callable[..., Any],
    data: Any,
    nodes: Sequence[Any] | Tensor | None = None,
    *,
    edges: Sequence[tuple[Any, Any]] | Tensor | None = None,
    workers: int = 1,
    progress: bool | None = None,
    on_failure: Callable[[Failure], None] | None = None,
    **options: Any,
) -> ExplanationIterator:
    """Explain many nodes or links of one graph, or a list of graphs, each as it is done.

    The result is an iterator; its `collect()` waits for all and gives `Explanations`.

    Args:
        model: as for `explain`.
        data: one graph with `nodes`, or a list, data set, batch or loader of graphs (each is
            explained as a whole; its position is `explanation.graph_index`). A loader that samples
            from one graph stands for that graph and its input nodes (`NeighborLoader`), its links
            (`LinkNeighborLoader`) or all nodes (`RandomNodeLoader`); it is not sampled from.
        nodes: the nodes to explain; all of them if left out. Of HeteroData one node type, with
            ids or all: ("paper", [1, 2]) or "paper".
        edges: the links to explain instead, as pairs of nodes.
        workers: processes to use. The result of a question does not depend on it. Beside Ray or
            CUDA, and on macOS and Windows, a script needs `if __name__ == "__main__":`.
        progress: show a bar on standard error; by default if that is a terminal.
        on_failure: called with each `Failure`; by default it is printed on standard error.
            A failure does not stop the others.
        options: everything else that `explain` takes (method, target, seed, ...).

    Raises:
        InputError: arguments, model and graph do not go together, or cannot be sent to workers.
            Failures of single questions are not raised.

    """
    workers = checked(workers, Workers, "workers")
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise InputError(advice("explain_many", unknown[0], options[unknown[0]], _OPTIONS))
    check_model_and_data(model, data)
    if on_failure is not None and not callable(on_failure):
        raise InputError(f"on_failure must be a function of a Failure, got {shown(on_failure)}")
    if isinstance(edges, (Tensor, np.ndarray)):
        edges = edges.tolist()
    if edges is not None and not isinstance(edges, (list, tuple)):
        raise InputError(f"edges must be a list of pairs of nodes, got {shown(edges)}")
    nodes, edges, data = _in_loader(nodes, edges, data)
    # A batch is one graph where some of its nodes or links are asked for.
    one_graph = isinstance(data, Batch) and (nodes is not None or edges is not None)
    collection = None if one_graph else as_collection(data)
    whole_graphs = collection is not None
    if whole_graphs and (nodes is not None or edges is not None):
        raise InputError("a list of graphs is explained as whole graphs; leave nodes and edges out")
    if nodes is not None and edges is not None:
        raise InputError("explain_many explains nodes or edges, got both")
    node_type: str | None = None
    questions: Sequence[Any]
    if collection is not None:
        data, questions = collection, range(len(collection))
    elif edges is not None and is_typed(model, data):
        questions = range(len(edges))
    elif is_typed(model, data):
        node_type, nodes, count = nodes_of_one_type(data, nodes)
        questions = range(count) if nodes is None else node_list(nodes, count)
    else:
        data, questions, edges = _questions_about(data, nodes, edges, options)
    workers = min(workers, max(1, len(questions)))
    links = None if edges is None else [*edges]
    job = _Job(model, data, whole_graphs, links, options, node_type)
    # Node 0 for any node: one that does not exist is a failure of its question.
    if len(questions):
        check_call(model, map(job.question, questions if whole_graphs or links else [0]), options)
    results = _sequential(job, questions) if workers == 1 else _parallel(job, questions, workers)
    # A generator of its own, so that wrong arguments are refused at the call.
    return ExplanationIterator(
        _with_progress(results, len(questions), progress, on_failure or _print_failure)
    )


def _in_loader(nodes: Any, edges: Any, data: Any) -> tuple[Any, Any, Any]:
    """The nodes, the links and the graph of a loader that samples from one graph."""
    if nodes is None and edges is None:
        if isinstance(data, NodeLoader):
            nodes = data.input_data.node
        elif isinstance(data, LinkLoader):
            edges = list(
                zip(data.input_data.row.tolist(), data.input_data.col.tolist(), strict=True)
            )
    sampled = isinstance(data, (NodeLoader, LinkLoader, RandomNodeLoader))
    return nodes, edges, data.data if sampled else data


def _questions_about(
    data: Any, nodes: Any, edges: Any, options: dict[str, Any]
) -> tuple[Any, Sequence[int], Any]:
    """One graph as `Data`, the nodes (or positions of links) to explain, and the links."""
    positions, data = node_positions(data), as_data(data)
    count = graphs.check_graph(data).num_nodes
    names = find_names(data, node_names=options.get("node_names"), positions=positions)
    if edges is not None:
        return data, range(len(edges)), [names.node_group(edge) for edge in edges]
    listed = range(count) if nodes is None else node_list(names.node_group(nodes), count)
    return data, listed, None


def _progress_of_one() -> AbstractContextManager[None]:
    """After two seconds, the time that an explanation has taken; in a terminal only."""
    if not sys.stderr.isatty() or current_thread() is not main_thread():
        return nullcontext()
    return shown_after(2.0, _time_taken)


@contextmanager
def _time_taken() -> Iterator[None]:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415  (slow)

    from graphsvx.utils.progress_bar import progress_bar  # noqa: PLC0415  (rich)

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with progress_bar(*columns, shown=True) as bar:
        bar.add_task("explaining", total=None)
        yield


def _with_progress(
    results: Iterable[Explanation | Failure], count: int, progress: bool | None,
    on_failure: Callable[[Failure], None],
) -> Iterator[Explanation]:  # fmt: skip
    from rich.progress import (  # noqa: PLC0415  (slow to import)
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from graphsvx.utils.progress_bar import progress_bar  # noqa: PLC0415  (rich)

    visible = sys.stderr.isatty() if progress is None else progress
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with progress_bar(*columns, shown=visible) as bar:
        task = bar.add_task("explaining", total=count)
        for result in results:
            bar.advance(task)
            if isinstance(result, Failure):
                on_failure(result)
            else:
                yield result


def _print_failure(failure: Failure) -> None:
    from graphsvx.utils.console import message  # noqa: PLC0415  (rich is slow to import)

    message(f"not explained: {failure.which}: {failure.error}", style="yellow")


def _sequential(job: _Job, questions: Iterable[int]) -> Iterator[Explanation | Failure]:
    for item in questions:
        yield job(item)


def _parallel(job: _Job, questions: Iterable[int], workers: int) -> Iterator[Explanation | Failure]:
    if processes.can_fork() and not job.whole_graphs:
        # Index once here, not in every worker.
        graphs.out_edges(check_graph_of(job.model, job.data))
    waiting = iter(questions)
    for item, result in processes.imap_unordered(job.as_dict, lambda: next(waiting, None), workers):
        if isinstance(result, processes.WorkerDied):
            yield Failure(item, ModelError("the worker process died; is there enough memory?"))
        else:
            yield result if isinstance(result, Failure) else Explanation.from_dict(result)
