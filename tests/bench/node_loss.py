"""A grid on two Ray nodes of one CPU each, one of which is killed when the first run has ended.

python tests/bench/node_loss.py CHECKPOINT FOLDER prints the ids of the records in order of
arrival. A script of its own, since a killed node leaves process handles behind that a test run
would report.
"""

import os
import sys
from pathlib import Path
from typing import Any


def main(checkpoint: str, folder: str) -> None:
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    from ray.cluster_utils import Cluster

    from shotfit.bench.grid import expand
    from shotfit.bench.runner import run_all
    from shotfit.recipe import Overrides
    from shotfit.system.ray_cluster import RayOptions

    grid = expand(
        ["2sfs", "zero_shot"],
        ["animals", "digits"],
        backbones=[checkpoint],
        shots=[1],
        seeds=[1, 2],
        overrides=Overrides({"iters_per_shot": 2}),
    )
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000}
    head = {**node, "include_dashboard": False, "_system_config": quick}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        lost = cluster.add_node(**node)
        options = RayOptions(cluster.address)
        alive = True
        for step in run_all(grid, Path(folder), executor="ray", ray=options):
            if step.record is None:
                continue
            print(step.record.id, flush=True)
            if alive:
                cluster.remove_node(lost, allow_graceful=False)
                alive = False
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
