"""docs/reliability.md, from the record."""

import json
from collections import Counter
from typing import Any

KINDS = ("kills", "crashes", "full disk", "short files", "two at once")
START = """# What was tried, how often, and what was lost

ShotFit is killed, crashed, starved of disk space, started twice at once, and fed rubbish. This
page is written from `results/reliability/record.json` by

```shell
make torture                        # all of it, with the counts of the command line
make torture ARGS="--scale 0.01"    # a hundredth of it
make torture ARGS="--part fuzz --only image --inputs 1000 --seed 7"
```

What is drawn is drawn from the seed. A run that is broken off goes on with what is missing
(`--again` starts anew). `make test` runs a small part
(`tests/checks/test_torture.py`).
"""

PROMISE = """
## No room

`tests/test_full_disk.py` saves each kind of result (classifiers, records, curves, figures, tables,
predictions in every format, evaluations, reports, exports, conversions, lists) where the disk is
full, and where the system lets no file become longer than 64 bytes: the command ends with exit code
3 and a sentence, what was there is there still, and the same command works when there is room
again. A checkpoint that cannot be written costs the checkpoint and not the fit; a classifier that
cannot be saved where it was asked for is saved elsewhere, which the message names. Test images are
opened before training: one that is cut off is told then.

## What is not promised

What a library in another language does between two file operations is not seen by the crash
points; kills and short files meet it too. What a kill leaves over is hidden, beside the result, and
nothing reads it. Hidden folders go when a classifier, an export or a conversion beside them is next
used or written, hidden files when the same file is written again (on Windows these stay).
Where the system cannot exchange two folders in one step, a kill between the renames can leave the
one that was replaced, under a hidden name. A classifier keeps one answer to
a picture, which `shotfit verify` compares; that is no proof that all others are as before.
Nothing here was tried on Windows or macOS, on a network file system, or with an accelerator.

## The same answer

On a processor with the same number of threads and the same versions, a fit gives the same bits in
every process, saved and loaded, broken off and resumed. Another number of threads, another
processor or version may change the last digits of a step, which training carries on: after some
updates of every method on a tiny model, two threads differ from one by less than 2e-5 of a loss
(`tests/test_every_process.py`, which also compares every method in two processes). A
micro-batch adds up the same gradients in another order, and draws the masks of a dropout (LoRA's)
for each of its parts, so that LoRA's numbers follow it. On CUDA, `--deterministic` asks for
kernels whose sums do not depend on timing; without it two runs may differ in the last digits.
`shotfit verify` compares to the bit where version, device and threads are those of when a
classifier was saved, and to 0.001 of a score elsewhere.
"""


def page(record: dict[str, Any], versions: dict[str, Any]) -> str:
    """The page as Markdown; `versions` is what checks/versions.py has kept."""
    made = {
        "interruptions": _interruptions,
        "fuzz": _fuzz,
        "guided": _guided,
        "leaks": _leaks,
    }
    parts = [
        f"{write(record[name])}\n\n{_said(record, name)}"
        for name, write in made.items()
        if name in record
    ]
    parts = [START, *parts, *([_versions(versions)] if versions else []), PROMISE]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _said(record: dict[str, Any], name: str) -> str:
    """The commands that asked for it, and what they took."""
    seconds = sum(unit["processor_seconds"] for unit in record[name].values())
    asked = Counter(json.dumps(unit["asked"], sort_keys=True) for unit in record[name].values())
    rows = "" if len(asked) == 1 else ", {} rows"
    commands = []
    for options, count in asked.most_common():
        words = " ".join(f"--{key} {value}" for key, value in json.loads(options).items())
        commands.append(f"`python -m torture run --part {name} {words}`{rows.format(count)}")
    return (
        f"{'; '.join(commands)}: {seconds / 60:.0f} minutes of one processor, on a machine with "
        f"{record['processors']}."
    )


def _interruptions(units: dict[str, Any]) -> str:
    lines = [
        "## Interrupted, and run again",
        "",
        "A command is killed at a random moment, ends at a file operation as if by a power cut,",
        "finds the disk full there, or may not make files longer than some bytes; then it is run",
        "again to its end. `fit` goes on with `--resume` where there is a checkpoint. Each cell",
        "has how often that gave the result of a run that nothing happened to, to the byte, of",
        "how many times.",
        "",
        "| command | file operations | kills | crashes | full disk | short files | two at once |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, unit in units.items():
        found = unit["found"]
        cells = [_cell(found[kind]) for kind in KINDS]
        lines.append(f"| `{name}` | {found['crashes']['operations']} | {' | '.join(cells)} |")
    resumed = sum(
        count
        for unit in units.values()
        for verdicts in unit["found"].values()
        for verdict, count in verdicts.items()
        if "resumed" in verdict
    )
    lines += ["", f"{resumed} of them went on from a checkpoint."]
    others = sorted(
        f"`{name}`, {kind}: {verdict}, {count} times"
        for name, unit in units.items()
        for kind, verdicts in unit["found"].items()
        for verdict, count in verdicts.items()
        if verdict not in ("operations", "same", "same, resumed")
    )
    if others:
        lines += ["", "Other outcomes:", "", *(f"- {line}" for line in others)]
    return "\n".join(lines)


def _cell(verdicts: dict[str, int]) -> str:
    tried = sum(n for verdict, n in verdicts.items() if verdict.startswith(("same", "lost")))
    same = sum(n for verdict, n in verdicts.items() if verdict.startswith("same"))
    return f"{same} of {tried}"


def _fuzz(units: dict[str, Any]) -> str:
    lines = [
        "## Fed with mutated files",
        "",
        "Of good files bytes are changed, cut out or put in, values in JSON exchanged for others",
        "that hypothesis draws, and tensors put under other names. A reader reads what comes, or",
        "refuses it in the words of a user's error; anything else, more than 5 seconds, or 2 GiB",
        "of memory is a failure. Those named `model` and `saved`, but for the saved record, load",
        "a model, which takes 5 to 40 milliseconds each time: they get a fiftieth of the inputs.",
        "",
        "| reader | inputs | read | refused | failed |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {name} | {_read(unit['found'])} |" for name, unit in units.items()]
    return "\n".join([*lines, "", _total(units)])


def _guided(units: dict[str, Any]) -> str:
    lines = [
        "## Led to lines not reached before",
        "",
        "[atheris](https://github.com/google/atheris) keeps inputs that reach a line of ShotFit's",
        "not reached before, and changes these further (the last column counts them).",
        "",
        "| reader | inputs | read | refused | failed | kept |",
        "|---|---|---|---|---|---|",
    ]
    for name, unit in units.items():
        lines.append(f"| {name} | {_read(unit['found'])} | {unit['found']['kept']:,} |")
    return "\n".join([*lines, "", _total(units)])


def _read(found: dict[str, Any]) -> str:
    failed = found.get("failed", 0) + found.get("slow", 0)
    numbers = (found["inputs"], found.get("read", 0), found.get("refused", 0), failed)
    return " | ".join(f"{number:,}" for number in numbers)


def _total(units: dict[str, Any]) -> str:
    total = sum(unit["found"]["inputs"] for unit in units.values())
    failures = sorted({one for unit in units.values() for one in unit["found"]["failures"]})
    kinds = f" Failures: {'; '.join(failures)}." if failures else " None failed."
    return f"{total:,} inputs in all.{kinds}"


def _leaks(units: dict[str, Any]) -> str:
    lines = [
        "## Repeated in one process",
        "",
        "| what | times | memory, more by | open files | threads |",
        "|---|---|---|---|---|",
    ]
    for name, unit in units.items():
        found = unit["found"]
        grown = f"{found['bytes'] / 1e6:.1f} MB"
        lines.append(
            f"| {name} | {found['times']:,} | {grown} | {found['files']:+} | {found['threads']:+} |"
        )
    return "\n".join(lines)


def _versions(runs: dict[str, Any]) -> str:
    lines = [
        "## With other versions",
        "",
        "The fast tests in fresh environments: `make oldest` has each package that ShotFit needs",
        "at the lowest version that `pyproject.toml` allows, `make newest` all at their newest.",
        "Tests of recorded digits are left out: they follow the pinned versions.",
        "`.github/workflows/test.yml` runs both; `make lower-bounds` has the extras at their",
        "lowest.",
        "",
        "| run | torch | transformers | Pillow | numpy | passed | failed | skipped |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, run in runs.items():
        found = [run["versions"][one] for one in ("torch", "transformers", "pillow", "numpy")]
        failed = run.get("failed", 0) + run.get("error", 0)
        counts = [f"{n:,}" for n in (run.get("passed", 0), failed, run.get("skipped", 0))]
        lines.append(f"| {' | '.join([name, *found, *counts])} |")
    notes = [f"{name}: {run['note']}" for name, run in runs.items() if "note" in run]
    return "\n\n".join(["\n".join(lines), *notes])
