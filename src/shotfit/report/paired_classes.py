"""Two methods class by class: which classes one answers better than another.

Runs are paired by dataset and seed, and a class's difference is the mean over the seeds. With a
few test images of a class, differences of single classes are large by chance: they say where to
look, not what holds.
"""

from collections.abc import Sequence

from shotfit.averages import Estimate, estimate
from shotfit.errors import DataError
from shotfit.paper import unique
from shotfit.report.labels import method_label, metric_title
from shotfit.report.paired import row_name
from shotfit.report.protocol import Run
from shotfit.report.suite import describe_protocol, protocol_groups, rows_of
from shotfit.report.tables import Cell, Column, Panel, Row


def class_panels(runs: Sequence[Run], rows: Sequence[str], most: int) -> list[Panel]:
    """For every dataset and metric the `most` classes on which the other rows differ most from the
    first: its accuracy, and the others' less that.

    Raises:
        DataError: when no two of these rows tell of their classes.
    """
    names = list(map(row_name, rows))
    panels = []
    for group in protocol_groups(runs):
        there = rows_of(group)
        mine = {name: _by_run(there[name]) for name in names if name in there}
        if len(mine) < 2 or names[0] not in mine:
            continue
        for dataset in unique(sorted(run.dataset for run in group)):
            for metric in unique(key for run in group for key, _ in run.classes):
                panel = _panel(mine, names[0], dataset, metric, most, describe_protocol(group))
                panels += [panel] if panel else []
    if not panels:
        raise DataError(
            "No two of these methods have records of one dataset and seed that tell of classes; "
            "those that are made from now on do."
        )
    return panels


ByRun = dict[tuple[str, int], Run]


def _by_run(runs: Sequence[Run]) -> ByRun:
    return {(run.dataset, run.seed): run for run in runs if run.classes}


def _panel(
    mine: dict[str, ByRun], first: str, dataset: str, metric: str, most: int, heading: str
) -> Panel | None:
    seeds = sorted(
        set.intersection(*({s for name, s in runs if name == dataset} for runs in mine.values()))
    )
    of_class: dict[str, list[Cell]] = {}
    for key, name in mine[first][dataset, seeds[0]].classes if seeds else ():
        counts = {
            row: [runs[dataset, seed].classes.get((metric, name), (0, 0)) for seed in seeds]
            for row, runs in mine.items()
        }
        if key != metric or not all(images for each in counts.values() for _, images in each):
            continue
        values = {row: [100 * n / images for n, images in each] for row, each in counts.items()}
        images = estimate([float(images) for _, images in counts[first]]).mean
        cells = [Cell(Estimate(images, None, len(seeds))), Cell(estimate(values[first]))]
        for row in list(mine)[1:]:
            pairs = zip(values[row], values[first], strict=True)
            cells.append(Cell(estimate([one - other for one, other in pairs])))
        of_class[name] = cells
    if not of_class:
        return None
    order = sorted(of_class, key=lambda name: (-max(map(_size, of_class[name][2:])), name))[:most]
    order.sort(key=lambda name: _signed(of_class[name][2]))
    columns = [Column("images", "Test images", "count"), Column(first, method_label(first))]
    columns += [Column(row, f"{method_label(row)} less that", "points") for row in list(mine)[1:]]
    title = f"{metric_title(metric)} of classes of {dataset} · {heading}"
    lines = tuple(Row(name, tuple(of_class[name])) for name in order)
    return Panel(title, tuple(columns), lines, digits=1, of="Class")


def _signed(cell: Cell) -> float:
    return cell.ours.mean if cell.ours else 0.0


def _size(cell: Cell) -> float:
    return abs(_signed(cell))
