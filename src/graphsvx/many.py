"""Many explanations, as they are done, over any number of processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from graphsvx import graph as graphs
from graphsvx import processes
from graphsvx.api import explain
from graphsvx.constraints import Workers, checked, whole_number
from graphsvx.convert import from_dict
from graphsvx.errors import GraphSVXError, InputError, ModelError
from graphsvx.explanation import Explanation
from graphsvx.query import listed


@dataclass(frozen=True)
class Failure:
    """A question that could not be answered, and why."""

    which: int
    """The node, or the position of the graph or link in its list."""
    error: GraphSVXError


@dataclass(frozen=True, eq=False)
class _Job:
    """Everything that a worker needs besides the number of the question."""

    model: Callable[..., Any]
    data: Any
    whole_graphs: bool
    links: Sequence[tuple[int, int]] | None
    options: dict[str, Any]

    def __call__(self, which: int) -> Explanation | Failure:
        try:
            if self.links is not None:
                return explain(self.model, self.data, edge=self.links[which], **self.options)
            if not self.whole_graphs:
                return explain(self.model, self.data, node=which, **self.options)
            found = explain(self.model, self.data[which], graph=True, **self.options)
            return replace(found, extra={**found.extra, "graph": which})
        except GraphSVXError as error:
            return Failure(which, error)

    def plainly(self, which: int) -> dict[str, Any] | Failure:
        """Plain numbers: between processes, tensors would go through a shared file each."""
        result = self(which)
        return result if isinstance(result, Failure) else result.to_dict()


def explain_many(
    model: Callable[..., Any],
    data: Any,
    nodes: Sequence[int] | Tensor | None = None,
    *,
    edges: Sequence[tuple[int, int]] | None = None,
    workers: int = 1,
    progress: bool | None = None,
    on_failure: Callable[[Failure], None] | None = None,
    **options: Any,
) -> Iterator[Explanation]:
    """Explain many nodes or links of one graph, or a list of graphs, each as it is done.

    Args:
        model: as for `explain`.
        data: one graph with `nodes`, or a list of graphs (each is explained as a whole; the
            position in the list is `explanation.extra["graph"]`).
        nodes: the nodes to explain; all of them if left out.
        edges: the links to explain instead, as pairs of nodes.
        workers: processes to use. The result of a question does not depend on it.
        progress: show a bar on standard error; by default if that is a terminal.
        on_failure: called with each `Failure`; by default it is printed on standard error.
            A failure does not stop the others.
        options: everything else that `explain` takes (method, target, seed, ...).

    """
    workers = checked(workers, Workers, "workers")
    whole_graphs = isinstance(data, (list, tuple))
    if whole_graphs and (nodes is not None or edges is not None):
        raise InputError("a list of graphs is explained as whole graphs; leave nodes and edges out")
    if nodes is not None and edges is not None:
        raise InputError("explain_many explains nodes or edges, got both")
    if whole_graphs or edges is not None:
        questions: Sequence[int] = range(len(data if edges is None else edges))
    elif nodes is None:
        questions = range(graphs.check(data).num_nodes)
    else:
        count = graphs.check(data).num_nodes
        questions = [whole_number(node, "each of nodes") for node in listed(nodes, count)]
    job = _Job(model, data, whole_graphs, edges, options)
    results = _alone(job, questions) if workers == 1 else _together(job, questions, workers)
    # A generator of its own, so that wrong arguments are refused at the call.
    return _reported(results, len(questions), progress, on_failure or _print_failure)


def _reported(
    results: Iterable[Explanation | Failure], count: int, progress: bool | None,
    on_failure: Callable[[Failure], None],
) -> Iterator[Explanation]:  # fmt: skip
    shown = sys.stderr.isatty() if progress is None else progress
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("explaining", total=count)
        for result in results:
            bar.advance(task)
            if isinstance(result, Failure):
                on_failure(result)
            else:
                yield result


def _print_failure(failure: Failure) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"not explained: {failure.which}: {failure.error}", style="yellow", markup=False
    )


def _alone(job: _Job, questions: Iterable[int]) -> Iterator[Explanation | Failure]:
    for which in questions:
        yield job(which)


def _together(job: _Job, questions: Iterable[int], workers: int) -> Iterator[Explanation | Failure]:
    if processes.forks() and not job.whole_graphs:
        graphs.outward(graphs.check(job.data))  # index once here, not in every worker
    waiting = iter(questions)
    for which, result in processes.pooled(job.plainly, lambda: next(waiting, None), workers):
        if isinstance(result, processes.Died):
            yield Failure(which, ModelError("the worker process died; is there enough memory?"))
        else:
            yield result if isinstance(result, Failure) else from_dict(result)
