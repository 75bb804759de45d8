"""The routes: predict, list and change classes, health, readiness, metrics."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, File, Header, Path, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException

from shotfit import __version__
from shotfit.errors import DataError, UsageError
from shotfit.runtime import ExportedClassifier
from shotfit.serve.answers import Question
from shotfit.serve.described import page
from shotfit.serve.keeping import Kept
from shotfit.serve.limits import Limits
from shotfit.serve.messages import (
    EXAMPLES,
    Classes,
    JsonImage,
    JsonImages,
    Names,
    Predictions,
    Problem,
    question,
)
from shotfit.serve.service import Service
from shotfit.serve.settings import Settings
from shotfit.serve.uploads import Refused, check_count, from_address, from_base64

PROBLEMS: dict[int | str, dict[str, Any]] = {
    413: {"model": Problem, "description": "Beyond a limit of the server."},
    422: {"model": Problem, "description": "An image, a name or a question that cannot be used."},
    503: {"model": Problem, "description": "Too many requests at once: try again."},
    504: {"model": Problem, "description": "Not answered in time."},
}
PREDICTED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"examples": EXAMPLES}}},
    **PROBLEMS,
}


def make_app(
    classifier: ExportedClassifier, settings: Settings | None = None, kept: Kept | None = None
) -> FastAPI:
    """The application of one classifier, whose classes are `kept` here if nowhere else."""
    settings = settings or Settings()
    service = Service(classifier, settings, kept)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    # FastAPI's own pages would be loaded from elsewhere.
    app = FastAPI(
        title="ShotFit", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.add_middleware(Limits, settings=settings, metrics=service.metrics)  # type: ignore[arg-type]
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(DataError, _unusable)
    app.add_exception_handler(UsageError, _unusable)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _not_for_us)
    app.add_exception_handler(Exception, _failed)
    _add_predictions(app, service)
    _add_classes(app, service)
    _add_state(app, service)
    _add_pages(app)
    return app


def _add_predictions(app: FastAPI, service: Service) -> None:
    described: dict[str, Any] = {
        "response_model": Predictions,
        "response_model_exclude_none": True,
        "responses": PREDICTED,
        "tags": ["predict"],
    }

    @app.post("/predict", **described)
    async def predict(
        files: Annotated[list[UploadFile], File()], asked: Annotated[Question, Depends(question)]
    ) -> Any:
        """Classify images that are uploaded as files."""
        images = [(file.filename or "image", await file.read()) for file in files]
        return await service.predict(images, asked)

    @app.post("/predict/json", **described)
    async def predict_json(request: JsonImages) -> Any:
        """Classify images in base64 or, where that is allowed, at addresses."""
        check_count(len(request.images), service.settings)
        images = [(image.name, await _content(image, service)) for image in request.images]
        return await service.predict(images, request.question)


async def _content(image: JsonImage, service: Service) -> bytes | Refused:
    try:
        if image.base64 is not None:
            return from_base64(image.base64)
        return await asyncio.to_thread(from_address, image.url or "", service.settings)
    except Refused as error:
        return error


def _add_classes(app: FastAPI, service: Service) -> None:
    def allowed(authorization: Annotated[str | None, Header()] = None) -> None:
        expected = service.settings.token
        if expected is None:
            raise Refused(403, "This server was started without a token; its classes are fixed.")
        scheme, _, given = (authorization or "").partition(" ")
        # Compared in constant time, and as hashes: how long it takes says nothing about how much is
        # right, nor how long the token is. A header's bytes are Latin-1 to the framework.
        right = hmac.compare_digest(
            _hash(given.strip().encode("latin-1")), _hash(expected.encode())
        )
        if scheme.lower() != "bearer" or not right:
            raise Refused(401, "Changes of classes need the header 'Authorization: Bearer TOKEN'.")

    guarded: dict[str, Any] = {
        "response_model": Classes,
        "responses": PROBLEMS,
        "tags": ["classes"],
        "dependencies": [Depends(allowed)],
    }

    @app.get("/classes", response_model=Classes, tags=["classes"])
    async def classes() -> Any:
        """The classes that are answered with, and how each is known."""
        return await service.classes()

    @app.post("/classes", **guarded)
    async def add(names: Names) -> Any:
        """Add classes by their names alone."""
        return await service.add(names.names)

    @app.delete("/classes/{name}", **guarded)
    async def remove(name: Annotated[str, Path()]) -> Any:
        """Stop answering with a class."""
        return await service.remove([name])

    @app.post("/classes/{name}/images", **guarded)
    async def correct(name: Annotated[str, Path()], file: Annotated[UploadFile, File()]) -> Any:
        """Say that an image is of this class."""
        return await service.correct((file.filename or "image", await file.read()), name)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["state"])
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @app.get("/ready", tags=["state"])
    async def ready() -> Response:
        """The model is loaded and answers."""
        status = 200 if service.ready else 503
        return JSONResponse({"ready": service.ready, **await service.classes()}, status)

    @app.get("/metrics", tags=["state"])
    async def metrics() -> Response:
        """What was counted, as Prometheus reads it."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_pages(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(page(app.openapi(), str(request.base_url)))

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("docs")


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return JSONResponse({"error": str(error)}, error.status, headers)


def _hash(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


async def _unusable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 422)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    """Where and why, without what was sent: that may be an image."""
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()[:5]]
    return JSONResponse({"error": "; ".join(found)}, 422)


async def _not_for_us(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """A fault of ours: what it was is in the log, and nowhere else."""
    return JSONResponse({"error": "The server failed; its log says how."}, 500)
