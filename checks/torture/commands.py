"""Commands in processes of their own, forked so that each starts at once, and what they leave."""

import contextlib
import hashlib
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from shotfit.apps import cli
from torture.weights import write_open_clip

CHECKPOINT_SECONDS = "0.000001"
# What follows the clock, or a secret of the machine's user (`signature`, and the sum over it).
OWN_EACH_TIME = ("cost", "seconds", "timestamp", "environment", "signature", "checksum")
FEW = ("--shots", "2", "--iters-per-shot", "4", "--published-scores")


@dataclass(frozen=True)
class Command:
    """A command line in a folder that was prepared, and what its outcome comes to.

    `again` are the ways in which somebody goes on after it was broken off, the first that is not
    refused; `outcome` is equal for equal results, whatever was written when.
    """

    words: tuple[str, ...]
    again: tuple[tuple[str, ...], ...]
    outcome: Callable[[Path], object]
    refused: bool = False
    """Whether it ends with an error in any case."""


def commands() -> dict[str, Command]:
    """What is killed, crashed and run twice, by name."""
    model = ("--backbone", "backbone")
    fit = ("fit", "photos", *model, "--out", "out", "-q", *FEW)
    fit += ("--checkpoint-every", CHECKPOINT_SECONDS)
    resume = ("fit", "--resume", "--out", "out", "-q", "--checkpoint-every", CHECKPOINT_SECONDS)
    predict = ("predict", "model", "photos", *model, "--out", "out.jsonl", "-q")
    predict += ("--batch-size", "2")
    bench = ("bench", "--datasets", "photos", "--backbones", "backbone", "--methods", "zero_shot")
    bench += ("layernorm", "--shots", "1", "--results", "out", "-q", "-o", "training.iterations=2")
    study = ("--data", "photos", *model, "--shots", "1", "--results", "out", "--out", "out", "-q")
    dynamics = ("dynamics", "--method", "layernorm", "--iterations", "4", "--every", "2", *study)
    sweep = ("sweep", "alpha", "--values", "0.5", "--seeds", "1", "--iters-per-shot", "2", *study)
    evaluate = ("evaluate", "model", "photos", *model, "--csv", "out.csv", "-q")
    add = ("add-classes", "model", "orange", *model)
    remove = ("remove-classes", "model", "purple", *model)
    splits = ("splits", "make", "photos", "out", "--shots", "1", "--seeds", "1", "--seeds", "2")
    merged = ("export", "merged", "model", "out", *model)
    convert = ("convert", "open_clip", "out", "--tokenizer", "backbone")
    refused = ("convert", "scripted.pt", "out")
    return {
        "fit": Command(fit, (resume, (*fit, "--overwrite")), _answers),
        "predict": Command(predict, ((*predict, "--overwrite"),), _answers),
        "bench": Command(bench, (bench,), _records),
        "dynamics": Command(dynamics, (dynamics,), _answers),
        "sweep": Command(sweep, (sweep,), _records),
        "evaluate": Command(evaluate, (evaluate,), _answers),
        "add-classes": Command(add, (add,), _classes),
        "remove-classes": Command(remove, (remove,), _classes),
        "splits make": Command(splits, (splits,), _answers),
        "export merged": Command(merged, (merged,), _answers),
        "convert": Command(convert, (convert,), _answers),
        "convert, refused": Command(refused, (refused,), _answers, refused=True),
    }


def prepare(folder: Path, formats: Path) -> None:
    """Photographs in four colours, the tiny model in two forms, a classifier, and an archive that
    is no CLIP."""
    shutil.copytree(formats / "backbone", folder / "backbone")
    shutil.copytree(formats / "saved", folder / "model")
    shutil.copy(formats / "scripted.pt", folder)
    write_open_clip(folder / "backbone", folder / "open_clip")
    for part in ("train", "test"):
        for name in ("red", "blue", "green", "yellow"):
            place = folder / "photos" / part / name
            place.mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (16, 16 + number), name).save(place / f"{number}.png")


def import_what_they_need(formats: Path) -> None:
    """Imports here what every command imports in a process of its own, which its forked processes
    then start with. Nothing is run here: a process that has trained cannot be forked to train."""
    for command in commands().values():
        with tempfile.TemporaryDirectory() as scratch:
            folder, names = Path(scratch) / "work", Path(scratch) / "imported"
            folder.mkdir()
            prepare(folder, formats)
            finish(start(command.words, folder, after=lambda to=names: _write_imported(to)))
            for name in json.loads(names.read_text()):
                with contextlib.suppress(Exception):  # what can only be imported by another
                    importlib.import_module(name)


def _write_imported(path: Path) -> None:
    path.write_text(json.dumps(sorted(sys.modules)))


def start(
    words: tuple[str, ...],
    folder: Path,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> int:
    """Runs a command line in `folder`, in a forked process; its id. `before` and `after` are called
    in it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.chdir(folder)
        for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = str(folder)
        log = os.open(folder.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = ["shotfit", *words]
        before()
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        code = 70
    after()
    os._exit(code)


def finish(pid: int, seconds: float = 120) -> int:
    """Waits for a process; its exit code, negative for a signal.

    Raises:
        TimeoutError: when it hangs; it is killed then.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise TimeoutError(f"It did not end in {seconds:.0f} s.")


def litter(folder: Path) -> list[str]:
    """Hidden files and folders of ours that lie about."""
    found = [path.name for path in folder.rglob(".*")]
    return [name for name in found if name.endswith(".tmp") or name.startswith(".shotfit-")]


def _answers(folder: Path) -> object:
    """What the files hold that it has made, but for what differs from run to run."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    # Where it could not be written, a fit is saved in a folder out-….
    tops = [path.relative_to(folder).parts[0] for path in files]
    made = [path for path, top in zip(files, tops, strict=True) if re.match(r"out(?!-)", top)]
    return {str(path.relative_to(folder)): _content(path) for path in sorted(made)}


def _content(path: Path) -> object:
    if path.suffix == ".json":
        values = json.loads(path.read_text())
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if key not in OWN_EACH_TIME}
        return values
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _records(folder: Path) -> object:
    found = [json.loads(path.read_text()) for path in (folder / "out").rglob("*.json")]
    facts = ("id", "status", "metrics", "curve", "split_hash", "content")
    return sorted(json.dumps([record[key] for key in facts]) for record in found)


def _classes(folder: Path) -> object:
    settings = json.loads((folder / "model" / "shotfit.json").read_text())
    names = [*settings["trained_names"], *settings["added_names"]]
    # A name that is added twice is there twice; which ones are there is what counts.
    return sorted({names[place] for place in settings["kept"]})
