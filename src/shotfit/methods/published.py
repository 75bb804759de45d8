"""Published training: what it may depend on, its options, and the defaults that methods share."""

from dataclasses import dataclass
from typing import Literal

from shotfit.config import Count, NotNegative, NotNegativeInt
from shotfit.data.benchmark.facts import benchmark_key
from shotfit.data.benchmark.templates import specific_templates
from shotfit.data.task import Setting
from shotfit.data.template import TEMPLATE
from shotfit.layers.ensembles import IMAGENET_TEMPLATES


@dataclass(frozen=True)
class TaskFacts:
    """What hyper-parameters depend on: nothing that is learnt from images."""

    dataset: str
    setting: Setting
    shots: int
    classes: int
    images: int
    classifier_lr_scale: float = 1.0
    """What the backbone's hints say: the factor on the second stage's learning rate."""

    @property
    def benchmark(self) -> str:
        """The key of the benchmark dataset, whatever of its names was given; "" for other data."""
        return benchmark_key(self.dataset)


@dataclass(frozen=True)
class TrainConfig:
    """How a stage is optimised. The defaults are 2SFS's (paper, section 5.1, and its released
    code).

    Exactly one of `iterations` and `epochs` is given once training starts.
    """

    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    lr: NotNegative = 2e-4
    weight_decay: NotNegative = 1e-2
    momentum: NotNegative = 0.9
    eps: NotNegative = 1e-8
    batch_size: Count = 32
    drop_last: bool = False
    iterations: Count | None = None
    epochs: Count | None = None
    # "cosine" falls at every iteration, "cosine_per_epoch" as Dassl's schedule does.
    schedule: Literal["cosine", "cosine_per_epoch", "constant"] = "cosine"
    lr_min: NotNegative = 1e-6
    # Updates in which "cosine" falls, and then rises again; None is all of them.
    cosine_iterations: Count | None = None
    warmup_epochs: NotNegativeInt = 0
    warmup_lr: NotNegative = 1e-5
    # Updates of a linear rise from `warmup_lr` that come before the wave of "cosine".
    warmup_iterations: NotNegativeInt = 0
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    # Images per forward pass: gradients add up to the whole batch's, in less memory. "auto" takes
    # as many as the memory that is free now should hold.
    micro_batch: Count | Literal["auto"] | None = None
    # Compute activations of the image tower again in the backward pass: a third more arithmetic,
    # a tenth of the memory.
    checkpointing: bool = False
    # Compile the blocks of the image tower; see docs/performance.md for when that pays off.
    compile: bool = False


def dassl(**changes) -> TrainConfig:
    """The trainer that ten of the baselines share (Dassl's defaults), with a method's changes.

    SGD with momentum and weight decay on every trained tensor, incomplete batches dropped, cosine
    per epoch to zero after one epoch at a constant 1e-5.
    """
    facts = {
        "optimizer": "sgd",
        "lr": 2e-3,
        "weight_decay": 5e-4,
        "drop_last": True,
        "schedule": "cosine_per_epoch",
        "lr_min": 0.0,
        "warmup_epochs": 1,
    }
    return TrainConfig(**{**facts, **changes})


def coop_epochs(facts: TaskFacts) -> int:
    """CoOp's epochs by shots, which ProGrad and PLOT++ follow: 50, 100 or 200; ImageNet 50."""
    if facts.benchmark == "imagenet" or facts.shots < 2:
        return 50
    return 100 if facts.shots <= 4 else 200


def published_templates(facts: TaskFacts, *, generic: bool = False) -> tuple[str, ...]:
    """What probes on features prompt with: seven templates on ImageNet, CoOp's own one on each of
    the other benchmarks, none for other data (Tip-Adapter's tables, which the others follow).

    With `generic`, ImageNet's are joined by "a photo of a {}." (TaskRes, CLAP).
    """
    if facts.benchmark != "imagenet":
        return specific_templates(facts.dataset)
    return (*IMAGENET_TEMPLATES, TEMPLATE) if generic else IMAGENET_TEMPLATES
