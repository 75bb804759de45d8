"""Where the time of a fit goes: parts of an update, and the operators that take most of it.

A few updates of each stage are recorded, which is enough to see where time goes and keeps the
record small; the seconds of whole stages are taken by a plain clock.
"""

import dataclasses
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from shotfit.errors import DataError
from shotfit.methods.base import Method
from shotfit.system.files import write_atomically
from shotfit.system.memory import free_memory_bytes, peak_memory_bytes, take_in_advance
from shotfit.training.loop import TrainStep

# The first updates of a stage allocate and warm up; they say little about the others.
WARM_UP = 2
RECORDED = 10
TOP_OPERATORS = 12
IMAGES, TEXT, BACKWARD, UPDATE = "image tower", "text tower", "backward", "update of the weights"
REST = "loading, loss and the rest"


@dataclass
class StageProfile:
    """What was recorded of one stage; seconds are of the recorded updates."""

    name: str
    components: dict[str, float]
    operators: list[tuple[str, int, float]]
    """Name, calls and own seconds, the longest first."""
    updates: int
    seconds: float
    total_updates: int
    total_seconds: float


class Profile:
    """An observer for `adapt` that records some updates of every stage.

    Call `finish` when the fit has ended, and ask for the results after that.
    """

    def __init__(self, stages: list[str]) -> None:
        self.stages: list[StageProfile] = []
        self._events: list[dict[str, Any]] = []
        self._watches = [
            _Watch(f"stage {number}: {name}") for number, name in enumerate(stages, start=1)
        ]
        self._last = time.perf_counter()

    def __call__(self, method: Method, stage: int, step: TrainStep) -> None:
        """Takes note of an update; starts and ends the recording of its stage."""
        now = time.perf_counter()
        watch = self._watches[stage]
        watch.seconds += now - self._last
        watch.updates += 1
        if watch.recorder is None:
            if watch.updates == min(WARM_UP, step.total - 1):
                watch.recorder = _Recorder(method)
        elif watch.recorder.running:
            watch.recorder.updates += 1
            if watch.recorder.updates == RECORDED or step.iteration == step.total:
                watch.recorder.stop()
        # The time that recording takes is not part of the fit.
        self._last = time.perf_counter()

    def finish(self) -> None:
        """Makes the profile of what was recorded."""
        for watch in self._watches:
            recorder = watch.recorder
            if recorder is None:
                continue
            recorder.stop()
            if recorder.updates:
                self.stages.append(recorder.profile(watch))
                self._events += recorder.events()
            watch.recorder = None

    def plain(self) -> list[dict[str, Any]]:
        """The stages as plain values."""
        return [dataclasses.asdict(stage) for stage in self.stages]

    def table(self) -> str:
        """The profile as text: seconds of each stage, shares of its parts, its top operators."""
        blocks = []
        for stage in self.stages:
            lines = [
                f"{stage.name}: {stage.total_seconds:.1f} s with setup, "
                f"{stage.total_updates} updates; {stage.updates} recorded, "
                f"{1e3 * stage.seconds / stage.updates:.1f} ms each"
            ]
            for name, seconds in stage.components.items():
                lines.append(_line(name, seconds, stage.seconds))
            lines.append("  operators, own time:")
            for name, calls, seconds in stage.operators:
                lines.append(_line(f"{name} ({calls} calls)", seconds, stage.seconds))
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks) or "No update was recorded: nothing to profile."

    def save_trace(self, path: Path) -> None:
        """Writes the recorded updates as a JSON trace, for chrome://tracing or Perfetto.

        Raises:
            DataError: when the file cannot be written.
        """
        try:
            write_atomically(path, json.dumps({"traceEvents": self._events}))
        except OSError as error:
            raise DataError(f"Cannot write the trace {path}: {error}") from error


@dataclass
class _Watch:
    """A stage under way: its clock, and the recording once it has begun."""

    name: str
    updates: int = 0
    seconds: float = 0.0
    recorder: "_Recorder | None" = None


class _Recorder:
    """PyTorch's profiler over some updates, with the two towers as named ranges."""

    def __init__(self, method: Method) -> None:
        device = method.backbone.device
        self.on_device = device.type == "cuda"
        activities = [ProfilerActivity.CPU]
        if self.on_device:
            activities.append(ProfilerActivity.CUDA)
        self.updates = 0
        self.seconds = 0.0
        self._hooks: list[Any] = []
        for tower, name in ((method.backbone.vision, IMAGES), (method.backbone.text, TEXT)):
            self._name(tower, name)
        # Kineto announces its start and end on standard error otherwise.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        if not self.on_device:
            # The recorder's notes come to lie where a step's buffers did, which must then move. If
            # that were to memory new to the process, page faults would be most of what is seen.
            most = free_memory_bytes(device) // 2
            take_in_advance(min(most, peak_memory_bytes(device)))
        self._profile = profile(activities=activities)
        self._profile.start()
        self.running = True
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Ends the recording; a second call changes nothing."""
        if not self.running:
            return
        self.running = False
        if self.on_device:
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self._started
        self._profile.stop()
        for hook in self._hooks:
            hook.remove()

    def profile(self, watch: "_Watch") -> StageProfile:
        """The parts of the recorded updates, and the operators with most seconds of their own."""
        averages = self._profile.key_averages()
        total = {event.key: self._seconds(event, own=False) for event in averages}
        found = {
            IMAGES: total.get(IMAGES, 0.0),
            TEXT: total.get(TEXT, 0.0),
            BACKWARD: sum(s for key, s in total.items() if key.startswith("autograd::engine")),
            UPDATE: sum(s for key, s in total.items() if key.startswith("Optimizer.step")),
        }
        found[REST] = max(0.0, self.seconds - sum(found.values()))
        operators = sorted(
            (
                (event.key, event.count, self._seconds(event, own=True))
                for event in averages
                if event.key not in found
            ),
            key=lambda row: -row[2],
        )
        return StageProfile(
            name=watch.name,
            components=found,
            operators=operators[:TOP_OPERATORS],
            updates=self.updates,
            seconds=self.seconds,
            total_updates=watch.updates,
            total_seconds=watch.seconds,
        )

    def events(self) -> list[dict[str, Any]]:
        """The events of the trace."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]

    def _seconds(self, event: Any, *, own: bool) -> float:
        kind = "device" if self.on_device else "cpu"
        return getattr(event, f"self_{kind}_time_total" if own else f"{kind}_time_total") / 1e6

    def _name(self, tower: torch.nn.Module, name: str) -> None:
        """Hooks, not ranges in the tower: what exports or compiles it must see no profiler."""
        open_ranges: list[record_function] = []

        # What is computed again for its gradient is part of the backward pass; it ends early, by an
        # exception, so that its range would not be closed either.
        def enter(*_: Any) -> None:
            if _in_backward():
                return
            open_ranges.append(record_function(name))
            open_ranges[-1].__enter__()

        def leave(*_: Any) -> None:
            if _in_backward():
                return
            open_ranges.pop().__exit__(None, None, None)

        self._hooks.append(tower.register_forward_pre_hook(enter))
        self._hooks.append(tower.register_forward_hook(leave))


def _in_backward() -> bool:
    # As PyTorch's own checkpointing asks.
    return torch._C._current_graph_task_id() != -1


def _line(name: str, seconds: float, whole: float) -> str:
    return f"  {100 * seconds / whole:5.1f} %  {1e3 * seconds:9.1f} ms  {name}"
