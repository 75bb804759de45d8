"""Writes what holds of the paper here: the table of phases in docs/dynamics.md, and docs/claims.md.

    python pages/claims.py

From the records in results/: learning curves, both suites, sweeps, exits. A curve is the mean
over the seeds that there are of one task and method.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from marked import put
from sweeps import alphas, batch_sizes, budgets, ranks

from shotfit.data.shifts import SHIFTED_SUITE
from shotfit.data.sources.demo import list_tasks
from shotfit.records import Record, load_records
from shotfit.records.dynamics import LearningDynamics, read_dynamics
from shotfit.records.gain import Gain, read_gain
from shotfit.report.paired import Comparison, compared
from shotfit.report.phases import PhaseBreak, mean_points, phase_break
from shotfit.report.protocol import Run, runs_of

ROOT = Path(__file__).parent.parent
DYNAMICS, CLAIMS = ROOT / "docs" / "dynamics.md", ROOT / "docs" / "claims.md"
METHODS = {"layernorm": "LayerNorm", "bitfit": "BitFit", "lora": "LoRA"}
FOLDERS = ("suite", "shifted", "sweeps", "sizes")
FIRST_PHASE = ("two_phases", "together", "saturates", "rising")
"""Patterns in which novel accuracy rises above zero-shot at all."""

Curves = Mapping[tuple[str, str], Sequence[LearningDynamics]]


def curves(folder: Path) -> Curves:
    """The kept curves by task and method, in order of their seeds."""
    found: dict[tuple[str, str], list[LearningDynamics]] = {}
    for path in sorted(folder.glob("*.json")):
        curve = read_dynamics(path)
        found.setdefault((curve.dataset, curve.method), []).append(curve)
    return found


def gains_of(folder: Path) -> list[Gain]:
    """The kept runs that were measured where their first stage ended, too."""
    return [read_gain(path) for path in sorted(folder.glob("*.json"))]


def broken(of_task: Sequence[LearningDynamics]) -> PhaseBreak:
    """What the mean curve of a task's seeds does."""
    found = phase_break(mean_points([curve.points for curve in of_task]))
    assert found is not None, "a study's curves have more than five points"
    return found


def phases(found: Curves, tasks: Sequence[str]) -> str:
    """A row a task, a column a method: the pattern, the break, how far novel accuracy rose."""
    methods = [name for name in METHODS if any((task, name) in found for task in tasks)]
    lines = [
        "| task | " + " | ".join(METHODS[name] for name in methods) + " |",
        "| --- |" + " --- |" * len(methods),
    ]
    for task in tasks:
        cells = []
        for name in methods:
            mine = found.get((task, name))
            if not mine:
                cells.append("–")
                continue
            seen = broken(mine)
            at = f" at {seen.iteration}" if seen.exists else ""
            seeds = "" if len(mine) == 3 else f", {len(mine)} seed" + "s" * (len(mine) > 1)
            gain = f", {seen.novel_gain:+.1f}" if seen.pattern in FIRST_PHASE else ""
            cells.append(f"{seen.pattern.replace('_', ' ')}{at}{gain}{seeds}")
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(sentence(found, tasks, name) for name in methods)])


def sentence(found: Curves, tasks: Sequence[str], method: str) -> str:
    """How many of a method's curves have a first phase, and how many two."""
    mine = [broken(found[task, method]) for task in tasks if (task, method) in found]
    patterns = Counter(seen.pattern for seen in mine)
    rising = sum(patterns[name] for name in FIRST_PHASE)
    both = patterns["two_phases"]
    return (
        f"{METHODS[method]}: novel accuracy rises above zero-shot on {rising} of {len(mine)} "
        f"tasks, and falls again while base accuracy goes on rising on {both}.  "
    )


def gains(runs: Sequence[Run], names: Sequence[str]) -> str:
    """The differences of the first from the others, a row each, corrected (Holm)."""
    lines = ["| 2SFS less | base | novel | harmonic mean | joint |", "| --- |" + " ---: |" * 4]
    found = compared(runs, names)
    for name in names[1:]:
        mine = {one.metric: one for one in found if one.row == name}
        cells = [told(mine[key]) for key in ("base", "novel", "harmonic_mean", "joint")]
        lines.append(f"| {name.replace('_', '-')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def exits(found: Sequence[Gain], tasks: Collection[str]) -> str:
    """What both stages reach less what there was where the first one ended."""
    mine = [gain for gain in found if gain.record.dataset in tasks]
    if not mine:
        return "Not measured with this embedded model."
    both = runs_of([gain.record for gain in mine])
    pairs = zip(both, mine, strict=True)
    ended = [replace(run, method="exit", metrics=gain.after_first) for run, gain in pairs]
    return gains([*both, *ended], ("2sfs_layernorm", "exit"))


def told(one: Comparison) -> str:
    """A difference, ours less theirs, in bold where the corrected test says so."""
    # Not -0.0.
    text = f"{0.0 - one.found.mean:+.1f} ± {one.found.half_width:.1f}"
    return f"**{text}**" if one.verdict else text


def page_of_dynamics(page: str, found: Curves) -> str:
    """docs/dynamics.md with both tables of phases."""
    page = put(page, "phases", phases(found, list_tasks()))
    return put(page, "shifted-phases", phases(found, SHIFTED_SUITE))


def page_of_claims(
    page: str,
    found: Curves,
    records: Mapping[str, list[Record]],
    ended: Sequence[Gain],
) -> str:
    """docs/claims.md with its evidence; `records` by their folders in results/."""
    on_shifts = [name for name in METHODS if any((t, name) in found for t in SHIFTED_SUITE)]
    told = [sentence(found, list_tasks(), name) for name in METHODS]
    told_shifted = [sentence(found, SHIFTED_SUITE, name) for name in on_shifts]
    parts = ["On the embedded suite:", "", *told, "", "On the shifted suite:", "", *told_shifted]
    page = put(page, "phases", "\n".join(parts))
    in_fp32 = [run for run in runs_of(records["suite"]) if run.fact("precision") is None]
    page = put(page, "suite", gains(in_fp32, ("2sfs_layernorm", "zero_shot")))
    names = ("2sfs_layernorm", "zero_shot", "layernorm")
    page = put(page, "shifted", gains(runs_of(records["shifted"]), names))
    runs, sizes = runs_of(records["sweeps"]), runs_of(records["sizes"])
    for name, tasks in (("suite", list_tasks()), ("shifted", SHIFTED_SUITE)):
        page = put(page, f"alpha-{name}", alphas(runs, tasks))
        page = put(page, f"budget-{name}", budgets(runs, tasks))
        page = put(page, f"batch-{name}", batch_sizes(sizes, tasks))
        page = put(page, f"rank-{name}", ranks(sizes, tasks))
        page = put(page, f"exits-{name}", exits(ended, tasks))
    return page


def main() -> None:
    """Writes both pages."""
    found = curves(ROOT / "results" / "dynamics")
    page = DYNAMICS.read_text(encoding="utf-8")
    DYNAMICS.write_text(page_of_dynamics(page, found), encoding="utf-8")
    page = CLAIMS.read_text(encoding="utf-8")
    records = {name: load_records(ROOT / "results" / name) for name in FOLDERS}
    text = page_of_claims(page, found, records, gains_of(ROOT / "results" / "exits"))
    CLAIMS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
