"""Which rule should decide alpha? Every rule and fixed alpha on every task of both suites.

    PYTHONPATH=benchmarks python -m stopping.study       # a record a cell; again, it goes on
    PYTHONPATH=benchmarks python -m stopping.policies    # its table, which docs/stopping.md has

A cell is (task, method, seed). Its first stage is trained once, its cosine over the longest first
stage that a rule may choose (0.8 of the budget). At each tenth of the budget a second stage of
what is left of it is trained on the features of that moment and measured. A policy is then a place
on this one trajectory, so that a cell costs one run for all policies together, and policies differ
in nothing but the place. What it leaves out is a fixed alpha's own cosine, which ends where its
first stage ends; seed 1 trains that too, for the published alpha, as a check.

The first stage is the published one pressed into a sixth of its iterations at five times its
learning rate, with half its batch size, in bf16; the second has the published length and rate, on
four cached views. 138 cells are an hour of one core that way, and many hours as published.
"""

import argparse
import dataclasses
import json
import random
import time
from pathlib import Path

import torch

from shotfit.backbone import Backbone
from shotfit.data.shifts import SHIFTED_SUITE
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.support_set import SupportSet
from shotfit.data.task import Task, make_task
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import Experiment, environment, support_set, task_facts
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TrainConfig
from shotfit.plan import plan
from shotfit.recipe import two_stage
from shotfit.system.files import write_atomically
from shotfit.training.loop import train
from shotfit.training.stopping import MAX_FRACTION, FirstStage, LeaveClassesOut
from stopping.agreement import ClassAgreement
from stopping.signals import GradientEvidence, TextDrift, TrainingFit

TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
PUBLISHED_ITERS_PER_SHOT = 300
PUBLISHED = {"layernorm": 0.6, "lora": 0.3}
SIGNALS = {
    "evidence": GradientEvidence,
    "drift": TextDrift,
    "fit": TrainingFit,
    "agreement": ClassAgreement,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", nargs="+", default=[*list_tasks(), *SHIFTED_SUITE])
    parser.add_argument("--methods", nargs="+", default=["layernorm", "lora"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--iters-per-shot", type=int, default=50)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--views", type=int, default=4, help="cached views of the second stage")
    parser.add_argument("--backbone", default="iconclip")
    parser.add_argument("--results", type=Path, default=Path("results/stopping"))
    run_missing(parser.parse_args())


def run_missing(options: argparse.Namespace) -> None:
    """Every cell without a record, seed by seed, so that what is there is balanced over tasks."""
    torch.set_num_threads(1)
    for seed in options.seeds:
        for name in options.tasks:
            for method in options.methods:
                path = options.results / f"{name}-{method}-seed{seed}.json"
                if path.exists():
                    continue
                started = time.perf_counter()
                record = cell(name, method, seed, options)
                write_atomically(path, json.dumps(record) + "\n")
                print(f"{path.stem}: {time.perf_counter() - started:.0f} s", flush=True)


def cell(name: str, method_name: str, seed: int, options: argparse.Namespace) -> dict:
    """Trajectory, signals, leave-classes-out and the published recipe of one cell."""
    task = make_task(load_dataset("demo", name=name), "base_to_novel", options.shots, seed)
    experiment = Experiment(seed=seed, shots=options.shots, data={"name": name})
    backbone = Backbone.from_pretrained(options.backbone)
    recipe = two_stage(
        method_name, iters_per_shot=options.iters_per_shot, first_fraction=MAX_FRACTION
    )
    _, config, (training,) = plan(recipe, task_facts(task))[0]
    training = compressed(training, options)
    support = support_set(task.support, backbone, experiment.seed)
    stage = FirstStage(method_name, config, training, backbone, support)
    started = time.perf_counter()
    trial = LeaveClassesOut()
    trial.fraction(stage)
    held_out_seconds = time.perf_counter() - started
    signals = {key: rule() for key, rule in SIGNALS.items()}
    for rule in signals.values():
        rule.fraction(stage)
    run = Trajectory(task, options, signals)
    run.follow(stage, seed)
    # One seed is enough to see whether the schedule matters, and it is a run of its own.
    own = published_recipe(task, method_name, seed, options) if seed == 1 else None
    return {
        "task": name,
        "method": method_name,
        "seed": seed,
        "options": {
            key: getattr(options, key)
            for key in (
                *("shots", "iters_per_shot", "lr", "batch_size"),
                *("precision", "views", "backbone"),
            )
        },
        "classes": len(task.support.classnames),
        "places": run.places,
        "signals": {key: rounded(rule.history) for key, rule in signals.items()},
        "leave_classes_out": rounded(trial.curve),
        "published_alpha_own_cosine": own,
        "seconds": {**run.seconds, "leave_classes_out": held_out_seconds},
        "split_hash": task.split_hash,
        "environment": environment(),
    }


class Trajectory:
    """One first stage with second stages at its tenths, and the rules' signals along it."""

    def __init__(self, task: Task, options: argparse.Namespace, signals: dict) -> None:
        self.task = task
        self.options = options
        self.signals = signals
        self.total = options.iters_per_shot * options.shots
        self.places: list[dict] = []
        self.seconds = {"first_stage": 0.0, **dict.fromkeys(signals, 0.0)}

    def follow(self, stage: FirstStage, seed: int) -> None:
        """Trains; every clock counts what it names and nothing else."""
        method, support = stage.fresh(stage.support.split, seed)
        places = {round(fraction * self.total) for fraction in TENTHS}
        clock = time.perf_counter()
        for step in train(method, support, stage.training):
            self.seconds["first_stage"] += time.perf_counter() - clock
            for name, rule in self.signals.items():
                clock = time.perf_counter()
                rule.stop(method, step)
                self.seconds[name] += time.perf_counter() - clock
            if step.iteration in places:
                self.add(method, step.iteration)
            clock = time.perf_counter()

    def add(self, method: Method, iteration: int) -> None:
        """Measures what a second stage from here gives; leaves the method as it was."""
        trainable = [p for p in method.parameters() if p.requires_grad]
        rest = second_training(1 - iteration / self.total, self.options)
        # The same crops at every place: what differs is the first stage.
        support = SupportSet(
            self.task.support, method.backbone.image_spec, random.Random("stage 2")
        )
        second = second_stage(method, support, rest, self.options.views)
        found = evaluate(second, self.task.tests)
        for parameter in trainable:
            parameter.requires_grad_(True)
        method.train()
        self.places.append({"fraction": round(iteration / self.total, 3), **chosen(found)})


def chosen(metrics: dict[str, float]) -> dict[str, float]:
    return {key: round(metrics[key], 3) for key in ("base", "novel", "harmonic_mean")}


def second_stage(
    method: Method, support: SupportSet, training: TrainConfig, views: int
) -> LinearClassifier:
    second = LinearClassifier(method, LinearConfig(views=views))
    second.setup(support)
    # With the factor that the backbone asks for, as a recipe has it.
    training = dataclasses.replace(
        training, lr=training.lr * method.backbone.hints.classifier_lr_scale
    )
    for _ in train(second, support, training):
        pass
    return second


def published_recipe(task: Task, name: str, seed: int, options: argparse.Namespace) -> dict:
    """The published alpha with its own cosine, at the end of its second stage."""
    backbone = Backbone.from_pretrained(options.backbone)
    alpha = PUBLISHED[name]
    recipe = two_stage(name, iters_per_shot=options.iters_per_shot, first_fraction=alpha)
    _, config, (training,) = plan(recipe, task_facts(task))[0]
    support = support_set(task.support, backbone, seed)
    stage = FirstStage(name, config, training, backbone, support)
    method, support = stage.fresh(task.support, seed)
    for _ in train(method, support, compressed(training, options)):
        pass
    rest = second_training(1 - alpha, options)
    second = second_stage(method, support, rest, options.views)
    return {"fraction": alpha, **chosen(evaluate(second, task.tests))}


def second_training(share: float, options: argparse.Namespace) -> TrainConfig:
    """The published second stage with a share of the published budget; on cached views it costs
    next to nothing, so that it need not be pressed."""
    return TrainConfig(iterations=round(share * PUBLISHED_ITERS_PER_SHOT * options.shots))


def compressed(training: TrainConfig, options: argparse.Namespace) -> TrainConfig:
    return dataclasses.replace(
        training, lr=options.lr, batch_size=options.batch_size, precision=options.precision
    )


def rounded(pairs: list[tuple[float, float]]) -> list[list[float]]:
    return [[round(at, 4), float(f"{value:.4g}")] for at, value in pairs]


if __name__ == "__main__":
    main()
