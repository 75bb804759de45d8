"""The one training loop. It knows a method by `loss` and `batches`, and nothing of test data."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shotfit.data.prefetch import batches_per_epoch
from shotfit.data.support_set import SupportSet
from shotfit.errors import Diverged, UsageError
from shotfit.methods.base import Method
from shotfit.methods.published import TrainConfig
from shotfit.training.execution import execution, micro_batch
from shotfit.training.finite import check_loss
from shotfit.training.state import TrainState, take_up, training_tensors


@dataclass(frozen=True)
class TrainStep:
    """One update that has been made: its loss, its batch's accuracy (percent) and its rate."""

    iteration: int
    total: int
    loss: float
    accuracy: float
    lr: float


def train(method: Method, support: SupportSet, config: TrainConfig) -> Iterator[TrainStep]:
    """Trains what requires a gradient in `method`, yielding after every update (`Training`)."""
    yield from Training(method, support, config)


class Training:
    """A round of training what requires a gradient in a method: iterating makes its updates.

    Stopping early is leaving the loop. What looks at the method in between must leave its mode and
    its random state as they are, as `evaluate` does. Between two updates `state` says where the
    round is; one that is made with it goes on from there, to the same bits, if the support set's
    random stream is where it was when the round began.

    Raises:
        UsageError: when the method has nothing to train, the budget is not given, or an accelerator
            has no memory for a single image.
        Diverged: when a loss is not finite; its update is not made.
    """

    def __init__(
        self,
        method: Method,
        support: SupportSet,
        config: TrainConfig,
        state: TrainState | None = None,
    ) -> None:
        parameters = [p for p in method.parameters() if p.requires_grad]
        if not parameters:
            raise UsageError(f"{type(method).__name__} has nothing to train.")
        self.method, self.support, self.config = method, support, config
        self.total = total_iterations(config, len(support))
        self._optimizer = make_optimizer(parameters, config)
        fp16 = config.precision == "fp16"
        self._scaler = torch.amp.GradScaler(method.backbone.device.type, enabled=fp16)
        self._iteration = self._taken = 0
        self._size = config.batch_size
        self._batches = method.batches(support, config.batch_size, config.drop_last)
        if state is not None:
            self._go_on(state)

    def _go_on(self, state: TrainState) -> None:
        with self.support.only_drawing(state.taken):
            for _ in range(state.taken):
                next(self._batches)
        take_up(self.method, self._optimizer, state.tensors)
        self._scaler.load_state_dict(state.scaler)
        self._iteration, self._taken = state.iteration, state.taken

    def state(self) -> TrainState:
        """Where the round is, between two updates."""
        return TrainState(
            self._iteration,
            self._taken,
            self._scaler.state_dict(),
            training_tensors(self.method, self._optimizer),
        )

    def __iter__(self) -> Iterator[TrainStep]:
        config = self.config
        per_epoch = updates_per_epoch(config, len(self.support))
        self._size = micro_batch(self.method, config)
        self.method.train()
        with execution(self.method, config):
            while self._iteration < self.total:
                lr = learning_rate(config, self._iteration, self.total, per_epoch)
                measured = self._update(lr)
                if measured is not None:
                    self._iteration += 1
                    yield TrainStep(self._iteration, self.total, *measured, lr)

    def _update(self, lr: float) -> tuple[float, float] | None:
        """Loss and accuracy of the next batch, for which an update is made; None where the gradient
        has overflowed in fp16."""
        optimizer, scaler = self._optimizer, self._scaler
        device = self.method.backbone.device
        inputs, labels = next(self._batches)
        self._taken += 1
        # Asynchronous where the loader has pinned the batch.
        inputs, labels = (x.to(device, non_blocking=True) for x in (inputs, labels))
        for group in optimizer.param_groups:
            group["lr"] = lr
        while (measured := self._gradients(inputs, labels)) is None:
            self._halve(len(labels))
        if self._taken == 1:
            _check_gradients(self.method)
        # One transfer for both numbers: on an accelerator it waits for the gradients, which the
        # next step would anyway.
        loss, accuracy = measured.tolist()
        if not scaler.is_enabled():
            check_loss(self.method, loss, self._where())
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        # With fp16 an overflow skips the update: neither counted nor scheduled, as in 2SFS's
        # released code.
        if scaler.get_scale() < scale:
            _check_scale(scaler.get_scale())
            return None
        check_loss(self.method, loss, self._where())
        return loss, accuracy

    def _where(self) -> str:
        return f"update {self._iteration + 1:,} of {self.total:,} (batch {self._taken:,})"

    def _gradients(self, inputs: Tensor, labels: Tensor) -> Tensor | None:
        """Loss and accuracy of a batch, whose gradients are there then; None where the accelerator
        had no memory for so many images at a time."""
        method, size = self.method, self._size
        autocast = _autocast(inputs.device, self.config.precision)
        masks = method.generator.get_state()
        measured = torch.zeros(2, device=inputs.device)
        self._optimizer.zero_grad(set_to_none=True)
        try:
            for part, answers in zip(inputs.split(size), labels.split(size), strict=True):
                share = len(answers) / len(labels)
                with autocast:
                    output = method.loss(part, answers, self.support.classnames)
                self._scaler.scale(output.loss if share == 1 else output.loss * share).backward()
                measured += share * _measure(output.loss, output.logits, answers)
        except torch.OutOfMemoryError as error:
            if size == 1 or not method.additive_loss:
                whole = "one image" if size == 1 else f"the batch of {len(labels)} that it needs"
                raise UsageError(
                    f"Out of memory with {whole} at a time: training.checkpointing=true and "
                    f"training.precision=bf16 take less of it. {error}"
                ) from error
        else:
            return measured
        # Drawn again, as if it had been the first time.
        method.generator.set_state(masks)
        return None

    def _halve(self, images: int) -> None:
        """Half as many images at a time from here on, which costs time and changes no gradient."""
        tried = min(self._size, images)
        self._size = max(1, tried // 2)
        # What the failed attempt held is given back, in pieces of other sizes.
        self._optimizer.zero_grad(set_to_none=True)
        if self.method.backbone.device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(
            f"Out of memory with {tried} images at a time: going on with {self._size} at a time "
            f"(training.micro_batch={self._size} from the start saves the attempt).",
            stacklevel=2,
        )


def updates_per_epoch(config: TrainConfig, images: int) -> int:
    """Updates in one pass over `images` images, never less than one."""
    return batches_per_epoch(images, config.batch_size, config.drop_last)


def total_iterations(config: TrainConfig, images: int) -> int:
    """The updates that a config asks for.

    Raises:
        UsageError: when it gives neither or both of iterations and epochs.
    """
    if (config.iterations is None) == (config.epochs is None):
        raise UsageError("Give the budget as iterations or as epochs.")
    if config.iterations is not None:
        return config.iterations
    assert config.epochs is not None
    return config.epochs * updates_per_epoch(config, images)


def learning_rate(config: TrainConfig, iteration: int, total: int, per_epoch: int) -> float:
    """The learning rate of update number `iteration`, counted from 0.

    "cosine" is 2SFS's: one half wave over all updates, down to `lr_min`, or one that falls and
    rises in `cosine_iterations` updates each (torch's `CosineAnnealingLR` beyond its `T_max`).
    After a warm-up of so many iterations it starts from its top, no shorter than without.
    "cosine_per_epoch" is Dassl's: constant within an epoch, and after the warm-up epochs the wave
    starts from its top but still spans all epochs, so that it never quite reaches its end (Dassl
    `optim/lr_scheduler.py`).
    """
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "cosine":
        if iteration < config.warmup_iterations:
            risen = config.lr * iteration / config.warmup_iterations
            return risen if iteration else config.warmup_lr
        period = config.cosine_iterations or total
        progress = (iteration - config.warmup_iterations) / max(1, period)
    else:
        epoch = iteration // per_epoch
        if epoch < config.warmup_epochs:
            return config.warmup_lr
        progress = (epoch - config.warmup_epochs) / max(1, math.ceil(total / per_epoch))
    return config.lr_min + (config.lr - config.lr_min) * (1 + math.cos(math.pi * progress)) / 2


def make_optimizer(parameters: list[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser that a config asks for; `train` sets its rate before every update."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, config.lr, config.momentum, weight_decay=config.weight_decay
        )
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, config.lr, eps=config.eps, weight_decay=config.weight_decay)


def _autocast(device: torch.device, precision: str) -> torch.autocast:
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=precision != "fp32")


def _check_gradients(method: Method) -> None:
    """Every tensor that claims to train must have got a gradient, or it silently stays as it is."""
    missing = [n for n, p in method.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing, f"no gradient reached {', '.join(missing)}"


def _check_scale(scale: float) -> None:
    """An overflow now and then is how fp16 is meant to be; one at every scale is no overflow."""
    if scale < 2**-14:
        raise Diverged("The loss is not finite at any scale in fp16: use bf16 or fp32.")


def _measure(loss: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Loss and accuracy (percent) of a batch, left on the device."""
    correct = (logits.detach().argmax(dim=-1) == labels).float().mean()
    return torch.stack([loss.detach().float(), 100 * correct])
