"""Tables of a swept option: what every value gives, and how far that is from the default's."""

from collections.abc import Callable, Collection, Sequence

from shotfit.report.paired import Measured, average, difference, signed
from shotfit.report.protocol import Run

METRICS = ("base", "novel", "harmonic_mean", "joint")
ALPHA = 0.6
"""The share of the first stage, as published."""
BUDGET = 100
"""M of the runs in which alpha is swept, and what other M are compared with."""
BATCH_SIZE, RANK = 32, 2
"""As published; the rank is LoRA's."""


def alphas(runs: Sequence[Run], tasks: Collection[str]) -> str:
    """A row for every alpha, all of M = `BUDGET`."""
    of_budget = [run for run in runs if run.iters_per_shot == BUDGET]
    return table("alpha", of_budget, tasks, ALPHA, alpha)


def budgets(runs: Sequence[Run], tasks: Collection[str]) -> str:
    """A row for every M, all of the published alpha."""
    as_published = [run for run in runs if alpha(run) == ALPHA]
    return table("M", as_published, tasks, BUDGET, lambda run: run.iters_per_shot or 0)


def batch_sizes(runs: Sequence[Run], tasks: Collection[str]) -> str:
    """A row for every batch size of both stages, LayerNorm first."""
    mine = [run for run in runs if run.method == "2sfs_layernorm"]
    return table("batch", mine, tasks, BATCH_SIZE, lambda run: run.fact("batch_size") or BATCH_SIZE)


def ranks(runs: Sequence[Run], tasks: Collection[str]) -> str:
    """A row for every rank of LoRA, the first stage."""
    mine = [run for run in runs if run.method == "2sfs_lora"]
    return table("rank", mine, tasks, RANK, lambda run: run.fact("rank") or RANK)


def alpha(run: Run) -> float:
    """A run's share of the first stage."""
    stated = run.fact("alpha")
    return ALPHA if stated is None else float(stated)


def table(
    title: str,
    runs: Sequence[Run],
    tasks: Collection[str],
    default: float,
    value_of: Callable[[Run], float],
) -> str:
    """A row for every value: averages over the tasks that all values have, and what harmonic mean
    and joint accuracy differ from the default's, with 95 % intervals over tasks."""
    by_value: dict[float, dict[str, list[Run]]] = {}
    for run in runs:
        if run.dataset in tasks:
            by_value.setdefault(value_of(run), {}).setdefault(run.dataset, []).append(run)
    if len(by_value) < 2 or default not in by_value:
        return "Not measured with this embedded model."
    shared = sorted(set.intersection(*(set(of_task) for of_task in by_value.values())))
    lines = [
        f"| {title} | base | novel | harmonic mean | joint | harmonic mean less {default}'s | "
        f"joint less {default}'s |",
        "| ---: |" + " ---: |" * 6,
    ]
    measured = {value: of_tasks(found, shared) for value, found in sorted(by_value.items())}
    for value, mine in measured.items():
        cells = [f"{average(mine, metric):.1f}" for metric in METRICS]
        for metric in METRICS[2:]:
            away = difference(mine, measured[default], metric)
            cells.append("–" if value == default else signed(away, 1))
        lines.append(f"| {value:g} | " + " | ".join(cells) + " |")
    seeds = sorted({run.seed for run in runs if run.dataset in shared})
    told = f"{len(shared)} tasks, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}."
    return "\n".join([*lines, "", told])


def of_tasks(found: dict[str, list[Run]], tasks: Sequence[str]) -> Measured:
    """The metrics of runs by task, in order of their seeds."""
    return {
        task: [run.metrics for run in sorted(found[task], key=lambda run: run.seed)]
        for task in tasks
    }
