"""Tables of the embedded suite: every protocol found in the records has its own."""

from collections.abc import Collection, Sequence

from shotfit.averages import Estimate, mean
from shotfit.methods import published_names
from shotfit.paper import unique
from shotfit.records import Record
from shotfit.report.labels import metric_title
from shotfit.report.protocol import Run, require_same_images, row_name, runs_of
from shotfit.report.tables import SPREAD, Cell, Column, Panel, Report, Row, seed_means

BASE_TO_NOVEL = ("base", "novel", "harmonic_mean", "joint")
"""Keys of records: what a base-to-novel table averages over tasks."""

BASE_TO_NOVEL_NOTES = (
    "HM of an average: of the averaged base and novel, as in the paper; not the mean of the HMs.",
    "Joint: base and novel classes in one label space, all images.",
    "Base alone: a method that is bound to its trained classes cannot score novel ones.",
)

MISSING_NOTE = "Runs of a table's tasks and seeds that are not there are told in place of a number."

MEMORY_NOTE = (
    "Memory: the most that the process held while it trained, on a GPU what it held there."
)

SELECTION_NOTE = "Selects on: the images on which a method chooses what training leaves open."


def suite_report(records: Sequence[Record], *, shifted: bool = False) -> Report:
    """The tables of the embedded suite, or of its tasks under shifts.

    Base-to-novel: methods by average base, novel, harmonic mean, joint accuracy, trained values,
    seconds and memory, then methods by task. All-to-all: methods by task, with the same costs.
    Processor seconds where all records tell them: other work on a machine hardly moves those.

    Raises:
        DataError: as `runs_of`, and when methods saw different images of one task and seed.
    """
    which = "shifted" if shifted else "embedded"
    plan = "bench --datasets shifted-suite" if shifted else "reproduce suite"
    empty = f"No finished record of the {which} suite; `shotfit {plan}` plans the runs."
    name = "shifted-suite" if shifted else "suite"
    return tables_of_runs(name, f"The {which} suite", suite_runs(records, shifted=shifted), empty)


def runs_report(records: Sequence[Record]) -> Report:
    """The same tables of every finished record: any dataset, backbone and number of shots.

    Raises:
        DataError: as `suite_report`.
    """
    empty = "No finished record; `shotfit bench` makes them."
    return tables_of_runs("runs", "Every run", runs_of(records), empty)


def tables_of_runs(name: str, title: str, runs: Sequence[Run], empty: str) -> Report:
    """The tables of these runs; `empty` is what is said when there are none.

    Raises:
        DataError: when methods saw different images of one dataset and seed.
    """
    panels: list[Panel] = []
    notes = [SPREAD, SELECTION_NOTE]
    for group in protocol_groups(runs):
        tasks = unique(sorted(run.dataset for run in group))
        heading = describe_protocol(group)
        if group[0].fact("setting") == "base_to_novel":
            panels.append(_averages(group, tasks, heading))
        panels.append(_by_task(group, tasks, heading))
        if group[0].fact("transfer"):
            panels.append(_transfer(group, tasks, heading))
    if any(run.fact("setting") == "base_to_novel" for run in runs):
        notes += BASE_TO_NOVEL_NOTES
    if any(column.unit == "MB" for panel in panels for column in panel.columns):
        notes.append(MEMORY_NOTE)
    if any(cell.note for panel in panels for row in panel.rows for cell in row.cells):
        notes.append(MISSING_NOTE)
    return Report(name, title, tuple(panels), tuple(notes) if panels else (empty,))


def suite_runs(records: Sequence[Record], *, shifted: bool = False) -> tuple[Run, ...]:
    """The finished runs on the embedded tasks, as they are or under shifts."""
    embedded = (run for run in runs_of(records) if run.fact("source") == "demo")
    return tuple(run for run in embedded if (run.fact("tasks") == "shifted") == shifted)


def metrics_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """The keys of records that a table of these runs shows."""
    return BASE_TO_NOVEL if runs[0].fact("setting") == "base_to_novel" else ("all",)


def protocol_groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that may stand in one table; methods that train nothing are in every budget's.

    Raises:
        DataError: when methods saw different images of one dataset and seed.
    """
    groups = []
    for table in sorted({run.table for run in runs}, key=str):
        here = [run for run in runs if run.table == table]
        require_same_images(here)
        budgets = sorted({budget_of(run) for run in here if run.trained}) or ["published"]
        for budget in budgets:
            groups.append([r for r in here if not r.trained or budget_of(r) == budget])
    return groups


def describe_protocol(runs: Sequence[Run]) -> str:
    """What the runs of one table share, in a few words."""
    facts = dict(runs[0].table)
    # A fact that a table has across its columns is not among those that it shares.
    words = [str(facts["setting"]).replace("_", "-")] if "setting" in facts else []
    if "shots" in facts:
        words.append("all images" if facts["shots"] is None else f"{facts['shots']} shots")
    if "backbone" in facts:
        words.append(str(facts["backbone"]))
    budget = next((budget_of(run) for run in runs if run.trained), None)
    if budget:
        per_shot = _shared_iters_per_shot(runs)
        words.append(f"{budget} budget" + (f", M={per_shot}" if per_shot else ""))
    known = {"setting", "shots", "backbone"}
    if facts.get("source") == "demo":
        known.add("source")
    words += [f"{key}={value}" for key, value in facts.items() if key not in known]
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


def budget_of(run: Run) -> str:
    return str(run.fact("budget") or "published")


def _shared_iters_per_shot(runs: Sequence[Run]) -> int | None:
    """M, when it is the same wherever it matters."""
    found = {run.iters_per_shot for run in runs} - {None}
    return found.pop() if len(found) == 1 else None


def _averages(runs: Sequence[Run], tasks: tuple[str, ...], heading: str) -> Panel:
    costs = _cost_columns(runs)
    columns = (*(Column(key, metric_title(key)) for key in BASE_TO_NOVEL), *costs)
    seeds = {run.seed for run in runs}
    rows = []
    for name, mine in rows_of(runs).items():
        cells = [run_cell(mine, key, tasks, seeds) for key in BASE_TO_NOVEL]
        rows.append(Row(name, (*cells, *_costs(mine, costs)), _selects_on(mine)))
    title = f"Average of {len(tasks)} tasks" if len(tasks) != 1 else "".join(tasks)
    return Panel(f"{title} · {heading}", columns, tuple(rows))


def _by_task(runs: Sequence[Run], tasks: tuple[str, ...], heading: str) -> Panel:
    base_to_novel = runs[0].fact("setting") == "base_to_novel"
    metric, what = ("harmonic_mean", "HM") if base_to_novel else ("all", "Accuracy")
    accuracies = (*(Column(task, task) for task in tasks), Column("average", "Average"))
    # Base-to-novel has its costs beside the averages.
    costs = () if base_to_novel else _cost_columns(runs)
    columns = (*accuracies, *costs)
    seeds = {run.seed for run in runs}
    rows = []
    for name, mine in rows_of(runs).items():
        scopes = (*((task,) for task in tasks), tasks)
        cells = [run_cell(mine, metric, scope, seeds) for scope in scopes]
        cells += _costs(mine, costs)
        rows.append(Row(name, tuple(cells), "" if base_to_novel else _selects_on(mine)))
    return Panel(f"{what} by task · {heading}", columns, tuple(rows), digits=1)


def _transfer(runs: Sequence[Run], tasks: tuple[str, ...], heading: str) -> Panel:
    """Accuracy on the datasets that the runs were also measured on, averaged over the tasks."""
    keys = [f"to_{name}" for name in str(runs[0].fact("transfer")).split()]
    columns = (
        *(Column(key, key.removeprefix("to_")) for key in keys),
        Column("transfer", "Average"),
    )
    seeds = {run.seed for run in runs}
    rows = tuple(
        Row(name, tuple(run_cell(mine, column.key, tasks, seeds) for column in columns))
        for name, mine in rows_of(runs).items()
    )
    return Panel(f"Transfer · {heading}", columns, rows, digits=1)


def run_cell(
    runs: Sequence[Run], metric: str, tasks: tuple[str, ...], seeds: Collection[int]
) -> Cell:
    """The average over tasks, with what is missing of the table's tasks and seeds."""
    here = [run for run in runs if run.dataset in tasks]
    there = {run.dataset for run in here}
    if len(there) < len(tasks):
        return Cell(note=f"{len(there)} of {len(tasks)} tasks" if len(tasks) > 1 else "not run")
    found = seed_means(here, metric, tasks)
    # A seed changes nothing where nothing is trained.
    if found is None or found.runs == len(seeds) or not any(run.trained for run in here):
        return Cell(found)
    return Cell(found, note=f"{found.runs} of {len(seeds)} seeds")


def _selects_on(runs: Sequence[Run]) -> str:
    entry = published_names().get(runs[0].method.removeprefix("2sfs_"))
    return entry.selects_on if entry else "nothing"


def _cost_columns(runs: Sequence[Run]) -> tuple[Column, ...]:
    """What runs cost, as far as all of them tell."""
    told = all(run.processor_seconds is not None for run in runs)
    seconds = Column("processor_seconds", "CPU s", "s") if told else Column("seconds", "s", "s")
    columns = Column("parameters", "Trained values", "count"), seconds
    if any(run.peak_memory_bytes is None for run in runs):
        return columns
    return *columns, Column("peak_memory_bytes", "Memory MB", "MB")


def _costs(runs: Sequence[Run], columns: Sequence[Column]) -> list[Cell]:
    return [Cell(_plain_mean([float(getattr(r, c.key)) for r in runs])) for c in columns]


def _plain_mean(values: Sequence[float]) -> Estimate:
    return Estimate(mean(values), None, len(values))
