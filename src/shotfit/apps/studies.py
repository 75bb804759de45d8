"""What `shotfit dynamics` and `shotfit sweep` do: experiments, kept records, a figure, a line."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shotfit.bench.ablation import AXES, Value, load_or_measure_gain, sweep_runs
from shotfit.bench.dynamics import load_or_trace
from shotfit.data.sources import load_dataset
from shotfit.experiment import Experiment
from shotfit.observers.progress import fit_progress
from shotfit.records import load_records
from shotfit.records.dynamics import LearningDynamics
from shotfit.records.gain import Gain
from shotfit.report.ablation import gain_points, sweep_rows
from shotfit.report.figures import studies as figures
from shotfit.report.figures.canvas import require_matplotlib
from shotfit.report.phases import PATTERNS


@dataclass(frozen=True)
class Surroundings:
    """Where a study keeps its records, draws its figures, and runs."""

    results: Path
    out: Path
    device: str | None = None
    root: str | None = None
    quiet: bool = False
    overwrite: bool = False
    """Replace results of other images than there are now, and other figures."""

    def say(self, text: str) -> None:
        """A line for the reader, unless quiet is wanted."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


def dynamics_study(
    experiments: Sequence[Experiment], every: int, surroundings: Surroundings
) -> None:
    """Runs the curves that are missing, then draws a figure for every dataset and method.

    Experiments that differ in nothing but the seed share a figure. With several datasets there is
    one more for every method, the mean over them: a single task's novel accuracy is that of a
    hundred images or so, and a phase of a point or two is hidden in its noise.
    """
    require_matplotlib()
    groups: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        groups.setdefault(dataclasses.replace(experiment, seed=0).id, []).append(experiment)
    drawn: dict[str, list[LearningDynamics]] = {}
    methods: dict[str, list[LearningDynamics]] = {}
    for group in groups.values():
        first = group[0]
        name = first.recipe.stages[0].method
        dataset = load_dataset(first.source, root=surroundings.root, **first.data)
        curves = []
        for experiment in group:
            with fit_progress([name], quiet=surroundings.quiet) as progress:
                curve, _ = load_or_trace(
                    experiment,
                    every,
                    surroundings.results,
                    dataset=dataset,
                    device=surroundings.device,
                    observe=progress.observe,
                    overwrite=surroundings.overwrite,
                )
            curves.append(curve)
        methods.setdefault(name, []).extend(curves)
        drawn[f"{dataset.name}_{name}"] = curves
    for name, curves in methods.items():
        tasks = len({curve.dataset for curve in curves})
        if tasks > 1:
            drawn[f"mean-of-{tasks}-tasks_{name}"] = curves
    # Last: a figure that may not be replaced must not keep others from being run.
    for name, curves in drawn.items():
        _draw_dynamics(curves, surroundings, name)


def _draw_dynamics(
    curves: Sequence[LearningDynamics], surroundings: Surroundings, name: str
) -> None:
    path = surroundings.out / f"dynamics_{name}.png"
    found = figures.plot_dynamics(curves, path, overwrite=surroundings.overwrite)
    where = "too few points for a break"
    if found is not None:
        at = f"break at {found.iteration}" if found.exists else "no break"
        where = f"{found.pattern.replace('_', ' ')}, {at} ({PATTERNS[found.pattern]})"
    surroundings.say(f"{path}: {where}")


def sweep_study(
    axes: Sequence[str],
    experiments: Sequence[Experiment],
    values: Sequence[Sequence[Value] | None],
    title: str,
    surroundings: Surroundings,
) -> int:
    """Runs what is missing of a sweep and draws the mean over its runs; the number of failures."""
    from shotfit.apps.bench import run_grid

    require_matplotlib()
    runs = sweep_runs(axes, experiments, values)
    failed = run_grid(
        [run.experiment for run in runs],
        surroundings.results,
        ray=None,
        root=surroundings.root,
        device=surroundings.device,
        retry_failed=False,
        isolate=False,
        quiet=surroundings.quiet,
        as_json=False,
        overwrite=surroundings.overwrite,
    )
    records = {record.id: record for record in load_records(surroundings.results)}
    rows = sweep_rows(((run.point, run.experiment.id) for run in runs), records)
    path = surroundings.out / f"sweep_{'_'.join(axes)}_{_slug(title)}.png"
    if rows:
        names = [AXES[axis][0] if axis in AXES else axis for axis in axes]
        figures.plot_sweep(rows, names, title, path, overwrite=surroundings.overwrite)
        surroundings.say(f"{path}")
    for point, measured in rows:
        means = ", ".join(f"{key} {estimate.mean:.2f}" for key, estimate in measured.items())
        where = zip(axes, point, strict=True)
        told = [f"{axis} {x if isinstance(x, str) else f'{x:g}'}" for axis, x in where]
        print(f"{', '.join(told)}: {means}")
    return failed


def gain_study(experiments: Sequence[Experiment], title: str, surroundings: Surroundings) -> None:
    """Measures two-stage runs after their first stage too, and draws a bar for every dataset."""
    require_matplotlib()
    metric = "all" if experiments[0].setting == "all_to_all" else "harmonic_mean"
    gains: dict[str, list[Gain]] = {}
    for experiment in experiments:
        gain, _ = load_or_measure_gain(
            experiment,
            surroundings.results,
            device=surroundings.device,
            root=surroundings.root,
            overwrite=surroundings.overwrite,
        )
        gains.setdefault(gain.record.dataset, []).append(gain)
        points = gain_points([gain], metric)
        surroundings.say(f"{gain.record.dataset}, seed {experiment.seed}: {points:+.2f}")
    path = surroundings.out / f"second-stage_{_slug(title)}.png"
    means = {name: gain_points(mine, metric) for name, mine in sorted(gains.items())}
    runs = {name: [gain_points([gain], metric) for gain in mine] for name, mine in gains.items()}
    figures.plot_gain(means, runs, title, path, overwrite=surroundings.overwrite)
    surroundings.say(f"{path}")
    for name, points in means.items():
        print(f"{name}: {points:+.2f}")


def _slug(title: str) -> str:
    """A title as a file name: letters and digits, the rest hyphens."""
    return "-".join("".join(c if c.isalnum() else " " for c in title).split())
