"""Several data sets at one address: a start page that lists them, and an explorer of each.

A set is loaded, and its model trained, when something of it is asked for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from threading import Lock

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from graphsvx.errors import GraphSVXError
from graphsvx.explorer.app import API, Explorer, not_found, page, problem, static_file
from graphsvx.explorer.guard import Guard, Secrets
from graphsvx.explorer.questions import Limits
from graphsvx.explorer.workspace import Workspace


@dataclass(frozen=True)
class OfferedSet:
    """A data set of the start page."""

    about: str
    """What it is, in one sentence."""
    load: Callable[[], Workspace]


class ExplorerOfSets:
    """The application of several data sets: `/` lists them, `/sets/NAME/` explores one."""

    def __init__(self, sets: Mapping[str, OfferedSet], limits: Limits | None = None) -> None:
        self.sets, self.limits = sets, limits or Limits()
        self._explorers: dict[str, Explorer] = {}
        self._locks = {name: Lock() for name in sets}

    def app(self, keys: Secrets, hosts: frozenset[str]) -> Guard:
        """The application behind its guard."""
        routes: list[BaseRoute] = [
            Route("/", self.start_page),
            Route("/static/{name}", static_file),
        ]
        for name in self.sets:
            of_set = [
                Mount(API, app=_InterfaceOfSet(self, name)),
                Route("/", page),
                Route("/static/{name}", static_file),
            ]
            routes.append(Mount(f"/sets/{name}", routes=of_set))
        inner = Starlette(routes=routes, exception_handlers={404: not_found})
        return Guard(inner, keys, hosts, self.limits.target)

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
        return Response(PAGE.format(cards=cards), media_type="text/html")


class _InterfaceOfSet:
    """Requests to the interface of one set."""

    def __init__(self, owner: ExplorerOfSets, name: str) -> None:
        self._owner, self._name = owner, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            explorer = await run_in_threadpool(self._owner.explorer, self._name)
        except GraphSVXError as error:
            await problem(400, str(error))(scope, receive, send)
            return
        await explorer.interface(scope, receive, send)


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="static/icon.svg">
<link rel="stylesheet" href="static/page.css">
<link rel="stylesheet" href="static/explorer.css">
<title>Data sets · graphsvx explorer</title>
</head>
<body>
<header class="bar">
  <div class="brand"><img src="static/icon.svg" alt="" width="22" height="22"><h1>graphsvx</h1></div>
</header>
<main id="main" class="sets">
<p>Choose a data set. Its model is trained when it is opened for the first time, which takes some seconds.
Your own model and data: <code>graphsvx serve my-data.pt --model my_module:build</code>, or
<code>graphsvx.serve(model, data)</code> in Python.</p>
<ul>{cards}</ul>
</main>
</body>
</html>
"""  # noqa: E501  (a page)
