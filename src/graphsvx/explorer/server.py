"""The running server: uvicorn in a thread, with a handle that closes it."""

from __future__ import annotations

import asyncio
import socket
import time
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from threading import Thread
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from graphsvx.errors import GraphSVXError, InputError
from graphsvx.explorer.app import OfferedSet, Site
from graphsvx.explorer.guard import Secrets
from graphsvx.explorer.questions import Limits
from graphsvx.explorer.workspace import Workspace
from graphsvx.utils.console import in_notebook, message
from graphsvx.utils.constraints import as_int

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Server:
    """A running explorer. Its address is `url`; `close()` stops it."""

    def __init__(
        self,
        served: Workspace | Mapping[str, OfferedSet],
        host: str,
        port: int,
        limits: Limits | None = None,
    ) -> None:
        self._keys = Secrets()
        self._socket = _listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        limits = limits or Limits()
        self._site = Site(served, limits)
        names = LOOPBACK if host in LOOPBACK else (host,)
        hosts = frozenset(f"{_in_address(name)}:{self.port}" for name in names)
        config = uvicorn.Config(
            self._site.app(self._keys, hosts),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
            ws="none",
            http=bounded_protocol(limits),
            h11_max_incomplete_event_size=64 * 1024,
            backlog=2048,
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            daemon=True,
            name="graphsvx server",
        )
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise GraphSVXError(f"the server could not start on {host}:{self.port}")
            time.sleep(0.01)

    @property
    def address(self) -> str:
        """Protocol, host and port."""
        return f"http://{_in_address(self.host)}:{self.port}"

    @property
    def token(self) -> str:
        """The secret that requests need: `Authorization: Bearer TOKEN`."""
        return self._keys.token

    @property
    def url(self) -> str:
        """The address that opens the page; it contains the token."""
        return f"{self.address}/?token={self.token}"

    def close(self) -> None:
        """Stop the server; the address is free afterwards."""
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._site.close()
        with suppress(OSError):
            self._socket.close()

    def wait(self) -> None:
        """Return when the server has stopped; Ctrl-C stops it."""
        try:
            while self._thread.is_alive():
                self._thread.join(timeout=0.5)
        finally:
            self.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """The page in a frame. Its path holds a secret: a frame gets no strict cookie."""
        source = escape(f"{self.address}/frame/{self._keys.frame}/", quote=True)
        return (
            f'<iframe src="{source}" title="graphsvx explorer" width="100%" height="820" '
            f'style="border:1px solid #8884;border-radius:8px" referrerpolicy="no-referrer" '
            f'allow="clipboard-write"></iframe>'
        )

    def __repr__(self) -> str:
        state = "running at" if self._thread.is_alive() else "closed, was at"
        return f"Server({state} {self.address})"


def start(
    served: Workspace | Mapping[str, OfferedSet],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool | None = None,
    announce: bool = False,
    limits: Limits | None = None,
) -> Server:
    """Start a server; print its address and open the browser unless told not to.

    Several data sets by name are listed on a start page, and loaded when they are opened.
    """
    port = as_int(port, "port")
    if not 0 <= port < 65536:
        raise InputError(f"port must be from 0 to 65535, got {port}")
    server = Server(served, host, port, limits)
    if announce:
        message(f"graphsvx explorer: {server.url}")
    if browser or (browser is None and not in_notebook()):
        with suppress(webbrowser.Error):
            webbrowser.open(server.url)
    return server


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another port, "
            f"or 0 for a free one"
        ) from error


# Connections of the server: so many at most, and none that waits for ever to send a request.


def bounded_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of a connection, which closes it where it exceeds the limits."""

    class BoundedProtocol(H11Protocol):
        """HTTP/1.1 with bounded headers (`h11_max_incomplete_event_size`)."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Start the time for a request's headers, or stop it where they have come."""
            waits = self.conn.their_state is h11.IDLE
            if waits and self._timer is None:
                self._timer = self.loop.call_later(limits.header_seconds, self.transport.abort)
            elif not waits and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return BoundedProtocol
