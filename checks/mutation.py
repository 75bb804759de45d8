"""Mutation testing with mutmut: which small changes to the code does no test notice?

    python checks/mutation.py run --sample 600   # tries what has no result yet, a drawn sample
    python checks/mutation.py run --again        # those that survived, after tests were added
    python checks/mutation.py report             # writes docs/mutation.md from the results

`pyproject.toml` names the modules and their tests. mutmut makes every mutant of the functions in
them, finds the tests that reach each, and forks a process a mutant; it keeps its work in `mutants/`
and goes on there. The sample is the same for the same code and seed. Results are copied to
`results/mutation/sample.json`, with a reason beside every survivor that was looked at.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from shotfit.averages import Proportion

RESULTS = Path("results/mutation/sample.json")
PAGE = Path("docs/mutation.md")
KILLED, SURVIVED, TIMEOUT, UNTESTED = "killed", "survived", "timeout", "no test"
# What mutmut keeps of a mutant: the exit code of its tests, or a number of its own.
STATUS = {0: SURVIVED, 1: KILLED, 3: KILLED, 5: UNTESTED, 33: UNTESTED, 24: TIMEOUT, 36: TIMEOUT}
MODULE = re.compile(r"^shotfit\.(.*)\.[^.]*$")


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--sample", type=int, help="so many mutants, drawn; all without it")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--again", action="store_true", help="only those that survived")
    run.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    commands.add_parser("report")
    options = parser.parse_args()
    if options.command == "report":
        PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
        return
    prepare()
    found = verdicts()
    wanted = drawn(sorted(found), options.sample, options.seed)
    if options.again:
        pending = [name for name in wanted if found[name] in (SURVIVED, UNTESTED)]
    else:
        pending = [name for name in wanted if found[name] is None]
    print(f"{len(found)} mutants, {len(wanted)} wanted, {len(pending)} to try", flush=True)
    if pending:
        # One start for all: each costs a clean run of all their tests, some minutes.
        mutmut("run", "--max-children", str(options.processes), *pending)
    keep(wanted, len(found), options.seed)


def prepare() -> None:
    """Makes the mutants and asks every test which functions it reaches."""
    # It stops at a name that no mutant has, after both are done.
    mutmut("run", "none of this name")


def mutmut(*arguments: str) -> None:
    """mutmut's own command line, its progress into a file."""
    Path("mutants").mkdir(exist_ok=True)
    with open("mutants/progress.log", "w", encoding="utf-8") as log:
        command = [sys.executable, "-m", "mutmut", *arguments]
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)


def verdicts() -> dict[str, str | None]:
    """Every mutant by name, and what became of it; None where it has not been tried."""
    found: dict[str, str | None] = {}
    for path in sorted(Path("mutants/src").rglob("*.meta")):
        for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
            # Ended by a signal: by the limit on processor time, or by a crash, which a test sees.
            signalled = TIMEOUT if code in (-24, -9, 152) else KILLED
            found[name] = None if code is None else STATUS.get(code, signalled)
    if not found:
        sys.exit("mutmut made no mutants: see mutants/progress.log")
    return found


def drawn(names: list[str], sample: int | None, seed: int) -> list[str]:
    """A sample of the mutants, or all of them."""
    if sample is None or sample >= len(names):
        return names
    return sorted(random.Random(seed).sample(names, sample))


def module_of(name: str) -> str:
    """`training.loop` of shotfit.training.loop.x_train__mutmut_3."""
    match = MODULE.match(name)
    assert match is not None, name
    return match[1]


def keep(wanted: list[str], total: int, seed: int) -> None:
    """Copies what is known of the sample; reasons that were written by hand stay."""
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"survivors": {}}
    found = verdicts()
    tried = {name: status for name in wanted if (status := found[name]) is not None}
    survivors = {}
    for name, status in tried.items():
        if status in (SURVIVED, UNTESTED):
            change = difference(name)
            old = before["survivors"].get(name, {})
            reason = old.get("reason", "") if old.get("change") == change else ""
            survivors[name] = {"change": change, "reason": reason}
    modules = {
        module: dict(Counter(s for name, s in tried.items() if module_of(name) == module))
        for module in sorted({module_of(name) for name in tried})
    }
    values = {"mutants": total, "sample": len(wanted), "seed": seed}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**values, "modules": modules, "survivors": survivors}, indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def difference(name: str) -> str:
    """The changed lines of a mutant, without context."""
    command = [sys.executable, "-m", "mutmut", "show", name]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    changed = [line for line in shown.splitlines() if re.match(r"[-+](?![-+])", line)]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in changed)


def page(values: dict) -> str:
    """docs/mutation.md: a table by module, and every survivor with the reason why it may live."""
    modules = values["modules"]
    total = Counter()
    rows = []
    for module, counts in modules.items():
        total.update(counts)
        rows.append(_row(module, Counter(counts)))
    rows.append(_row("**all**", total))
    tried = sum(total.values())
    alive = Proportion(total[SURVIVED] + total[UNTESTED], tried)
    low, high = alive.interval
    done = "all of these were tried"
    if tried < values["sample"]:
        done = f"**only {tried} of these have been tried so far**, module by module in this order"
    # What a run alone cannot tell, such as survivors that were tried again since.
    told = values.get("told", "")
    survivors = [
        f"- `{module_of(name)}`, {one['reason'] or '**not looked at yet**'}\n"
        f"  ```diff\n{_indented(one['change'])}\n  ```"
        for name, one in values["survivors"].items()
    ]
    return f"""# Mutation testing

Coverage tells which lines tests run; it does not tell whether they would notice anything. Here
[mutmut](https://mutmut.readthedocs.io) changes the code in one small place at a time (another
operator, another number or text, an argument left out or None, a branch turned round) and runs the
tests that reach the function. A mutant that no test notices is either a missing test or a change
that changes nothing.

```shell
make mutation          # a sample of the mutants; keeps what is done and goes on when run again
make mutation ARGS="run"    # all of them, some hours of two cores
```

The modules are those whose numbers everything else rests on (`[tool.mutmut]` in `pyproject.toml`).
Of {values["mutants"]} mutants, {values["sample"]} were drawn with seed {values["seed"]}; {done}.
{alive.right} survived, {alive.percent:.1f} % (95 % interval {low:.1f} to {high:.1f} %),
those that change nothing among them. {told}
A timeout counts as noticed: an endless loop fails its test. mutmut leaves out functions with a
decorator other than `staticmethod` and `classmethod`, which here are properties, context managers
and `evaluate`, and code outside functions; messages of exceptions are left out on purpose.

| module | tried | noticed | survived | share |
| --- | ---: | ---: | ---: | ---: |
{chr(10).join(rows)}

## Survivors

{chr(10).join(survivors) or "None."}
"""


def _row(module: str, counts: Counter) -> str:
    tried = sum(counts.values())
    alive = counts[SURVIVED] + counts[UNTESTED]
    return f"| {module} | {tried} | {tried - alive} | {alive} | {100 * alive / tried:.1f} % |"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


if __name__ == "__main__":
    main()
