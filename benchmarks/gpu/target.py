"""Where a case runs: a CUDA device, or the processor with the device's kernels in emulation."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from benchmarks.gpu.precisions import Precision
from benchmarks.models.spec import ModelSpec
from daceml.runtime.records.manifest import Manifest
from daceml.transformations.recipe import Recipe
from daceml.transformations.standard import device_recipe

NO_DEVICE = "torch sees no CUDA device: run where there is one, or give --emulated for values only"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A device, or its emulation, which gives the same values and no times that mean anything."""

    emulated: bool = False

    @property
    def device(self) -> str:
        return "cpu" if self.emulated else "cuda"

    def place(self, value: Any, dtype: torch.dtype | None = None) -> Any:
        """A module, or inputs however they are nested, there; floating-point tensors in this type."""
        if isinstance(value, nn.Module):
            return value.to(self.device, dtype)

        def moved(x: torch.Tensor) -> torch.Tensor:
            return x.to(self.device, dtype if x.is_floating_point() else None)

        return pytree.tree_map_only(torch.Tensor, moved, value)

    def example(
        self, spec: ModelSpec, precision: Precision, seed: int = 0, *, drawn_on: str | None = None
    ) -> tuple[Any, ...]:
        """Inputs of a network, drawn there unless another device is named."""
        return self.place(spec.example(seed, device=drawn_on or self.device), precision.dtype)

    def compile(
        self, module: nn.Module, *, training: bool, recipe: Recipe | None = None, cuda_graphs: bool = False
    ) -> nn.Module:
        """The module compiled for the device; the standard recipe for devices unless another is given."""
        options: dict[str, Any] = {"cuda_graphs": True} if cuda_graphs else {}
        if self.emulated and recipe is None:
            recipe = device_recipe()
        return daceml.compile(module, backward=training, recipe=recipe, **options)

    def casting(self, spec: ModelSpec) -> AbstractContextManager[Any]:
        """The region in which eager and compiled calls of a network run."""
        return nullcontext() if spec.autocast is None else torch.autocast(self.device, spec.autocast)

    def wait(self) -> None:
        """Until everything that was launched is done."""
        if not self.emulated:
            torch.cuda.synchronize()

    def release(self) -> None:
        """Give memory that nothing holds any more back to other processes."""
        gc.collect()
        if not self.emulated:
            torch.cuda.empty_cache()

    def batch_us(self, step: Callable[[], object], calls: int) -> float:
        """Microseconds per call of so many calls, by the device's own events; in emulation by the clock."""
        if self.emulated:
            begun = time.perf_counter()
            for _ in range(calls):
                step()
            return (time.perf_counter() - begun) * 1e6 / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / calls

    def replay(self, step: Callable[[], object]) -> Callable[[], object]:
        """A step as a captured graph: what its kernels take without anybody who launches them.

        In emulation the step itself. The step runs three times before it is captured, since what runs for
        the first time may allocate, compile or choose an algorithm.
        """
        if self.emulated:
            return step
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay


def target_of(*, emulated: bool) -> Target:
    """The device of this machine.

    Raises:
        RuntimeError: a device is asked for and there is none.
    """
    if not emulated and not torch.cuda.is_available():
        raise RuntimeError(NO_DEVICE)
    return Target(emulated=emulated)


def steps_of(compiled: nn.Module, inputs: tuple[Any, ...]) -> dict[str, Mapping[str, int]]:
    """Kinds of steps of the programs that a call like the last one runs, and how many of each.

    Raises:
        CallError: the module runs eagerly.
    """
    manifests = manifests_of(compiled, inputs)
    return {name: dict(Counter(step.kind for step in one.steps)) for name, one in manifests.items()}


def traffic_of(compiled: nn.Module, inputs: tuple[Any, ...]) -> dict[str, Mapping[str, int]]:
    """Of the same programs: steps that launch something, distinct bytes that they touch, and bytes moved.

    Raises:
        CallError: the module runs eagerly.
    """
    return {
        name: {
            "launches": sum(step.kind != "check" for step in one.steps),
            "unique_bytes": sum(step.unique_bytes for step in one.steps),
            "total_bytes": sum(step.total_bytes for step in one.steps),
        }
        for name, one in manifests_of(compiled, inputs).items()
    }


def manifests_of(compiled: nn.Module, inputs: tuple[Any, ...]) -> dict[str, Manifest]:
    """What the programs of a call say about themselves: `forward`, and `backward` where there is one.

    Raises:
        CallError: the module runs eagerly.
    """
    assert isinstance(compiled, daceml.DaceModule)
    variant, _ = compiled.session.variant(inputs, {})
    found = {"forward": variant.program.manifest}
    if variant.backward is not None:
        found["backward"] = variant.backward.program.manifest
    return found


def in_precision(spec: ModelSpec, precision: Precision, target: Target, *, seed: int = 0) -> nn.Module:
    """A network in eval mode, its weights rounded to the precision, where it is to run."""
    return target.place(spec.module(seed), precision.dtype)
