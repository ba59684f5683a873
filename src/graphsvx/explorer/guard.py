"""What every request passes before it is answered: host, token, size; and headers of answers.

The page shows data that is nobody else's business, on a port that any page in the user's browser
can send requests to. Therefore:

- the Host header must name this machine, so that a foreign name that was made to resolve to
  127.0.0.1 (DNS rebinding) does not reach it;
- a secret token is needed: once in the address, from then on in a cookie that scripts cannot read
  and that requests from other sites do not carry; scripts send `Authorization: Bearer TOKEN`;
- browsers say where a request comes from (Sec-Fetch-Site, Origin); other sites' requests are
  refused;
- only GET and HEAD, no bodies, bounded addresses;
- the content security policy allows files of this server only, and no inline scripts.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from importlib import resources
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
FRAME = "/frame/"


@dataclass(frozen=True)
class Secrets:
    """Random secrets of one server."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """In the address that is printed, and for scripts."""
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    frame: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """In the path of the page in a notebook's frame, to which browsers send no strict cookie."""


class Guard:
    """ASGI middleware that answers requests itself that must not reach the application."""

    def __init__(self, app: ASGIApp, keys: Secrets, hosts: frozenset[str], target: int) -> None:
        self._app, self._keys, self._hosts, self._target = app, keys, hosts, target

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        framed = self._strip_frame(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                ancestors = "*" if framed else "'none'"
                headers["content-security-policy"] = POLICY.format(ancestors=ancestors)
            await send(message)

        refusal = self._refusal(scope, framed)
        answer = self._app if refusal is None else refusal
        await answer(scope, receive, send_with_headers)

    def _strip_frame(self, scope: Scope) -> bool:
        """Whether the path starts with the secret of the frame, which is then taken off."""
        prefix = f"{FRAME}{self._keys.frame}"
        path = scope["path"]
        if not path.startswith(FRAME) or not _same(path[: len(prefix)], prefix):
            return False
        scope["path"] = path[len(prefix) :] or "/"
        scope["raw_path"] = scope["path"].encode()
        return True

    def _refusal(self, scope: Scope, framed: bool) -> Response | None:
        headers = Headers(scope=scope)
        # A host name is compared first: nothing is said to those who come by another name.
        if headers.getlist("host") != [headers.get("host")] or (
            headers.get("host", "").lower() not in self._hosts
        ):
            return problem(421, "this server answers requests to its own address only")
        if scope["method"] not in ("GET", "HEAD"):
            return problem(405, "only GET is answered", {"allow": "GET, HEAD"})
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return problem(413, "requests must have no body")
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size > self._target:
            return problem(414, f"the address is too long: {size} bytes, at most {self._target}")
        if scope["path"].startswith("/static/"):
            return None  # files of the library, nothing of the user's
        return self._unauthorized(scope, headers, framed)

    def _unauthorized(self, scope: Scope, headers: Headers, framed: bool) -> Response | None:
        opens_page = scope["path"] == "/"
        site = headers.get("sec-fetch-site", "none")
        server = f"http://{headers['host']}"
        same_origin = headers.get("origin", server).lower() == server.lower()
        if not opens_page and not (same_origin and site in ("none", "same-origin")):
            return problem(403, "requests from other sites are refused")
        if framed:
            return None
        request = Request(scope)
        if opens_page and "token" in request.query_params:
            return self._exchange(request)
        if _same(request.cookies.get(_cookie_name(request), ""), self._keys.cookie):
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(token, self._keys.token):
            return None
        return _closed(opens_page)

    def _exchange(self, request: Request) -> Response:
        """The token of the address becomes a cookie, and leaves the address."""
        tokens = request.query_params.getlist("token")
        if len(tokens) != 1 or not _same(tokens[0], self._keys.token):
            return _closed(page=True)
        rest = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        response = RedirectResponse("/" + (f"?{urlencode(rest)}" if rest else ""), 303)
        response.set_cookie(
            _cookie_name(request), self._keys.cookie, path="/", httponly=True, samesite="strict"
        )
        return response


def _cookie_name(request: Request) -> str:
    """A name for each port: cookies do not know ports, and several servers may run."""
    return f"graphsvx-{request.scope['server'][1]}"


def _same(token: str, secret: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "replace"), secret.encode())


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error as JSON."""
    return JSONResponse({"error": message}, status, headers)


def _closed(page: bool) -> Response:
    if not page:
        return problem(401, "a token is needed: Authorization: Bearer TOKEN")
    return Response(html_page("closed"), 401, media_type="text/html")


def html_page(name: str) -> str:
    """A page of the explorer."""
    pages = resources.files("graphsvx.explorer").joinpath("static")
    return pages.joinpath(f"{name}.html").read_text("utf-8")
