"""The server as a Ray Serve deployment: replicas as the load wants, one version of the classes.

Every replica is the application of `serve.app` with a model of its own. The classes are kept by one
actor (`serve.keeping`), which every answer asks: a class that was added to one replica is there in
all of them before the request that added it is answered.
"""

import dataclasses
import importlib.util
import logging
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from shotfit.errors import DataError, UsageError
from shotfit.serve.app import make_app
from shotfit.serve.backends import load
from shotfit.serve.keeping import Keeper, SharedClasses
from shotfit.serve.settings import Settings
from shotfit.system.ray_cluster import RayOptions, connected

NAME = "shotfit"
UPSCALE_SECONDS = 5.0
"""How long replicas have more to do than a batch before another is started; Ray's 30 are long for
answers of milliseconds."""
NEEDED = "--ray needs Ray Serve: pip install 'shotfit[ray]'."


@dataclass(frozen=True)
class Replicas:
    """How many replicas answer, and what each of them is."""

    model: str
    """A folder that every machine of the cluster sees under this name."""
    threads: int = 1
    """Of the model in each replica, which also takes so many CPUs."""
    least: int = 1
    most: int = 1
    """Ray starts and stops replicas in between, so that each has a batch of requests at a time."""
    backbone: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise UsageError(
                f"There are at least one and at most {self.most} replicas, got {self.least}."
            )


class Replica:
    """The application in a replica."""

    def __init__(self, replicas: Replicas, settings: Settings, keeper: Any) -> None:
        classifier = load(replicas.model, threads=replicas.threads, backbone=replicas.backbone)
        self._app = make_app(classifier, settings, SharedClasses(classifier, keeper))

    def __serve_build_asgi_app__(self) -> FastAPI:
        """What answers; Ray Serve asks for it."""
        return self._app


def run_on_ray(
    replicas: Replicas, settings: Settings, address: str | None, host: str, port: int
) -> None:
    """Answers until the process is told to end; then requests in flight are finished.

    Raises:
        UsageError: when Ray or Ray Serve is not installed, or no machine is large enough.
        DataError: when the cluster cannot be reached, or its replicas do not start.
    """
    if Path(replicas.model).expanduser().exists():
        # Replicas work in folders of their own.
        model = Path(replicas.model).expanduser().resolve()
        replicas = dataclasses.replace(replicas, model=str(model))
    # Read here too: a folder that cannot be used is told at once, by its own error.
    classifier = load(replicas.model, backbone=replicas.backbone, save=settings.save)
    # By its folder where there is one: a restarted keeper then needs nothing of this process.
    start = classifier.matrix if classifier.folder is None else str(classifier.folder)
    if importlib.util.find_spec("ray") is None:
        raise UsageError(NEEDED)
    with connected(RayOptions(address, cpus=replicas.threads)) as ray:
        serve = _ray_serve()
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        keeper = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Keeper)
        kept = keeper.remote(start, settings.save)
        seconds = settings.max_seconds
        serve.start(http_options={"host": host, "port": port, "request_timeout_s": 2 * seconds})
        try:
            serve.run(
                _deployment(serve, replicas, settings).bind(replicas, settings, kept),
                name=NAME,
                route_prefix="/",
            )
        except RuntimeError as error:
            raise DataError(f"The replicas do not start: {error}") from error
        ended.wait()
        # Ours alone: the cluster may serve others, too.
        serve.delete(NAME)


def _ray_serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise UsageError(f"{NEEDED} ({error})") from None
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    return serve


def _deployment(serve: Any, replicas: Replicas, settings: Settings) -> Any:
    fixed = replicas.least == replicas.most
    scaling = {
        "min_replicas": replicas.least,
        "max_replicas": replicas.most,
        "target_ongoing_requests": settings.batch_size,
        "upscale_delay_s": UPSCALE_SECONDS,
    }
    return serve.deployment(
        name=NAME,
        num_replicas=replicas.least if fixed else None,
        autoscaling_config=None if fixed else scaling,
        ray_actor_options={"num_cpus": replicas.threads},
        max_ongoing_requests=settings.max_requests,
        # Beyond these Ray answers 503, as one server does beyond `max_requests`.
        max_queued_requests=settings.max_requests,
        graceful_shutdown_timeout_s=settings.max_seconds + 1,
    )(serve.ingress()(Replica))
