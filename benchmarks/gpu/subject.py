"""The network that a case runs: its module, its inputs, and the recipe that compiles it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.blocks.definitions import BLOCKS, Block
from benchmarks.gpu.case import Case
from benchmarks.gpu.cases import BATCHES
from benchmarks.gpu.small_modules import SMALL_MODULES
from benchmarks.models.named import spec_named
from benchmarks.models.spec import Inputs, ModelSpec

BLOCK_BYTES = 512 * 2**20  # of one large tensor: several times any last cache
# Of a tensor whose kernels are compared on the processor: more than a launch holds threads for at once.
DIAGNOSED_BYTES = 64 * 2**20
_EMULATED_BATCH = {"softmax": 1, "batch_norm": 1}
_EMULATED_ROWS = 4


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network in the size and mode of a case.

    Attributes:
        spec: its inputs have the batch of the case.
        training: forward and backward pass; else forward without gradients.
        train_mode: the module is in train mode.
    """

    spec: ModelSpec
    training: bool
    train_mode: bool


def subject_of(case: Case) -> Subject:
    """The network of a case.

    Raises:
        KeyError: the case is none that runs a network, or there is no network of this name.
    """
    training = case.mode == "training"
    match case.kind:
        case "block" | "values" | "replays":
            found = BLOCKS[case.name]
            batch = block_batch(found, emulated=case.emulated)
            if case.question == "kernels" and not case.emulated:
                batch = large_batch(found, DIAGNOSED_BYTES)
            spec = sized(found.spec, batch)
            return Subject(spec=spec, training=training, train_mode=training or found.train_mode)
        case "small":
            spec = SMALL_MODULES[case.name]
        case "times" | "autotune" if not case.emulated:
            spec = sized(spec_named(case.name), BATCHES[case.name])
        case "correctness" | "times" | "autotune":
            spec = spec_named(f"reduced:{case.name}" if case.emulated else case.name)
        case _:
            raise KeyError(f"{case.label} runs no network")
    return Subject(spec=spec, training=training, train_mode=training)


def block_batch(found: Block, *, emulated: bool) -> int:
    """The first size of a block's inputs."""
    return _EMULATED_BATCH.get(found.spec.name, _EMULATED_ROWS) if emulated else large_batch(found)


def large_batch(found: Block, least_bytes: int = BLOCK_BYTES) -> int:
    """The first size with which a large tensor of a block has so many bytes in float32."""
    return -(-least_bytes // (4 * elements_of(found, 1)))


def elements_of(found: Block, batch: int) -> int:
    """Of a large tensor of a block with this first size."""
    return found.spec.example(batch=1)[0].numel() * batch


def sized(spec: ModelSpec, batch: int) -> ModelSpec:
    """The network with another usual batch, and the weights that it has with its own."""
    return replace(spec, inputs=_of_batch(spec.inputs, batch), calibration=spec.inputs)


def _of_batch(inputs: Inputs, usual: int) -> Inputs:
    def made(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None) -> tuple[Any, ...]:
        return inputs(generator, dtype, usual if batch is None else batch)

    return made
