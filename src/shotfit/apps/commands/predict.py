"""shotfit predict"""

import json
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from shotfit.apps import options
from shotfit.apps.arguments import ListCommand
from shotfit.errors import UsageError

EXAMPLES = (
    "shotfit predict pets photos/1.jpg --top 3",
    "shotfit predict pets photos --out answers.csv --skip-broken",
)


class PredictCommand(ListCommand):
    """`--ray` alone means Ray on this machine, `--reject` and `--sets` their usual rates."""

    implied: ClassVar = {"--ray": "local", "--reject": "0.05", "--sets": "0.9"}


command_class = PredictCommand


def predict(
    model: Annotated[str, typer.Argument(help="A saved classifier.")],
    images: Annotated[list[str], typer.Argument(help="Images, folders or glob patterns.")],
    classes: options.Classes = None,
    top: Annotated[int, typer.Option(min=1, help="Answers per image.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write here instead of printing, as the name ends: .csv, .tsv, .jsonl or "
            ".parquet. The same command goes on where it was interrupted."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    skip_broken: Annotated[
        bool,
        typer.Option("--skip-broken", help="Note images that cannot be read, and go on."),
    ] = False,
    reduced: Annotated[
        bool,
        typer.Option(
            "--reduced", help="Read large images at a fraction of their size: faster, not the same."
        ),
    ] = False,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="[RATE]",
            help='Say "none of these" where an image fits no class, by a threshold that refuses '
            "this share of trained images: 0.05 where none is given.",
        ),
    ] = None,
    sets: Annotated[
        float | None,
        typer.Option(
            metavar="[COVERAGE]",
            help="Add the set of classes that holds the right one with this probability: 0.9 where "
            "none is given.",
        ),
    ] = None,
    published_scores: options.PublishedScores = False,
    int8: options.Int8 = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in one pass.")] = 64,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Predict on Ray: on this machine, or on the cluster at host:port, "
            "ray://host:port or auto.",
        ),
    ] = None,
    cpus_per_replica: Annotated[
        float | None, typer.Option(min=0, help="CPUs of a classifier on Ray. [default: 1]")
    ] = None,
    gpus_per_replica: Annotated[
        float | None, typer.Option(min=0, help="GPUs of it, also fractions. [default: 0]")
    ] = None,
    backbone: options.SavedBackbone = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Name the class of images, as many as there are."""
    from shotfit.apps.predict import stream
    from shotfit.apps.predict.output_file import PredictionFile
    from shotfit.apps.predict.summary import Summary
    from shotfit.apps.predict.table_file import escaped
    from shotfit.apps.pretrained import confirmed
    from shotfit.data.image_files import check_named_files
    from shotfit.system.terminal import printable

    question = stream.Question(
        model,
        options.class_names(classes),
        top,
        int8,
        reduced,
        published_scores=published_scores,
        reject=reject,
        sets=sets,
        contents=out is not None,
        backbone=confirmed(model, backbone),
    )
    if ray is None and not (cpus_per_replica is None and gpus_per_replica is None):
        raise UsageError("--cpus-per-replica and --gpus-per-replica are about --ray; add it.")
    replica = (1 if cpus_per_replica is None else cpus_per_replica, gpus_per_replica or 0)
    total, identity = stream.identity(question, images)
    if not skip_broken:
        check_named_files(images)
    how = {
        "total": total,
        "batch_size": batch_size,
        "device": device,
        "ray": None if ray is None else _ray_options(ray, *replica),
        "skip_broken": skip_broken,
        "quiet": quiet,
    }
    summary = Summary()
    if out is None:
        for rows in stream.predictions(question, images, **how):
            summary.add(rows)
            for row in rows:
                print(
                    escaped(json.dumps(row, ensure_ascii=False))
                    if as_json
                    else printable(_words(row))
                )
    else:
        with PredictionFile(out, identity, overwrite=overwrite) as file:
            changed = file.keep_unchanged(stream.find_images(images), batch_size)
            if changed is not None:
                print(
                    f"{printable(changed)} is another image by now; {file.rows:,} rows before it "
                    "are kept, and the rest is answered again.",
                    file=sys.stderr,
                )
            summary.add(file.read())
            for rows in stream.predictions(question, images, skip=file.rows, **how):
                file.write(rows)
                summary.add(rows)
            file.finish()
    if not quiet and (total > 1 or out is not None):
        print(summary, file=sys.stderr)


def _ray_options(address: str, cpus: float, gpus: float):
    from shotfit.apps.bench import ray_options  # much that no prediction here needs

    return ray_options(address, cpus, gpus)


def _words(row) -> str:
    if "error" in row:
        return f"{row['image']}: {row['error']}"
    answers = ", ".join(f"{a['class']} ({a['probability']:.0%})" for a in row["answers"])
    if row.get("refused"):
        answers = f"none of these (nearest: {answers})"
    among = f"; among {{{', '.join(row['set'])}}}" if "set" in row else ""
    return f"{row['image']}: {answers}{among}"
