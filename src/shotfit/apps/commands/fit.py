"""shotfit fit"""

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from shotfit.apps import options, words
from shotfit.errors import UsageError
from shotfit.system.files import check_new

EXAMPLES = (
    "shotfit fit photos --shots 8 --preset fast --out pets",
    "shotfit fit photos --backbone openai/clip-vit-base-patch16 --minutes 30 --out pets",
)


def fit(
    data: Annotated[
        str | None,
        typer.Argument(
            help="A folder with one sub-folder per class, a .csv or .jsonl manifest, "
            "or an embedded task (see list-datasets)."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to save the classifier in.")] = Path("model"),
    preset: Annotated[
        str | None,
        typer.Option(
            help="A recipe by what it costs: instant, fast, balanced or published, which is the "
            "default (docs/speed-and-accuracy.md)."
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="The strongest preset that ends in so many minutes on this machine."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="2sfs, 2sfs:FIRST, or a method's name. [default: 2sfs]")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(help="Images per class to learn from. [default: all]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides shots and order. [default: 1]")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Hub id, folder, or iconclip. [default: iconclip]")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a hub id. [default: its newest]")
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option(
            help="all-to-all, or base-to-novel to train on the first half of the classes "
            "only. [default: all-to-all]"
        ),
    ] = None,
    iters_per_shot: Annotated[
        int | None,
        typer.Option(
            help="Iterations per shot, M, of two stages; of one, with --budget shared. "
            "[default: 300]"
        ),
    ] = None,
    first_fraction: options.FirstFraction = None,
    budget: options.Budget = None,
    option: options.MethodOptions = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, bf16 or fp16, for every stage. [default: the method's, fp32]"),
    ] = None,
    micro_batch: Annotated[
        str | None,
        typer.Option(
            help="Images per forward pass, or auto for what free memory holds: the whole batch's "
            "gradient in less memory."
        ),
    ] = None,
    checkpointing: Annotated[
        bool | None,
        typer.Option("--checkpointing", help="Recompute activations: less memory, more time."),
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option("--compile", help="Compile the image tower; see docs/performance.md."),
    ] = None,
    deterministic: Annotated[
        bool | None,
        typer.Option("--deterministic", help="Only kernels that repeat bit by bit."),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time of each stage goes.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Save the profile as a JSON trace (chrome://tracing, Perfetto)."),
    ] = None,
    observe: Annotated[
        Literal["tensorboard", "wandb", "mlflow", "trackio"] | None,
        typer.Option(
            help="Write the run's curves, config and metrics for a tracker, on this machine "
            "(docs/observing.md)."
        ),
    ] = None,
    observe_in: Annotated[Path, typer.Option(help="Folder for what --observe writes.")] = Path(
        "runs"
    ),
    keep_predictions: Annotated[
        bool,
        typer.Option("--keep-predictions", help="Save the test images' answers and logits too."),
    ] = False,
    template: Annotated[
        list[str] | None,
        typer.Option(
            help='Prompt with {} for the name; given several times, their mean. ["a photo of a '
            '{}."]'
        ),
    ] = None,
    templates: words.Templates = None,
    descriptions: words.Descriptions = None,
    fewshot: options.FewShot = None,
    image_memory: Annotated[
        str | None,
        typer.Option(help="Decoded images kept in memory, such as 500MB. [default: 2GiB]"),
    ] = None,
    image_disk: Annotated[
        str | None,
        typer.Option(help="Those beyond it, kept in a temporary file. [default: 16GiB]"),
    ] = None,
    full_size: Annotated[
        bool | None,
        typer.Option(
            "--full-size",
            help="Crop images at their full size, as published, and not at the nearest reduction "
            "that the crops need.",
        ),
    ] = None,
    published_scores: Annotated[
        bool | None,
        typer.Option(
            "--published-scores",
            help="Score trained rows and names as they are, as published, and not by the levels "
            "that held-out shots are asked for after the fit.",
        ),
    ] = None,
    skip_broken: Annotated[
        bool | None,
        typer.Option(
            "--skip-broken", help="Leave out images that cannot be read, say which, and go on."
        ),
    ] = None,
    on_interrupt: Annotated[
        Literal["keep", "discard"] | None,
        typer.Option(
            help="After Ctrl-C, save what is there as unfinished, or nothing. [default: asked on a "
            "terminal, else keep]"
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the fit that was broken off, from the checkpoint beside --out; its "
            "data and options need not be given again.",
        ),
    ] = False,
    checkpoint_every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Time between two checkpoints; 0 for none."),
    ] = 60.0,
    overwrite: options.Overwrite = False,
    config: options.ConfigFile = None,
    device: options.Device = None,
    root: options.Root = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Tune a classifier on a few images per class and save it."""
    from shotfit.apps.fit_options import FitOptions

    started = time.monotonic()
    given = FitOptions(
        preset=preset,
        minutes=minutes,
        method=method,
        shots=shots,
        seed=seed,
        backbone=backbone,
        revision=revision,
        setting=setting,
        iters_per_shot=iters_per_shot,
        first_fraction=first_fraction,
        budget=budget,
        option=option,
        precision=precision,
        micro_batch=micro_batch,
        checkpointing=checkpointing,
        compile=compile,
        deterministic=deterministic,
        template=template,
        templates=templates,
        descriptions=descriptions,
        fewshot=fewshot,
        image_memory=image_memory,
        image_disk=image_disk,
        full_size=full_size,
        skip_broken=skip_broken,
        published_scores=published_scores,
        data=data,
    )
    chosen = options.merged(config, given)
    if resume:
        chosen = FitOptions.resumed(out, chosen)
    if trace is not None and not trace.parent.is_dir():
        raise UsageError(f"There is no folder {trace.parent} for the trace.")
    if trace is not None:
        check_new(trace, overwrite=overwrite)
    from shotfit.apps.fit import Keeping, Timing, fit_and_save, observing, show_fit

    timing = None
    if not resume and (chosen.preset is not None or chosen.minutes is not None):
        timing = Timing(chosen.preset, chosen.minutes, started)

    def asked() -> FitOptions:
        if timing is None:
            return chosen
        return dataclasses.replace(chosen, preset=timing.preset, minutes=None)

    keeping = None
    if checkpoint_every or resume:
        keeping = Keeping(lambda: asked().as_given(), checkpoint_every or math.inf, resume)
    with observing(observe, observe_in, out) as tracker:
        found = fit_and_save(
            chosen.experiment(device),
            out,
            timing=timing,
            keeping=keeping,
            loading=chosen.loading(),
            deterministic=bool(chosen.deterministic),
            skip_broken=bool(chosen.skip_broken),
            device=device,
            root=root,
            quiet=quiet,
            profile=profile or trace is not None,
            tracker=tracker,
            keep_predictions=keep_predictions,
            on_interrupt=on_interrupt,
            published_scores=bool(chosen.published_scores),
            # What is there was to be replaced by the fit that goes on.
            overwrite=overwrite or resume,
        )
    asked().save(found.folder / "config.yaml")
    if as_json:
        plain = {"folder": str(found.folder), "record": found.record}
        if found.skipped:
            plain["skipped"] = list(found.skipped)
        if found.evaluation is not None:
            plain["evaluation"] = found.evaluation.plain()
        if found.unmeasured:
            plain["not_evaluated"] = found.unmeasured
        if found.expected is not None:
            plain["expected"] = found.expected.plain()
        if found.profile is not None:
            plain["profile"] = found.profile.plain()
        print(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        show_fit(found, timing)
    # Last: whatever becomes of it, the result has been shown.
    if found.profile is not None and trace is not None:
        found.profile.save_trace(trace)
    if found.record["status"] == "interrupted":
        raise typer.Exit(130)
