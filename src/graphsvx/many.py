"""explain_many(): many questions about one graph, or one about each of many graphs."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.loader import LinkLoader, NodeLoader, RandomNodeLoader

from graphsvx.api import (
    DEFAULT,
    advice,
    check_method,
    check_model_and_data,
    check_question,
    explain,
)
from graphsvx.core.data import check_graph, check_graph_of, is_typed
from graphsvx.core.graph import out_edges
from graphsvx.core.names import as_collection, as_data, find_names, node_positions
from graphsvx.core.query import node_list, nodes_of_one_type
from graphsvx.errors import GraphSVXError, InputError, ModelError, error_text
from graphsvx.estimators import WLS
from graphsvx.methods import GraphSVX
from graphsvx.results.explanation import Explanation
from graphsvx.results.summary import ExplanationIterator
from graphsvx.utils import processes
from graphsvx.utils.constraints import Workers, checked, shown

_ABOUT = {"model", "data", "node", "nodes", "edge", "graph"}
_OPTIONS = frozenset(inspect.signature(explain).parameters) - _ABOUT
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
    model: Callable[..., Any],
    questions: Iterable[tuple[Any, dict[str, Any]]],
    options: Mapping[str, Any],
) -> None:
    """Raise what is wrong with all questions of a call: each is a graph and how it is asked about.

    The first question that can be asked tells that the arguments go together. Failures of the
    model are left to the questions.
    """
    method = options.get("method")
    method = DEFAULT if method is None else check_method(method)
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
            check_question(method, query)
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
    progress = checked(progress, bool | None, "progress")
    nodes, edges, data = _in_loader(nodes, edges, data)
    if isinstance(edges, (Tensor, np.ndarray)):
        edges = edges.tolist()
    if not isinstance(edges, list | tuple | None):
        raise InputError(f"edges must be a list of pairs of nodes, got {shown(edges)}")
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
    results = map(job, questions) if workers == 1 else _parallel(job, questions, workers)
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
            edges = np.stack([data.input_data.row, data.input_data.col], 1)
    sampled = isinstance(data, (NodeLoader, LinkLoader, RandomNodeLoader))
    return nodes, edges, data.data if sampled else data


def _questions_about(
    data: Any, nodes: Any, edges: Any, options: dict[str, Any]
) -> tuple[Any, Sequence[int], Any]:
    """One graph as `Data`, the nodes (or positions of links) to explain, and the links."""
    positions, data = node_positions(data), as_data(data)
    count = check_graph(data).num_nodes
    names = find_names(data, node_names=options.get("node_names"), positions=positions)
    if edges is not None:
        return data, range(len(edges)), [names.node_group(edge) for edge in edges]
    listed = range(count) if nodes is None else node_list(names.node_group(nodes), count)
    return data, listed, None


def _with_progress(
    results: Iterable[Explanation | Failure],
    count: int,
    progress: bool | None,
    on_failure: Callable[[Failure], None],
) -> Generator[Explanation, None, None]:
    from rich import progress as rich  # noqa: PLC0415  (slow to import)

    from graphsvx.utils.console import progress_bar  # noqa: PLC0415  (rich)

    visible = sys.stderr.isatty() if progress is None else progress
    columns = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
    with progress_bar(rich.TextColumn("{task.description}"), *columns, shown=visible) as bar:
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


def _parallel(job: _Job, questions: Iterable[int], workers: int) -> Iterator[Explanation | Failure]:
    if processes.can_fork() and not job.whole_graphs:
        # Index once here, not in every worker.
        out_edges(check_graph_of(job.model, job.data))
    waiting = iter(questions)
    for item, result in processes.imap_unordered(job.as_dict, lambda: next(waiting, None), workers):
        if isinstance(result, processes.WorkerDied):
            yield Failure(item, ModelError("the worker process died; is there enough memory?"))
        else:
            yield result if isinstance(result, Failure) else Explanation.from_dict(result)
