"""Times of networks and blocks on the device: eager, torch.compile and daceml, called and replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks.blocks.definitions import BLOCKS, Block
from benchmarks.gpu.case import Case
from benchmarks.gpu.cases import BATCHES
from benchmarks.gpu.correctness import compared
from benchmarks.gpu.precisions import PRECISIONS, computing_in
from benchmarks.gpu.target import Target, in_precision, target_of
from benchmarks.gpu.timing import GRAPHS, OURS, Step, measure, measured_twice, rounds_of, row_of
from benchmarks.models.named import spec_named
from benchmarks.models.spec import Inputs, ModelSpec
from benchmarks.peers import Casting, training_step

BLOCK_BYTES = 512 * 2**20  # of one large tensor: several times any last cache
_EMULATED_BATCH = {"softmax": 1, "batch_norm": 1}
_EMULATED_ROWS = 4


def times(case: Case) -> dict[str, Any]:
    """A network beside eager and torch.compile."""
    return _timed(case, ("eager", "inductor", "daceml", OURS + GRAPHS))


def autotuned(case: Case) -> dict[str, Any]:
    """A network beside torch.compile, and beside it with templates chosen by measurements."""
    return _timed(case, ("inductor", "max_autotune", "daceml"))


def block(case: Case) -> dict[str, Any]:
    """A block: its values, then replayed graphs of it beside its peers and a copy of one of its tensors."""
    found, target = BLOCKS[case.name], target_of(emulated=case.emulated)
    batch = _EMULATED_BATCH.get(case.name, _EMULATED_ROWS) if case.emulated else large_batch(found)
    ways = _ways(case, found.spec, target, batch, ("eager", "inductor", "daceml"), found.train_mode)
    elements = elements_of(found, batch)
    right = compared(
        replace(found.spec, inputs=_of_batch(found.spec.inputs, batch)),
        target,
        PRECISIONS[case.precision],
        training=case.mode == "training",
        train_mode=found.train_mode,
    )

    def replayed(build: Callable[[], Step]) -> Step:
        return target.replay(build())

    with computing_in(PRECISIONS[case.precision]):
        replays = measure(
            {name: partial(replayed, build) for name, build in ways.items()}
            | {"copy": partial(copying, target, elements)},
            target.batch_us,
            rounds=rounds_of(case),
        )
    tensors = found.forward_tensors if case.mode == "inference" else found.step_tensors
    return {**right, "replays": row_of(replays), "elements": elements, "large_tensors": tensors}


def _of_batch(inputs: Inputs, batch: int) -> Inputs:
    """Inputs whose usual first size is this one."""

    def made(generator: torch.Generator, dtype: torch.dtype, batch: int | None = batch) -> tuple[Any, ...]:
        return inputs(generator, dtype, batch)

    return made


def large_batch(found: Block) -> int:
    """The first size with which a large tensor of a block has `BLOCK_BYTES`."""
    return -(-BLOCK_BYTES // (4 * elements_of(found, 1)))


def elements_of(found: Block, batch: int) -> int:
    """Of a large tensor of a block with this first size."""
    return found.spec.example(batch=1)[0].numel() * batch


def copying(target: Target, elements: int) -> Step:
    """A copy of so many float32 numbers, random ones, from one array into another."""
    source = torch.randn(elements, device=target.device)
    return partial(torch.empty_like(source).copy_, source)


def _timed(case: Case, names: tuple[str, ...]) -> dict[str, Any]:
    target = target_of(emulated=case.emulated)
    spec = spec_named(f"reduced:{case.name}" if case.emulated else case.name)
    batch = None if case.emulated else BATCHES[case.name]
    with computing_in(PRECISIONS[case.precision]):
        seen = measured_twice(_ways(case, spec, target, batch, names), target, rounds=rounds_of(case))
    return {name: row_of(measurement) for name, measurement in seen.items()}


def _ways(
    case: Case,
    spec: ModelSpec,
    target: Target,
    batch: int | None,
    names: tuple[str, ...],
    train_mode: bool = False,
) -> dict[str, Callable[[], Step]]:
    """What builds a step of each way, all from one module and one set of inputs."""
    training, precision = case.mode == "training", PRECISIONS[case.precision]
    module = in_precision(spec, precision, target).train(training or train_mode)
    inputs = target.place(spec.example(batch=batch), precision.dtype)
    if target.emulated:
        names = tuple(name for name in names if name in ("eager", "daceml"))
    casting = partial(target.casting, spec)

    def build(name: str) -> Step:
        return step_of(run_by(name, module, target, training=training), module, inputs, training, casting)

    return {name: partial(build, name) for name in names}


def run_by(name: str, module: nn.Module, target: Target, *, training: bool) -> Callable[..., Any]:
    """The module as one way runs it.

    Raises:
        KeyError: there is no such way.
    """
    match name:
        case "eager":
            return module
        case "inductor":
            return torch.compile(module)
        case "max_autotune":
            # graphs are captured here as for all others
            return torch.compile(module, mode="max-autotune-no-cudagraphs")
        case "daceml":
            return target.compile(module, training=training)
        case _ if name == OURS + GRAPHS:
            return target.compile(module, training=training, cuda_graphs=True)
        case _:
            raise KeyError(name)


def step_of(
    run: Callable[..., Any],
    module: nn.Module,
    inputs: tuple[Any, ...],
    training: bool,
    casting: Casting = contextlib.nullcontext,
) -> Step:
    """A call without gradients, or forward and backward from a dense cotangent."""
    if training:
        return training_step(run, module, pytree.tree_map_only(torch.Tensor, _requiring, inputs), casting)

    def call() -> Any:
        with torch.no_grad(), casting():
            return run(*inputs)

    return call


def _requiring(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
