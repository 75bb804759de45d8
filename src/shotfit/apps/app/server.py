"""The page on this computer: what browsers may load and ask for."""

import ipaddress
import os
from typing import Any

# Read when gradio is imported, which nothing may do before.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: E402
from starlette.types import ASGIApp, Message, Receive, Scope, Send  # noqa: E402

from shotfit.apps.app.page import STYLE, make_page, theme  # noqa: E402
from shotfit.apps.app.session import Session  # noqa: E402

POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "frame-ancestors 'none'",
    )
).encode()
"""What a browser may load for the page: nothing from elsewhere (Content Security Policy)."""


class OwnContentOnly:
    """An ASGI middleware: every answer says `POLICY`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers as the application does."""

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], (b"content-security-policy", POLICY)]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, marked)


def make_app(session: Session, first: str = "Pictures") -> FastAPI:
    """The application of a session, opened at the tab `first`."""
    app = FastAPI(openapi_url=None)
    app.add_middleware(OwnContentOnly)  # type: ignore[arg-type]
    if session.local:
        # A page of somebody else's, whose name is made to mean this computer, is not answered.
        names = ["localhost", "127.0.0.1", "[::1]"]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)  # type: ignore[arg-type]
    limits = session.project.pictures.limits
    options: dict[str, Any] = {
        "allowed_paths": [str(session.project.folder.resolve())],
        "max_file_size": limits.bytes,
        "footer_links": [],
        "ssr_mode": False,
        "theme": theme(),
        "css": STYLE,
    }
    return gr.mount_gradio_app(app, make_page(session, first), path="/", **options)


def is_local(host: str) -> bool:
    """Whether an address to listen at is this computer's alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
