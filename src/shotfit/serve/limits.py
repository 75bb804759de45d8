"""What is decided before a request is read: how many at once, how many bytes, how long."""

import asyncio
import time
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shotfit.serve.metrics import Metrics
from shotfit.serve.settings import Settings
from shotfit.serve.uploads import Refused

OPEN = ("/health", "/ready", "/metrics")
"""Answered however busy the server is."""


class Limits:
    """An ASGI middleware: 503 above the number of requests, 413 above the bytes, 504 above the
    seconds; and counts all."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or refuses."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.in_flight.inc()
        try:
            await self._answer(scope, receive, noted)
        finally:
            self.metrics.in_flight.dec()
            # The route's own path: a name in it must not make a series of its own.
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self.settings
        if scope["path"] in OPEN:
            return await self.app(scope, receive, send)
        if self.running >= settings.max_requests:
            refusal = _refusal(503, "The server is busy.", {"Retry-After": "1"})
            return await refusal(scope, receive, send)
        begun, size = False, 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > settings.max_bytes:
                raise Refused(413, f"At most {settings.max_bytes:,} bytes in a request.")
            return message

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        self.running += 1
        try:
            async with asyncio.timeout(settings.max_seconds):
                length = dict(scope["headers"]).get(b"content-length", b"0")
                if length.isdigit() and int(length) > settings.max_bytes:
                    raise Refused(413, f"At most {settings.max_bytes:,} bytes in a request.")
                await self.app(scope, counted, watched)
        except (Refused, TimeoutError) as error:
            if begun:
                raise
            status = error.status if isinstance(error, Refused) else 504
            reason = str(error) or f"Not answered in {settings.max_seconds:g} seconds."
            await _refusal(status, reason)(scope, receive, send)
        finally:
            self.running -= 1


def _refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> Any:
    return JSONResponse({"error": reason}, status, headers)
