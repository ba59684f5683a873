"""The HTTP interface (`GET /api/v1/...`, docs/reference/explorer.md) and the page's files."""

from __future__ import annotations

import asyncio
import heapq
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from html import escape
from importlib import resources
from itertools import count
from threading import Condition, Lock, Thread
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from graphsvx.core.graph import Graph
from graphsvx.errors import GraphSVXError, InputError, ModelError, first_line
from graphsvx.explorer import overview
from graphsvx.explorer.answers import Answers, agreement_of, fidelity_by_top, refinable
from graphsvx.explorer.guard import Guard, Secrets, html_page, problem
from graphsvx.explorer.predictions import scores_after
from graphsvx.explorer.questions import (
    Limits,
    Parameters,
    Question,
    read_changes,
    read_node,
    read_question,
)
from graphsvx.explorer.workspace import Workspace
from graphsvx.utils.exclusive import Interrupted, interruptible
from graphsvx.utils.printable import one_line
from graphsvx.views import html

Result = TypeVar("Result")
API = "/api/v1"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
SHARED = ("tools.js", "graph.js", "tables.js", "page.css")
"""Files of the one-file page that the explorer uses too."""
Handler = Callable[[Request], Awaitable[Response]]
Compute = Callable[[], Any]
"""What a queue computes for a request whose parameters have been read: JSON, or a response."""


class Explorer:
    """What answers the questions about one workspace: handlers, queues and caches."""

    def __init__(self, workspace: Workspace, limits: Limits) -> None:
        self.workspace, self.limits = workspace, limits
        self.answers = Answers(workspace, self.limits)
        self.explaining = WorkQueue("graphsvx explanations", self.limits.waiting)
        self.predicting = WorkQueue("graphsvx predictions", self.limits.waiting)
        self._run_overview = lru_cache(1)(partial(overview.run_overview, workspace))

    @cached_property
    def interface(self) -> Starlette:
        """What is below `/api/v1`."""
        predicted = {
            "/workspace": self.about,
            "/nodes": self.rows,
            "/graphs": self.rows,
            "/graphs/{graph:int}.svg": self.thumbnail,
            "/features": self.features,
            "/predict": self.predict,
        }
        explained = {
            "/explain": self.explain,
            "/explain/page": self.page_record,
            "/explain/html": self.one_file_page,
            "/fidelity": self.fidelity,
            "/agreement": self.agreement,
            "/run": self.run,
        }
        handlers: dict[str, Handler] = {"/map": self.map, "/explain/stream": self.stream}
        for queue, functions in ((self.predicting, predicted), (self.explaining, explained)):
            handlers |= {path: _queued(queue, function) for path, function in functions.items()}
        routes = [Route(path, answering(handler)) for path, handler in handlers.items()]
        return Starlette(routes=routes, exception_handlers={404: not_found})

    def close(self) -> None:
        """Stop the queues."""
        self.explaining.close()
        self.predicting.close()

    # --- lists ---------------------------------------------------------------------------

    def about(self, _: Parameters) -> Compute:
        """What is served."""
        return partial(overview.about, self.workspace, self.limits)

    def rows(self, parameters: Parameters) -> Compute:
        """Nodes or graphs, filtered."""
        return overview.rows(self.workspace, parameters, self.limits)

    async def map(self, request: Request) -> Response:
        """Positions, classes and edges of the whole graph; not in a queue: it may take seconds."""
        parameters = parameters_of(request)
        model = parameters.choice("model", self.workspace.models)
        parameters.finish()
        shape = await run_in_threadpool(lambda: self._map)
        table = self.workspace.table(model)
        classes = None if table.label is None else table.label.tolist()
        wrong = np.flatnonzero(table.wrong).tolist()
        predicted = table.predicted.tolist()
        return json_response({**shape, "class": classes, "predicted": predicted, "wrong": wrong})

    @cached_property
    def _map(self) -> dict[str, Any]:
        workspace = self.workspace
        if not workspace.live or workspace.task == "graph":
            raise InputError("there is no single graph to draw; choose from the list")
        graph, limits = workspace.checked[0], self.limits
        if graph.num_nodes > limits.map_nodes or graph.num_edges > limits.map_edges:
            raise InputError(
                f"graphs of up to {limits.map_nodes:,} nodes and {limits.map_edges:,} edges are "
                f"drawn as a whole, this one has {graph.num_nodes:,} and {graph.num_edges:,}; use "
                f"the search"
            )
        return overview.map_of(graph)

    def thumbnail(self, parameters: Parameters) -> Compute:
        """A small drawing of a graph."""
        dark = parameters.choice("theme", ("light", "dark")) == "dark"
        workspace, graph = self.workspace, parameters.place["graph"]
        if not workspace.live or workspace.task != "graph" or graph >= len(workspace.graphs):
            raise InputError(f"there is no graph {graph}")
        return lambda: Response(
            overview.thumbnail(workspace, graph, dark), media_type="image/svg+xml"
        )

    def features(self, parameters: Parameters) -> Compute:
        """Features of a node, or of the whole graph, with names, values and means."""
        question, graph = self._asked(parameters)
        text = parameters.text("at")
        at = None if question.kind == "graph" else question.which[0]
        if text is not None:
            at = read_node(text, "at", graph.num_nodes, self.workspace.types)
        words = parameters.text("q")
        count = parameters.integer("limit", 1, self.limits.rows) or 50
        return partial(overview.feature_list, self.workspace, graph, at, words, count)

    # --- predictions and explanations ----------------------------------------------------

    def predict(self, parameters: Parameters) -> Compute:
        """The model's scores for a graph with nodes, edges or features changed."""
        question, graph = self._asked(parameters)
        changes = read_changes(
            parameters, graph.num_nodes, graph.num_features, self.workspace.types, self.limits
        )

        def answer() -> dict[str, Any]:
            scores = scores_after(self.workspace, question, changes).tolist()
            return {
                "scores": scores,
                "before": self.answers.original_scores(question),
                "predicted": int(np.argmax(scores)),
                "changes": changes.count,
                **self._row(question),
            }

        return answer

    def explain(self, parameters: Parameters) -> Compute:
        """An explanation in the library's own JSON schema."""
        question = self._question(parameters)
        return lambda: self.answers.explanation(question).to_dict()

    def page_record(self, parameters: Parameters) -> Compute:
        """What the page shows of an explanation."""
        return partial(self.answers.record, self._question(parameters))

    def one_file_page(self, parameters: Parameters) -> Compute:
        """The explanation as a page in one file, to be downloaded."""
        question, workspace = self._question(parameters), self.workspace
        types, ids = workspace.types, list(map(str, question.which))
        if types is not None:
            ids = ["-".join(map(str, types.named(node))) for node in question.which]
        name = "".join(c if c.isalnum() else "-" for c in "-".join([question.kind, *ids])) + ".html"

        def answer() -> Response:
            explanation = self.answers.explanation(question)
            data = workspace.graphs[question.graph] if workspace.live else None
            text = html.render(explanation, explanation.title, data=data)
            headers = {"content-disposition": f'attachment; filename="{name}"'}
            return Response(text, media_type="text/html", headers=headers)

        return answer

    async def stream(self, request: Request) -> Response:
        """Server-sent events: a quick estimate, then better ones until the tolerance is met."""
        parameters = parameters_of(request)
        question = self._question(parameters)
        parameters.finish()
        if not refinable(question):
            raise InputError(f"{question.method} has one answer; use {API}/explain/page")
        return StreamingResponse(
            self._estimates(question),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    async def _estimates(self, question: Question) -> AsyncIterator[str]:
        work: Work[dict[str, Any]] | None = None
        try:
            budgets = self.answers.budgets(question)
            for step, samples in enumerate(budgets):
                refined = replace(question, samples=samples)
                work = self.explaining.submit(partial(self.answers.record, refined), urgency=step)
                record = await asyncio.wrap_future(work)
                last = step == len(budgets) - 1 or self.answers.is_done(question, record)
                yield event("estimate", {**record, "final": last})
                if last:
                    return
        except GraphSVXError as error:
            yield event("failed", {"error": str(error)})
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            yield event("failed", {"error": f"internal error: {first_line(error)}"})
        finally:  # also when the client has left
            if work is not None:
                work.abandon()

    def fidelity(self, parameters: Parameters) -> Compute:
        """How the prediction changes without the top players, and with them alone."""
        return partial(fidelity_by_top, self.answers, self._asked(parameters)[0])

    def agreement(self, parameters: Parameters) -> Compute:
        """How far two explanations agree."""
        questions = []
        for name in ("a", "b"):
            of_one = Parameters(parse_qsl(parameters.text(name) or ""))
            questions.append(self._question(of_one))
            of_one.finish()
        explanation = self.answers.explanation
        return lambda: agreement_of(*map(explanation, questions))

    def run(self, _: Parameters) -> Compute:
        """Summary of the run."""
        run = self.workspace.run
        if run is None:
            raise InputError(
                "no run is open; make one with: graphsvx run DATASET --out FOLDER, and open it "
                "with: graphsvx serve FOLDER"
            )

        return lambda: self._run_overview(replace(run.status(), rate=None))

    # --- helpers -------------------------------------------------------------------------

    def _question(self, parameters: Parameters) -> Question:
        return read_question(parameters, self.workspace, self.limits)

    def _asked(self, parameters: Parameters) -> tuple[Question, Graph]:
        """A question to the model itself, and the graph that it is about."""
        question = self._question(parameters)
        if not self.workspace.live:
            raise InputError(
                "this run is shown without its model, so nothing new can be asked; start with the "
                "data set and model: graphsvx serve DATASET --model MODEL"
            )
        return question, self.workspace.checked[question.graph]

    def _row(self, question: Question) -> dict[str, Any]:
        if question.kind == "link":
            ends = " – ".join(map(self.workspace.node_name, question.which))
            return {"class": None, "wrong": False, "name": f"link {ends}"}
        table = self.workspace.table(question.model)
        entry = overview.row(self.workspace, table, question.which[0])
        return {name: entry[name] for name in ("class", "wrong", "name")}


def _queued(queue: WorkQueue, handler: Callable[[Parameters], Compute]) -> Handler:
    """Reads the parameters of a request at once; computes its answer in its turn."""

    async def handle(request: Request) -> Response:
        parameters = parameters_of(request)
        compute = handler(parameters)
        parameters.finish()
        # Drawings, of which a page asks for many, wait for everything else.
        urgency = int(request.url.path.endswith(".svg"))
        value = await finished(request, queue.submit(compute, urgency))
        return value if isinstance(value, Response) else json_response(value)

    return handle


# --- a queue of work for one thread ------------------------------------------------------


class BusyError(GraphSVXError):
    """Too much work is waiting."""


class Work(Future[Result]):
    """The result of a function that waits in a queue or runs."""

    unwanted = False
    """Whether nobody waits for the result: it is not started, or stops at its next model call."""

    def abandon(self) -> None:
        """Do not start it; stop it if it runs."""
        self.unwanted = True
        self.cancel()


class WorkQueue:
    """Runs functions one after the other in a thread of its own."""

    def __init__(self, name: str, most: int) -> None:
        self._most = most
        self._waiting: list[tuple[int, int, Work[Any], Callable[[], Any]]] = []
        self._numbers = count()
        self._change = Condition()
        self._closed = False
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Result], urgency: int = 0) -> Work[Result]:
        """Add work; a lower `urgency` is done earlier. Abandoning it takes it out."""
        work: Work[Result] = Work()
        with self._change:
            if self._closed:
                raise BusyError("the server is closing")
            self._waiting = [entry for entry in self._waiting if not entry[2].cancelled()]
            heapq.heapify(self._waiting)
            if len(self._waiting) >= self._most:
                raise BusyError(f"{self._most} questions are waiting already; ask again later")
            heapq.heappush(self._waiting, (urgency, next(self._numbers), work, function))
            self._change.notify()
        return work

    def waiting(self) -> int:
        """Number of functions that are neither started nor cancelled."""
        with self._change:
            return sum(not entry[2].cancelled() for entry in self._waiting)

    def close(self) -> None:
        """Cancel what has not started, and wait for what has."""
        with self._change:
            self._closed = True
            for entry in self._waiting:
                entry[2].cancel()
            self._change.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._waiting and not self._closed:
                    self._change.wait()
                if not self._waiting:
                    return
                _, _, work, function = heapq.heappop(self._waiting)
            if not work.set_running_or_notify_cancel():
                continue
            try:
                with interruptible(partial(getattr, work, "unwanted")):
                    work.set_result(function())
            except Interrupted:
                work.set_exception(CancelledError())
            except BaseException as error:  # raised by `result()`
                work.set_exception(error)


# --- answers -----------------------------------------------------------------------------


async def finished(request: Request, work: Work[Any]) -> Any:
    """The result; the work is abandoned if the client leaves."""
    result = asyncio.ensure_future(asyncio.wrap_future(work))
    left = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({result, left}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise asyncio.CancelledError
        return await result
    finally:
        left.cancel()
        result.cancel()
        work.abandon()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def answering(handler: Handler) -> Handler:
    """Errors of the library as JSON with a status code."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except asyncio.CancelledError:
            return Response(status_code=499)  # the client has gone
        except BusyError as error:
            return problem(503, str(error), {"retry-after": "2"})
        except GraphSVXError as error:
            return problem(500 if isinstance(error, ModelError) else 400, str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return problem(500, f"internal error: {first_line(error)}")

    return answer


async def page(_: Request) -> Response:
    """The page itself."""
    return Response(html_page("index"), media_type="text/html")


async def static_file(request: Request) -> Response:
    """A script, style or picture of the page."""
    name = request.path_params["name"]
    folder = resources.files("graphsvx.explorer").joinpath("static")
    if name in SHARED:
        folder = resources.files("graphsvx.views.html")
    kind = TYPES.get(name[name.rfind(".") :])
    if kind is None or name not in {entry.name for entry in folder.iterdir()}:
        return problem(404, f"there is no file {one_line(name)[:60]!r}")
    return Response(folder.joinpath(name).read_text("utf-8"), media_type=kind)


PAGE_ROUTES: list[BaseRoute] = [Route("/", page), Route("/static/{name}", static_file)]


async def not_found(_: Request, __: Exception) -> Response:
    """The answer to an unknown address."""
    return problem(404, f"there is nothing at this address; the interface is {API}/...")


def parameters_of(request: Request) -> Parameters:
    """The parameters of a request's query string."""
    try:
        pairs = parse_qsl(
            request.url.query,
            keep_blank_values=True,
            strict_parsing=bool(request.url.query),
            errors="strict",
            max_num_fields=64,
        )
    except ValueError as error:  # also UnicodeDecodeError
        raise InputError(f"the query string cannot be read: {first_line(error)}") from error
    return Parameters(pairs, request.path_params)


def json_response(value: Any) -> Response:
    """A value as JSON."""
    return Response(_json(value), media_type="application/json")


def event(name: str, value: Any) -> str:
    """A server-sent event."""
    return f"event: {name}\ndata: {_json(value)}\n\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


# --- the application: one workspace, or several data sets at one address --------------------


@dataclass(frozen=True)
class OfferedSet:
    """A data set of the start page; it is loaded, and its model trained, when it is opened."""

    about: str
    """What it is, in one sentence."""
    load: Callable[[], Workspace]


class Site:
    """A workspace at `/`; or several data sets: `/` lists them, `/sets/NAME/` explores one."""

    def __init__(self, served: Workspace | Mapping[str, OfferedSet], limits: Limits) -> None:
        self.limits, self._explorers = limits, dict[str, Explorer]()
        self.sets = {} if isinstance(served, Workspace) else served
        if isinstance(served, Workspace):
            self._explorers[""] = Explorer(served, limits)
        self._locks = {name: Lock() for name in ("", *self.sets)}

    def app(self, keys: Secrets, hosts: frozenset[str]) -> Guard:
        """The application behind its guard: interfaces, pages and their files."""
        routes: list[BaseRoute] = [Route("/", self.start_page), PAGE_ROUTES[-1]]
        if "" in self._explorers:
            routes = [Mount(API, app=self._interface("")), *PAGE_ROUTES]
        for name in self.sets:
            of_set = [Mount(API, app=self._interface(name)), *PAGE_ROUTES]
            routes.append(Mount(f"/sets/{name}", routes=of_set))
        inner = Starlette(routes=routes, exception_handlers={404: not_found})
        return Guard(inner, keys, hosts, self.limits.target)

    def _interface(self, name: str) -> ASGIApp:
        """Requests to the interface of one set."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                explorer = await run_in_threadpool(self.explorer, name)
            except GraphSVXError as error:
                await problem(400, str(error))(scope, receive, send)
                return
            await explorer.interface(scope, receive, send)

        return answer

    def explorer(self, name: str) -> Explorer:
        """The explorer of a set, which is loaded at the first call."""
        with self._locks[name]:
            if name not in self._explorers:
                self._explorers[name] = Explorer(self.sets[name].load(), self.limits)
            return self._explorers[name]

    def close(self) -> None:
        """Stop the queues of all sets."""
        for explorer in self._explorers.values():
            explorer.close()

    async def start_page(self, _: Request) -> Response:
        """The list of data sets."""
        cards = "".join(
            f'<li><a class="card" href="sets/{escape(name)}/"><h2>{escape(name)}</h2>'
            f"<p>{escape(offered.about)}</p></a></li>"
            for name, offered in self.sets.items()
        )
        return Response(html_page("sets").replace("{{cards}}", cards), media_type="text/html")
