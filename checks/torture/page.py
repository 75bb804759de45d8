"""docs/reliability.md, from the record."""

from typing import Any

START = """# What was tried, how often, and what was lost

ShotFit is killed, crashed, starved of disk space, started twice at once, and fed rubbish. This
page is written from `results/reliability/record.json` by

```shell
make torture                        # all of it, with the counts of the command line
make torture ARGS="--scale 0.01"    # a hundredth of it
make torture ARGS="--part fuzz --only image --inputs 1000 --seed 7"
```

What is drawn is drawn from the seed. `make test` runs a small part
(`tests/checks/test_torture.py`).
"""

PROMISE = """
## What is not promised

What a library in another language does between two file operations is not seen by the crash
points. Files left over by a kill are hidden ones beside the result, which nothing reads; those of
folders go with the next save there, those of single files stay. A classifier keeps one answer to
a picture, which `shotfit verify` compares; that is no proof that all others are as before.
Nothing here was tried on Windows or macOS, on a network file system, or with an accelerator.

## The same answer

On a processor with the same number of threads and the same versions, a fit gives the same bits in
every process, saved and loaded, broken off and resumed. Another number of threads, another
processor or version may change the last digits of a step, which training carries on. A
micro-batch adds up the same gradients in another order, and draws the masks of a dropout (LoRA's)
for each of its parts, so that LoRA's numbers follow it. On CUDA, `--deterministic` asks for
kernels whose sums do not depend on timing; without it two runs may differ in the last digits.
`shotfit verify` compares to the bit where version, device and threads are those of when a
classifier was saved, and to 0.001 of a score elsewhere.
"""


def page(record: dict[str, Any]) -> str:
    """The page as Markdown."""
    parts = [START]
    if "interruptions" in record:
        parts.append(_interruptions(record["interruptions"]))
    if "fuzz" in record:
        parts.append(_fuzz(record["fuzz"]))
    if "leaks" in record:
        parts.append(_leaks(record["leaks"]))
    return "\n".join(part.strip("\n") + "\n" for part in (*parts, PROMISE))


def _said(part: dict[str, Any]) -> str:
    minutes = max(1, round(part["seconds"] / 60))
    commands = "; ".join(f"`python -m torture {command}`" for command in part["commands"])
    return f"{commands}: about {minutes} min on {part['processors']} cores, busy with other work."


def _interruptions(part: dict[str, Any]) -> str:
    lines = [
        "## Interrupted, and run again",
        "",
        "A command is killed at a random moment, ends at a file operation as if by a power cut, or",
        "finds the disk full there; then it is run again to its end. Each cell has how often that",
        "gave the result of a run that nothing happened to, of how many times.",
        "",
        "| command | file operations | kills | crashes | full disk | two at once |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in part["found"].items():
        cells = [_cell(found[kind]) for kind in ("kills", "crashes", "full disk", "two at once")]
        lines.append(f"| `{name}` | {found['crashes']['operations']} | {' | '.join(cells)} |")
    others = sorted(
        f"`{name}`, {kind}: {verdict}, {count} times"
        for name, found in part["found"].items()
        for kind, verdicts in found.items()
        for verdict, count in verdicts.items()
        if verdict != "operations" and verdict != "same"
    )
    if others:
        lines += ["", "Other outcomes:", "", *(f"- {line}" for line in others)]
    return "\n".join([*lines, "", _said(part)])


def _cell(verdicts: dict[str, int]) -> str:
    tried = sum(n for verdict, n in verdicts.items() if verdict.startswith(("same", "lost")))
    same = sum(n for verdict, n in verdicts.items() if verdict.startswith("same"))
    return f"{same} of {tried}"


def _fuzz(part: dict[str, Any]) -> str:
    lines = [
        "## Fed with mutated files",
        "",
        "Of good files bytes are changed, cut out or put in, and values in JSON exchanged for",
        "others. A reader reads what comes, or refuses it in the words of a user's error; anything",
        "else, or more than 5 seconds, is a failure.",
        "",
        "| reader | inputs | read | refused | failed |",
        "|---|---|---|---|---|",
    ]
    for name, found in part["found"].items():
        failed = found.get("failed", 0) + found.get("slow", 0)
        numbers = (found["inputs"], found.get("read", 0), found.get("refused", 0), failed)
        lines.append(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |")
    total = sum(found["inputs"] for found in part["found"].values())
    lines += ["", f"{total:,} inputs in all.", "", _said(part)]
    return "\n".join(lines)


def _leaks(part: dict[str, Any]) -> str:
    lines = [
        "## Repeated in one process",
        "",
        "| what | times | memory, more by | open files | threads |",
        "|---|---|---|---|---|",
    ]
    for name, found in part["found"].items():
        grown = f"{found['bytes'] / 1e6:.1f} MB"
        lines.append(
            f"| {name} | {found['times']:,} | {grown} | {found['files']:+} | {found['threads']:+} |"
        )
    return "\n".join([*lines, "", _said(part)])
