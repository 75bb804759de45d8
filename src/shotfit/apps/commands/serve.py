"""shotfit serve"""

from typing import Annotated, ClassVar

import typer

from shotfit.apps import options
from shotfit.apps.arguments import ListCommand
from shotfit.errors import UsageError

EXAMPLES = (
    'shotfit serve pets --port 8080 --token "$SECRET" --batch-delay 10',
    "shotfit serve pets-onnx --ray --min-replicas 2 --max-replicas 8 --threads 2",
)


class ServeCommand(ListCommand):
    """`--ray` alone means Ray on this machine."""

    implied: ClassVar = {"--ray": "local"}


command_class = ServeCommand


def serve(
    model: Annotated[str, typer.Argument(help="An exported folder, or a saved classifier.")],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to listen; 0 for any that is free.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SHOTFIT_TOKEN", help="What changes of classes need; none forbids them."
        ),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write changed classes into the exported folder.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at once.")] = 16,
    batch_delay: Annotated[
        float, typer.Option(min=0, help="Milliseconds that an image waits for others.")
    ] = 5.0,
    max_bytes: Annotated[int, typer.Option(min=1, help="Of a request.")] = 20_000_000,
    max_pixels: Annotated[int, typer.Option(min=1, help="Of an image.")] = 50_000_000,
    max_images: Annotated[int, typer.Option(min=1, help="Of a request.")] = 32,
    max_seconds: Annotated[float, typer.Option(help="Until a request is given up.")] = 30.0,
    max_requests: Annotated[int, typer.Option(min=1, help="Answered at once.")] = 256,
    allow_urls: Annotated[
        bool, typer.Option("--allow-urls", help="Fetch images from addresses in requests.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads of the model. [default: all cores; on Ray 1 of each replica]"
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Answer from replicas on Ray Serve: on this machine, or on the cluster at "
            "host:port, ray://host:port or auto.",
        ),
    ] = None,
    min_replicas: Annotated[
        int | None, typer.Option(min=1, help="Replicas on Ray, at least. [default: 1]")
    ] = None,
    max_replicas: Annotated[
        int | None,
        typer.Option(min=1, help="At most, as the load wants them. [default: --min-replicas]"),
    ] = None,
    backbone: options.SavedBackbone = None,
) -> None:
    """Answer over HTTP; the interface is described at /docs."""
    try:
        from shotfit.serve.app import make_app
        from shotfit.serve.connections import run
    except ImportError as error:
        raise UsageError(
            f"Serving needs its packages: pip install 'shotfit[serve]' ({error})."
        ) from None
    from shotfit.serve.backends import load
    from shotfit.serve.settings import Settings

    settings = Settings(
        token=token,
        save=save,
        batch_size=batch_size,
        batch_delay=batch_delay / 1000,
        max_bytes=max_bytes,
        max_pixels=max_pixels,
        max_images=max_images,
        max_seconds=max_seconds,
        max_requests=max_requests,
        allow_urls=allow_urls,
    )
    if ray is not None:
        from shotfit.serve.on_ray import Replicas, run_on_ray

        least = min_replicas or 1
        replicas = Replicas(model, threads or 1, least, max_replicas or least, backbone)
        where = None if ray == "local" else ray
        return run_on_ray(replicas, settings, where, host, port)
    if min_replicas or max_replicas:
        raise UsageError("--min-replicas and --max-replicas are about --ray; add it.")
    classifier = load(model, threads=threads, backbone=backbone, save=save)
    run(make_app(classifier, settings), settings, host, port)
