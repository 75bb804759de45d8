"""ShotFit: two-stage few-shot adaptation of CLIP-like models.

The names below load on first use, so that `import shotfit` and `shotfit --help` stay instant.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shotfit.adaptation import adapt
    from shotfit.averages import harmonic_mean
    from shotfit.backbone import Backbone
    from shotfit.classifier import FewShotClassifier
    from shotfit.data.dataset import Dataset
    from shotfit.data.sources import list_sources, load_dataset
    from shotfit.data.task import make_task
    from shotfit.errors import DataError, UsageError
    from shotfit.evaluation.metrics import evaluate
    from shotfit.experiment import Experiment, run
    from shotfit.methods import get_method, list_methods
    from shotfit.recipe import Recipe, Stage, one_stage, two_stage
    from shotfit.training.loop import train

__version__ = "0.1.0"

_HOMES = {
    "Backbone": "backbone",
    "DataError": "errors",
    "Dataset": "data.dataset",
    "Experiment": "experiment",
    "FewShotClassifier": "classifier",
    "Recipe": "recipe",
    "Stage": "recipe",
    "UsageError": "errors",
    "adapt": "adaptation",
    "evaluate": "evaluation.metrics",
    "get_method": "methods",
    "harmonic_mean": "averages",
    "list_methods": "methods",
    "list_sources": "data.sources",
    "load_dataset": "data.sources",
    "make_task": "data.task",
    "one_stage": "recipe",
    "run": "experiment",
    "train": "training.loop",
    "two_stage": "recipe",
}

__all__ = [
    "Backbone",
    "DataError",
    "Dataset",
    "Experiment",
    "FewShotClassifier",
    "Recipe",
    "Stage",
    "UsageError",
    "adapt",
    "evaluate",
    "get_method",
    "harmonic_mean",
    "list_methods",
    "list_sources",
    "load_dataset",
    "make_task",
    "one_stage",
    "run",
    "train",
    "two_stage",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shotfit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"shotfit.{_HOMES[name]}"), name)
