"""Connections of the server: so many at most, and none that waits for ever to send a request."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from graphsvx.explorer.limits import Limits


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
