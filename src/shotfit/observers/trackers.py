"""What the packages of experiment trackers are asked to do, each in its own words."""

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
"""As their packages and the extras of ours are called."""


class Writer(Protocol):
    """What a tracker's package is asked to do."""

    def config(self, values: Mapping[str, str | int | float | bool]) -> None:
        """Notes what decides a run."""
        ...

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Notes numbers at a step."""
        ...

    def close(self, *, failed: bool) -> None:
        """Writes what is left; nothing comes after it."""
        ...


class _TensorBoard:
    """Event files in a folder of the run's own."""

    def __init__(self, folder: Path, name: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder / name)

    def config(self, values: Mapping[str, str | int | float | bool]) -> None:
        rows = "\n".join(f"| {key} | {value} |" for key, value in values.items())
        self._writer.add_text("config", f"| option | value |\n|---|---|\n{rows}")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """A run of project "shotfit", offline unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path, name: str) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            console="off",
            disable_git=True,
            disable_code=True,
            silent=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
        )
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "shotfit"),
            dir=str(folder),
            name=name,
            mode=os.environ.get("WANDB_MODE", "offline"),  # pyright: ignore[reportArgumentType]
            settings=settings,
        )

    def config(self, values: Mapping[str, str | int | float | bool]) -> None:
        self._run.config.update(dict(values), allow_val_change=True)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        # Its own step counts calls; ours begins anew with each stage, as an axis of the stage's.
        (place,) = {key.rpartition("/")[0] for key in values}
        axis = f"{place}/update"
        self._run.define_metric(f"{place}/*", step_metric=axis)
        self._run.log({**values, axis: step})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class _MLflow:
    """A run of experiment "shotfit" in `folder`/mlflow.db, or where MLFLOW_TRACKING_URI says."""

    def __init__(self, folder: Path, name: str) -> None:
        from mlflow import MlflowClient

        place, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if not place:
            folder.mkdir(parents=True, exist_ok=True)
            place = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
            artifacts = (folder / "mlruns").resolve().as_uri()
        self._client = MlflowClient(place)
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "shotfit")
        known = self._client.get_experiment_by_name(title)
        experiment = known.experiment_id if known else None
        if experiment is None:
            experiment = self._client.create_experiment(title, artifact_location=artifacts)
        self._id = self._client.create_run(experiment, run_name=name).info.run_id

    def config(self, values: Mapping[str, str | int | float | bool]) -> None:
        from mlflow.entities import Param

        self._client.log_batch(self._id, params=[Param(k, str(v)) for k, v in values.items()])

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(key, value, now, step) for key, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


class _Trackio:
    """A run of the project "shotfit" in `folder`/trackio, or where Trackio's settings say."""

    def __init__(self, folder: Path, name: str) -> None:
        self._trackio: Any = importlib.import_module("trackio")
        project = os.environ.get("TRACKIO_PROJECT", "shotfit")
        with _on_standard_error():
            self._run: Any = self._trackio.init(project=project, name=name, embed=False)

    def config(self, values: Mapping[str, str | int | float | bool]) -> None:
        self._run.config.update(values)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        with _on_standard_error():
            self._trackio.finish()


def _on_standard_error() -> contextlib.redirect_stdout[TextIO]:
    """What a package prints must not stand among our answers."""
    return contextlib.redirect_stdout(sys.stderr)


WRITERS: dict[TrackerName, Callable[[Path, str], Writer]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WeightsAndBiases,
    "mlflow": _MLflow,
    "trackio": _Trackio,
}
