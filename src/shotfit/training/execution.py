"""How a training step is carried out, which changes its cost and, up to rounding, not its numbers.

One exception: a micro-batch draws the masks of a dropout for each of its parts, so that LoRA's
numbers follow its size.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.utils.deterministic

from shotfit.errors import UsageError
from shotfit.methods.base import Method
from shotfit.methods.published import TrainConfig
from shotfit.system.memory import free_memory_bytes

# The share of free memory that "auto" plans with: the rest is for text, weights and other programs.
AUTO_SHARE = 0.5
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def quick_precision(device: torch.device) -> Literal["fp32", "bf16"]:
    """bf16 where the device has instructions for it, else fp32."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    # Only of x86 does PyTorch tell, in every version that this package runs with.
    return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"


@contextmanager
def execution(method: Method, config: TrainConfig) -> Iterator[None]:
    """Recomputation, precision and compilation as `config` asks for them, undone at the end.

    Raises:
        UsageError: for fp16 with a method that it would mislead, or when compiling needs a
            compiler that this machine does not have.
    """
    if config.precision == "fp16" and not method.additive_loss:
        raise UsageError(
            f"{type(method).__name__} takes gradients that fp16's loss scaling does not reach: "
            "use bf16 or fp32."
        )
    vision = method.backbone.vision
    before = vision.checkpointing
    blocks = [*vision.blocks, *method.backbone.text.blocks]
    if config.compile:
        check_compiler(method.backbone.device)
    try:
        vision.checkpointing = before or config.checkpointing
        for block in blocks:
            block.cache_cast(PRECISIONS[config.precision])
        if config.compile:
            for block in vision.blocks:
                block.compile()
        yield
    finally:
        vision.checkpointing = before
        for block in blocks:
            block.cache_cast(None)
        if config.compile:
            for block in vision.blocks:
                block._compiled_call_impl = None


@contextmanager
def determinism(enabled: bool = True) -> Iterator[None]:
    """Kernels whose sums do not depend on timing, where there is a choice; undone at the end.

    On a CPU results repeat anyway for a number of threads. On CUDA, the workspace setting that
    cuBLAS needs must be made before its first call, hence before the model is moved there.
    """
    before = torch.are_deterministic_algorithms_enabled()
    options: Any = torch.utils.deterministic
    filling = options.fill_uninitialized_memory
    if enabled:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # PyTorch would fill every buffer before it is used, a sixth of a step; nothing here reads
        # a buffer that it has not written.
        options.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        options.fill_uninitialized_memory = filling


def micro_batch(method: Method, config: TrainConfig) -> int:
    """Images per forward pass.

    Raises:
        UsageError: for a size below 1, or a method whose loss cannot be taken apart.
    """
    size = config.micro_batch
    if size is None:
        return config.batch_size
    if not method.additive_loss:
        if size == "auto":
            return config.batch_size
        raise UsageError(
            f"{type(method).__name__} needs the whole batch at once: leave out micro_batch, "
            "and use checkpointing to save memory."
        )
    if size == "auto":
        vision = method.backbone.vision
        tokens = method.image_passes * vision.position_embedding.shape[0]
        image = tokens * vision.token_bytes
        size = int(AUTO_SHARE * free_memory_bytes(method.backbone.device) / image)
        return max(1, min(config.batch_size, size))
    if size < 1:
        raise UsageError(f"micro_batch must be at least 1, got {size}.")
    return min(size, config.batch_size)


def check_compiler(device: torch.device) -> None:
    """Compiled code for a processor goes through C++.

    Raises:
        UsageError: when there is no compiler.
    """
    if device.type != "cpu" or sys.platform == "win32":
        return
    names = [os.environ.get("CXX", ""), "g++", "clang++", "c++"]
    if not any(name and shutil.which(name) for name in names):
        raise UsageError(
            "compile needs a C++ compiler on a CPU and none was found: install g++ or clang++ "
            "(or name one in CXX), or leave compile out."
        )
