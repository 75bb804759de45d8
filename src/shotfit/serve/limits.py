"""What is decided before a request is read: how many at once, how many bytes, how long."""

import asyncio
import time

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shotfit.serve.metrics import Metrics
from shotfit.serve.settings import Settings
from shotfit.serve.uploads import Refused

OPEN = ("/health", "/ready", "/metrics")
"""Answered however busy the server is."""
LINGER = 1.0
"""Seconds that are read on after a request was refused while it was sent: a connection that is
closed on unread bytes is reset, and its client would not see the answer."""


class _Body:
    """A request's body as it comes in: its bytes are counted, and whether it is complete."""

    def __init__(self, scope: Scope, receive: Receive, most: int) -> None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        self.declared = int(length) if length.isdigit() else 0
        self.complete = not self.declared and b"transfer-encoding" not in headers
        self.refusal: Refused | None = None
        """Why no more of it is taken. Kept, since whoever reads may take the error for another."""
        self._receive = receive
        self._most = most
        self._size = 0

    async def receive(self) -> Message:
        """The next piece.

        Raises:
            Refused: 413 for more bytes than may come.
        """
        message = await self._next()
        self._size += len(message.get("body", b""))
        self.check(self._size)
        return message

    def check(self, size: int) -> None:
        """Whether so many bytes may come.

        Raises:
            Refused: 413 where they are too many.
        """
        if size > self._most:
            self.refusal = Refused(413, f"At most {self._most:,} bytes in a request.")
            raise self.refusal

    async def read_on(self) -> None:
        """Reads, for a moment, what is still being sent, and forgets it."""
        try:
            async with asyncio.timeout(LINGER):
                while not self.complete:
                    await self._next()
        except TimeoutError:
            pass

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.complete = True
        return message


class Limits:
    """An ASGI middleware: 503 above the number of requests, 413 above the bytes, 408 for one that
    is not sent and 504 for one that is not answered in the seconds; and counts all."""

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
        body = _Body(scope, receive, self.settings.max_bytes)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if not body.complete:
                    # What still comes of this request must not be taken for the next, nor be
                    # received for ever.
                    headers = [*message.get("headers", ()), (b"connection", b"close")]
                    message = {**message, "headers": headers}
            await send(message)

        self.metrics.in_flight.inc()
        try:
            await self._answer(scope, body, noted)
        finally:
            self.metrics.in_flight.dec()
            # The route's own path: a name in it must not make a series of its own.
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - started)

    async def _answer(self, scope: Scope, body: _Body, send: Send) -> None:
        settings = self.settings
        if scope["path"] in OPEN:
            return await self.app(scope, body.receive, send)
        if self.running >= settings.max_requests:
            return await _refuse(Refused(503, "The server is busy."), body, send)
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            if body.refusal is None:
                begun = True
                await send(message)

        self.running += 1
        try:
            async with asyncio.timeout(settings.max_seconds):
                body.check(body.declared)
                await self.app(scope, body.receive, watched)
        except (Refused, TimeoutError) as error:
            if begun:
                raise
            late = isinstance(error, TimeoutError)
            body.refusal = _late(body, settings.max_seconds) if late else error
        finally:
            self.running -= 1
        if body.refusal is not None:
            await _refuse(body.refusal, body, send)


def _late(body: _Body, seconds: float) -> Refused:
    if body.complete:
        return Refused(504, f"Not answered in {seconds:g} seconds.")
    return Refused(408, f"The request was not sent in {seconds:g} seconds.")


async def _refuse(refusal: Refused, body: _Body, send: Send) -> None:
    """Answers with the reason, reads on for a moment, and ends."""
    headers = {"Retry-After": "1"} if refusal.status == 503 else None
    answer = JSONResponse({"error": str(refusal)}, refusal.status, headers)
    start = {"status": answer.status_code, "headers": answer.raw_headers}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    await body.read_on()
    await send({"type": "http.response.body", "body": b"", "more_body": False})
