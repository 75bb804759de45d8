"""Connections of HTTP: one that sends nothing does not stay for ever."""

import asyncio

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from shotfit.serve.settings import Settings

IDLE = 5
"""Seconds that a connection is kept open for its next request."""


def run(app: FastAPI, settings: Settings, host: str, port: int) -> None:
    """Answers until the process is told to end; then requests in flight are finished."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        http=protocol(settings.max_seconds),
        ws="none",
        server_header=False,
        timeout_keep_alive=IDLE,
        # No request takes longer than this, so that none is cut off.
        timeout_graceful_shutdown=int(settings.max_seconds) + 1,
    )


def protocol(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol, where the head of a request has come `seconds` after its connection or
    its first byte, or the connection is closed. uvicorn itself waits for ever."""

    class Connection(H11Protocol):
        """A connection that waits so long for a request."""

        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._wait()
            else:
                self._wait_no_more()

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def _wait(self) -> None:
            if self._waiting is None:
                self._waiting = self.loop.call_later(seconds, self._give_up)

        def _wait_no_more(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            self._waiting = None
            if self.conn.their_state is h11.IDLE:
                self.transport.close()

    return Connection
