"""Runs as tasks of Ray, on this machine or on a cluster that is already there.

https://docs.ray.io/en/latest/ray-core/fault_tolerance/tasks.html: a task whose worker or node is
lost runs again elsewhere, `retries` times; what a run raises itself is its record and is not
repeated. Records come back to the driver, so workers need no common folder for them, but they do
need ShotFit, the data below the same root, and the backbone.
"""

from collections.abc import Callable, Iterator, Sequence

from shotfit.experiment import Experiment
from shotfit.records import Record
from shotfit.system.ray_cluster import RayOptions, connected, slots

POLL_SECONDS = 1.0


def run_on_ray(
    experiments: Sequence[Experiment],
    work: Callable[[Experiment], Record],
    failed: Callable[[Experiment, str], Record],
    options: RayOptions,
) -> Iterator[tuple[int, Record | None]]:
    """The number of runs under way and, when one has ended, its record, in order of ending.

    Raises:
        UsageError: when Ray is not installed, or no machine has what a run takes.
        DataError: when the cluster cannot be reached.
    """
    with connected(options) as ray:
        task = ray.remote(work_on).options(
            num_cpus=options.cpus,
            num_gpus=options.gpus,
            max_retries=options.retries,
            retry_exceptions=False,
        )
        waiting = {task.remote(work, experiment): experiment for experiment in experiments}
        try:
            yield min(len(waiting), slots(ray, options)), None
            while waiting:
                ready, _ = ray.wait(list(waiting), num_returns=1, timeout=POLL_SECONDS)
                for reference in ready:
                    experiment = waiting.pop(reference)
                    try:
                        record = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        record = failed(experiment, f"{type(error).__name__}: {error}")
                    yield min(len(waiting), slots(ray, options)), record
        finally:
            # A cluster outlives its driver: what nobody waits for any more must not run on.
            for reference in waiting:
                ray.cancel(reference, force=True)


def work_on(work: Callable[[Experiment], Record], experiment: Experiment) -> Record:
    """What a Ray task calls."""
    return work(experiment)
