"""Commands in processes of their own, forked so that each starts at once, and what they leave."""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from safetensors.numpy import load_file

from shotfit.apps import cli

CHECKPOINT_SECONDS = "0"
FEW = ("--shots", "2", "--iters-per-shot", "3", "--published-scores")


@dataclass(frozen=True)
class Command:
    """A command line in a folder that was prepared, and what its outcome comes to.

    `again` is how somebody goes on after it was broken off; `outcome` is equal for equal results,
    whatever was written when.
    """

    words: tuple[str, ...]
    again: tuple[str, ...]
    outcome: Callable[[Path], object]
    refused: bool = False
    """Whether it ends with an error in any case."""


def commands() -> dict[str, Command]:
    """What is killed, crashed and run twice, by name."""
    fit = ("fit", "photos", "--backbone", "backbone", "--out", "out", "-q", *FEW)
    fit += ("--checkpoint-every", CHECKPOINT_SECONDS)
    predict = ("predict", "model", "photos", "--backbone", "backbone", "--out", "out.jsonl")
    predict += ("-q", "--batch-size", "2")
    bench = ("bench", "--datasets", "photos", "--backbones", "backbone", "--methods", "zero_shot")
    bench += ("layernorm", "--shots", "1", "--results", "out", "-q", "-o", "training.iterations=2")
    add = ("add-classes", "model", "orange", "--backbone", "backbone")
    return {
        "fit": Command(fit, (*fit, "--overwrite"), _weights),
        "predict": Command(predict, (*predict, "--overwrite"), _answers),
        "bench": Command(bench, bench, _records),
        "add-classes": Command(add, add, _classes),
        "convert": Command(
            ("convert", "scripted.pt", "out"), ("convert", "scripted.pt", "out"), _nothing, True
        ),
    }


def prepare(folder: Path, formats: Path) -> None:
    """Photographs of two colours, the tiny model, a classifier, and an archive that is no CLIP."""
    shutil.copytree(formats / "backbone", folder / "backbone")
    shutil.copytree(formats / "saved", folder / "model")
    shutil.copy(formats / "scripted.pt", folder)
    for part in ("train", "test"):
        for name in ("red", "blue", "green", "yellow"):
            place = folder / "photos" / part / name
            place.mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (16, 16 + number), name).save(place / f"{number}.png")


def start(words: tuple[str, ...], folder: Path, before: Callable[[], None] | None = None) -> int:
    """Runs a command line in `folder`, in a forked process; its id. `before` is called in it."""
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
        if before is not None:
            before()
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        code = 70
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


def _weights(folder: Path) -> object:
    tensors = load_file(folder / "out" / "model.safetensors")
    return {name: hashlib.sha256(x.tobytes()).hexdigest() for name, x in sorted(tensors.items())}


def _answers(folder: Path) -> object:
    return (folder / "out.jsonl").read_text()


def _records(folder: Path) -> object:
    found = [json.loads(path.read_text()) for path in (folder / "out").rglob("*.json")]
    facts = ("id", "status", "metrics", "curve", "split_hash", "content")
    return sorted(json.dumps([record[key] for key in facts]) for record in found)


def _classes(folder: Path) -> object:
    settings = json.loads((folder / "model" / "shotfit.json").read_text())
    names = [*settings["trained_names"], *settings["added_names"]]
    # A name that is added twice is there twice; which ones are there is what counts.
    return sorted({names[place] for place in settings["kept"]})


def _nothing(folder: Path) -> object:
    """It is refused, and leaves no folder behind."""
    return sorted(path.name for path in folder.glob("out*"))
