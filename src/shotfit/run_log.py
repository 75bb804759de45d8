"""What a run notes of its updates: for its record, and for the checkpoint that it goes on from."""

import time
from typing import Any

from shotfit.adaptation import Observe
from shotfit.methods.base import Method
from shotfit.training.loop import TrainStep


class UpdateCount:
    """Counts the updates of the stage that is under way."""

    def __init__(self, observe: Observe | None) -> None:
        self.stage = self.count = 0
        self._observe = observe

    def add(self, method: Method, stage: int, step: TrainStep) -> None:
        """Counts an update, and tells who observes."""
        self.count = 1 if stage != self.stage else self.count + 1
        self.stage = stage
        if self._observe is not None:
            self._observe(method, stage, step)

    def plain(self) -> dict[str, int]:
        """What goes along with a checkpoint."""
        return {"stage": self.stage, "count": self.count}

    def load(self, values: dict[str, int]) -> None:
        """Goes on from what `plain` gave."""
        self.stage, self.count = values["stage"], values["count"]


class RunLog:
    """Steps as they come, thinned for the record, and what they cost."""

    def __init__(self) -> None:
        self.count = 0
        self.trainable: list[int] = []
        self.points: list[list[float]] = []
        """[stage, iteration, loss, learning rate], at most some 200 a stage."""
        self._started, self._worked = time.perf_counter(), time.process_time()

    def add(self, method: Method, stage: int, step: TrainStep) -> None:
        """Notes an update."""
        self.count += 1
        while len(self.trainable) <= stage:
            self.trainable.append(0)
        # The most over a stage: what trains may differ between its rounds.
        self.trainable[stage] = max(self.trainable[stage], trainable_parameters(method))
        every = max(1, step.total // 200)
        if step.iteration == 1 or step.iteration % every == 0 or step.iteration == step.total:
            self.points.append([stage, step.iteration, step.loss, step.lr])

    def cost(self) -> dict[str, float]:
        """So far, with what it cost before it was broken off."""
        return {
            "seconds": time.perf_counter() - self._started,
            "processor_seconds": time.process_time() - self._worked,
            "iterations": float(self.count),
        }

    def plain(self) -> dict[str, Any]:
        """What goes along with a checkpoint."""
        return {"trainable": self.trainable, "points": self.points, "cost": self.cost()}

    def load(self, values: dict[str, Any]) -> None:
        """Goes on from what `plain` gave."""
        cost = values["cost"]
        self.count = int(cost["iterations"])
        self.trainable, self.points = list(values["trainable"]), list(values["points"])
        self._started -= cost["seconds"]
        self._worked -= cost["processor_seconds"]


def trainable_parameters(method: Method) -> int:
    """The number of values that training changes."""
    return sum(p.numel() for p in method.parameters() if p.requires_grad)
