"""explain_many(): many questions about one graph, or one about each of many graphs."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

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
from graphsvx.utils.exclusive import Interrupted

QuestionKind = Literal["node", "nodes", "edge", "graph"]
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
class Job:
    """Model, data and options of many questions: all that a worker needs besides their numbers."""

    model: Callable[..., Any]
    data: Any
    """One graph, or a list of graphs."""
    kind: QuestionKind
    options: dict[str, Any]
    members: Sequence[Any] = ()
    """Links and groups of nodes, as `explain` takes them, by their position."""
    node_type: str | None = None
    """HeteroData: the type of the nodes."""

    def question(self, item: int) -> tuple[Any, dict[str, Any]]:
        """The graph that a question is about, and the argument of `explain` that asks it."""
        if self.kind == "graph":
            return self.data[item], {"graph": True}
        if self.kind != "node":
            return self.data, {self.kind: self.members[item]}
        return self.data, {"node": item if self.node_type is None else (self.node_type, item)}

    def check(self, items: Iterable[int]) -> None:
        """Raise what is wrong with all questions.

        The first one that can be asked tells that the arguments go together. Failures of the model
        are left to the questions.
        """
        method = self.options.get("method")
        method = DEFAULT if method is None else check_method(method)
        few = {**self.options, "method": GraphSVX(samples=2, estimator=WLS())}
        errors: list[InputError] = []
        for data, question in map(self.question, islice(items, 10)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # each explanation warns itself
                    query = explain(self.model, data, **question, **few).question.query
            except InputError as error:
                errors.append(error)
            except Exception:  # whatever else fails is told by the questions themselves
                return
            else:
                check_question(method, query)
                return
        if errors:
            raise errors[0]

    def explained(self, item: int) -> Explanation:
        """The explanation that answers a question."""
        data, question = self.question(item)
        explanation = explain(self.model, data, **question, **self.options)
        if self.kind != "graph":
            return explanation
        return replace(explanation, graph_index=item).with_question(explanation.question)

    def explain(self, item: int) -> Explanation | Failure:
        """The same; whatever is raised, unless it stops the work, becomes a `Failure`."""
        try:
            return self.explained(item)
        except (KeyboardInterrupt, GeneratorExit, Interrupted):
            raise
        except BaseException as error:  # a single failure must not stop the others
            return failure_of(item, error)

    def index(self) -> None:
        """Index the edges here, once, where forked workers share the memory."""
        if processes.can_fork() and self.kind != "graph":
            out_edges(check_graph_of(self.model, self.data))


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
    if collection is not None and (nodes is not None or edges is not None):
        raise InputError("a list of graphs is explained as whole graphs; leave nodes and edges out")
    if nodes is not None and edges is not None:
        raise InputError("explain_many explains nodes or edges, got both")
    kind: QuestionKind = "node" if edges is None else "edge"
    node_type, count = None, 0
    if collection is not None:
        data, kind, count = collection, "graph", len(collection)
    elif not is_typed(model, data):
        positions, data = node_positions(data), as_data(data)
        count = check_graph(data).num_nodes
        names = find_names(data, node_names=options.get("node_names"), positions=positions)
        nodes = None if nodes is None else names.node_group(nodes)
        edges = None if edges is None else [names.node_group(edge) for edge in edges]
    elif edges is None:
        node_type, nodes, count = nodes_of_one_type(data, nodes)
    links: Any = () if edges is None else edges
    everything = range(count if edges is None else len(links))
    questions = everything if nodes is None else node_list(nodes, count)
    workers = min(workers, max(1, len(questions)))
    job = Job(model, data, kind, options, links, node_type)
    # Node 0 for any node: one that does not exist is a failure of its question.
    job.check([0] if kind == "node" and len(questions) else questions)
    results = map(job.explain, questions) if workers == 1 else _parallel(job, questions, workers)
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


def _parallel(job: Job, questions: Iterable[int], workers: int) -> Iterator[Explanation | Failure]:
    def answer(item: int) -> dict[str, Any] | Failure:
        # Plain values: tensors would use a shared file each between processes.
        result = job.explain(item)
        return result if isinstance(result, Failure) else result.to_dict()

    job.index()
    waiting = iter(questions)
    for item, result in processes.imap_unordered(answer, lambda: next(waiting, None), workers):
        if isinstance(result, processes.WorkerDied):
            yield Failure(item, ModelError("the worker process died; is there enough memory?"))
        else:
            yield result if isinstance(result, Failure) else Explanation.from_dict(result)
