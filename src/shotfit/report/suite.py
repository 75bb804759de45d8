"""Tables of the embedded suite: every protocol found in the records has its own."""

from collections.abc import Sequence

from shotfit.averages import Estimate, mean
from shotfit.methods import published_names
from shotfit.paper import unique
from shotfit.records import Record
from shotfit.report.protocol import Run, require_same_images, row_name, runs_of
from shotfit.report.tables import SPREAD, Cell, Column, Panel, Report, Row, seed_means

AVERAGES = (("base", "Base"), ("novel", "Novel"), ("harmonic_mean", "HM"), ("joint", "Joint"))
"""Keys of records and titles: what the suite's base-to-novel table averages over tasks."""

BASE_TO_NOVEL_NOTES = (
    "HM of an average: of the averaged base and novel, as in the paper; not the mean of the HMs.",
    "Joint: base and novel classes in one label space, all images.",
    "Base alone: a method that is bound to its trained classes cannot score novel ones.",
)

SELECTION_NOTE = "Selects on: the images on which a method chooses what training leaves open."


def suite_report(records: Sequence[Record], *, shifted: bool = False) -> Report:
    """The tables of the embedded suite, or of its tasks under shifts.

    Base-to-novel: methods by average base, novel, harmonic mean, joint accuracy, trained values
    and seconds, then methods by task. All-to-all: methods by task, with the same two costs.
    Processor seconds where all records tell them: other work on a machine hardly moves those.

    Raises:
        DataError: as `runs_of`, and when methods saw different images of one task and seed.
    """
    runs = suite_runs(records, shifted=shifted)
    panels: list[Panel] = []
    notes = [SPREAD, SELECTION_NOTE]
    for group in protocol_groups(runs):
        tasks = unique(sorted(run.dataset for run in group))
        heading = describe_protocol(group)
        if group[0].fact("setting") == "base_to_novel":
            panels.append(_averages(group, tasks, heading))
        panels.append(_by_task(group, tasks, heading))
    if any(run.fact("setting") == "base_to_novel" for run in runs):
        notes += BASE_TO_NOVEL_NOTES
    which = "shifted" if shifted else "embedded"
    plan = "bench --datasets shifted-suite" if shifted else "reproduce suite"
    empty = (f"No finished record of the {which} suite; `shotfit {plan}` plans the runs.",)
    name = "shifted-suite" if shifted else "suite"
    return Report(name, f"The {which} suite", tuple(panels), tuple(notes) if panels else empty)


def suite_runs(records: Sequence[Record], *, shifted: bool = False) -> tuple[Run, ...]:
    """The finished runs on the embedded tasks, as they are or under shifts."""
    embedded = (run for run in runs_of(records) if run.fact("source") == "demo")
    return tuple(run for run in embedded if ("@" in run.dataset) == shifted)


def protocol_groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that may stand in one table; methods that train nothing are in every budget's.

    Raises:
        DataError: when methods saw different images of one dataset and seed.
    """
    groups = []
    for table in sorted({run.table for run in runs}, key=str):
        here = [run for run in runs if run.table == table]
        require_same_images(here)
        budgets = sorted({_budget(run) for run in here if run.trained}) or ["published"]
        for budget in budgets:
            groups.append([r for r in here if not r.trained or _budget(r) == budget])
    return groups


def describe_protocol(runs: Sequence[Run]) -> str:
    """What the runs of one table share, in a few words."""
    words = [
        str(runs[0].fact("setting")).replace("_", "-"),
        f"{runs[0].fact('shots')} shots",
        str(runs[0].fact("backbone")),
    ]
    budget = next((_budget(run) for run in runs if run.trained), None)
    if budget:
        per_shot = _shared_iters_per_shot(runs)
        words.append(f"{budget} budget" + (f", M={per_shot}" if per_shot else ""))
    known = ("setting", "shots", "backbone", "source")
    words += [f"{key}={value}" for key, value in runs[0].table if key not in known]
    return " · ".join(words)


def rows_of(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of one table by row, named by what sets them apart beyond what all share."""
    told = {"budget"} | ({"M"} if _shared_iters_per_shot(runs) else set())
    rows: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.method.removeprefix("2sfs_"), run.method)):
        variant = {key: value for key, value in run.variant if key not in told}
        rows.setdefault(row_name(run.method, variant), []).append(run)
    zero = [name for name in rows if name.startswith("zero_shot")]
    return {name: rows[name] for name in (*zero, *(n for n in rows if n not in zero))}


def _budget(run: Run) -> str:
    return str(run.fact("budget") or "published")


def _shared_iters_per_shot(runs: Sequence[Run]) -> int | None:
    """M, when it is the same wherever it matters."""
    found = {run.iters_per_shot for run in runs} - {None}
    return found.pop() if len(found) == 1 else None


def _averages(runs: Sequence[Run], tasks: tuple[str, ...], heading: str) -> Panel:
    columns = (
        *(Column(key, title) for key, title in AVERAGES),
        *_cost_columns(runs),
    )
    rows = []
    for name, mine in rows_of(runs).items():
        cells = [Cell(seed_means(mine, key, tasks)) for key, _ in AVERAGES]
        rows.append(Row(name, (*cells, *_costs(mine, columns[-1].key)), _selects_on(mine)))
    title = f"Average of {len(tasks)} tasks" if len(tasks) != 1 else "".join(tasks)
    return Panel(f"{title} · {heading}", columns, tuple(rows))


def _by_task(runs: Sequence[Run], tasks: tuple[str, ...], heading: str) -> Panel:
    base_to_novel = runs[0].fact("setting") == "base_to_novel"
    metric, what = ("harmonic_mean", "HM") if base_to_novel else ("all", "Accuracy")
    accuracies = (*(Column(task, task) for task in tasks), Column("average", "Average"))
    # Base-to-novel has its costs beside the averages.
    columns = accuracies if base_to_novel else (*accuracies, *_cost_columns(runs))
    rows = []
    for name, mine in rows_of(runs).items():
        cells = []
        for scope in (*((task,) for task in tasks), tasks):
            here = [run for run in mine if run.dataset in scope]
            cells.append(Cell(seed_means(here, metric, scope) if here else None))
        if not base_to_novel:
            cells += _costs(mine, columns[-1].key)
        rows.append(Row(name, tuple(cells), "" if base_to_novel else _selects_on(mine)))
    return Panel(f"{what} by task · {heading}", columns, tuple(rows), digits=1)


def _selects_on(runs: Sequence[Run]) -> str:
    entry = published_names().get(runs[0].method.removeprefix("2sfs_"))
    return entry.selects_on if entry else "nothing"


def _cost_columns(runs: Sequence[Run]) -> tuple[Column, Column]:
    told = all(run.processor_seconds is not None for run in runs)
    seconds = Column("processor_seconds", "CPU s", "s") if told else Column("seconds", "s", "s")
    return Column("parameters", "Trained values", "count"), seconds


def _costs(runs: Sequence[Run], clock: str) -> list[Cell]:
    parameters = [float(run.parameters) for run in runs]
    return [Cell(_plain_mean(v)) for v in (parameters, [getattr(run, clock) for run in runs])]


def _plain_mean(values: Sequence[float]) -> Estimate:
    return Estimate(mean(values), None, len(values))
