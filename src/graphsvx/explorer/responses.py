"""Requests and responses: query strings, JSON, events, errors, and the page's files."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graphsvx.errors import GraphSVXError, InputError, ModelError, first_line
from graphsvx.explorer.questions import Parameters
from graphsvx.explorer.work import BusyError, Work
from graphsvx.utils.printable import one_line

API = "/api/v1"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
SHARED = ("tools.js", "graph.js", "tables.js", "page.css")
"""Files of the one-file page that the explorer uses too."""
Handler = Callable[[Request], Awaitable[Response]]


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
            return _problem(503, str(error), {"retry-after": "2"})
        except ModelError as error:
            return _problem(500, str(error))
        except GraphSVXError as error:
            return _problem(400, str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return _problem(500, f"internal error: {first_line(error)}")

    return answer


async def page(_: Request) -> Response:
    """The page itself."""
    text = resources.files("graphsvx.explorer").joinpath("static", "index.html").read_text("utf-8")
    return Response(text, media_type="text/html")


async def static_file(request: Request) -> Response:
    """A script, style or picture of the page."""
    name = request.path_params["name"]
    package = "graphsvx.views.html" if name in SHARED else "graphsvx.explorer"
    folder = resources.files(package)
    if name not in SHARED:
        folder = folder.joinpath("static")
    ending = name[name.rfind(".") :]
    names = {entry.name for entry in folder.iterdir()}
    if name not in names or ending not in TYPES:
        return _problem(404, f"there is no file {one_line(name)[:60]!r}")
    return Response(folder.joinpath(name).read_text("utf-8"), media_type=TYPES[ending])


async def not_found(_: Request, __: Exception) -> Response:
    """The answer to an unknown address."""
    return _problem(404, f"there is nothing at this address; the interface is {API}/...")


def parameters_of(request: Request) -> Parameters:
    """The parameters of a request's query string."""
    try:
        pairs = parse_qsl(
            request.url.query, keep_blank_values=True, strict_parsing=bool(request.url.query),
            errors="strict", max_num_fields=64,
        )  # fmt: skip
    except ValueError as error:  # also UnicodeDecodeError
        raise InputError(f"the query string cannot be read: {first_line(error)}") from error
    return Parameters(pairs)


def _problem(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


def json_response(value: Any) -> Response:
    """A value as JSON."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def event(name: str, value: Any) -> str:
    """A server-sent event."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n"
