"""EfficientNet's first block, guided: its depthwise convolution a loop that is fused, beside cuDNN's.

The step is that of `examples.guided_efficientnet`, behind the standard recipe for devices.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.case import Case
from benchmarks.gpu.precisions import PRECISIONS, computing_in
from benchmarks.gpu.subject import sized
from benchmarks.gpu.target import Target, in_precision, steps_of, target_of
from benchmarks.gpu.timing import Step, measure, rounds_of, row_of
from benchmarks.gpu.ways import step_of
from benchmarks.models.mbconv import MBConv1, StaticSamePadConv2d, Swish
from benchmarks.models.shapes import MBCONV, normal
from benchmarks.models.spec import ModelSpec
from daceml.transformations.recipe import Recipe
from daceml.transformations.recipe import Step as Pass
from daceml.transformations.standard import device_recipe
from examples.guided_efficientnet import depthwise_as_loops

BATCH = 64
TOLERANCE = 1e-5  # beside eager in float32, relative to the norm; sums have nine products


class FusedPart(nn.Module):
    """What one kernel does in a guided MBConv: depthwise convolution, batch norm and swish of its block."""

    def __init__(self, channels: int = MBCONV[1]) -> None:
        super().__init__()
        self.depthwise = StaticSamePadConv2d(channels, channels, 3, groups=channels)
        self.norm = nn.BatchNorm2d(channels, momentum=0.01, eps=1e-3)
        self.swish = Swish()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.swish(self.norm(self.depthwise(x)))


FUSED_PART = ModelSpec(
    name="mbconv_fused_part", build=FusedPart, inputs=normal(*MBCONV), depth=5, source=MBConv1.__module__
)


def guided_recipe() -> Recipe:
    """The standard passes for devices, and depthwise convolutions as loops."""
    return device_recipe() + Recipe(Pass(depthwise_as_loops, at="operators"))


def guided(case: Case) -> dict[str, Any]:
    """The fused part beside cuDNN's convolution, alone (`cudnn`) and with what is fused into ours.

    `automatic` is daceml without the guiding: cuDNN's convolution, and the rest as one loop.
    """
    target, precision = target_of(emulated=case.emulated), PRECISIONS[case.precision]
    spec = FUSED_PART
    module = in_precision(spec, precision, target)
    inputs = target.example(sized(spec, 1 if case.emulated else BATCH), precision)
    compiled = compiled_guided(module, target)

    def replay(run: Any) -> Step:
        return target.replay(step_of(run, module, inputs, False))

    with computing_in(precision):
        ways = {
            "daceml": partial(replay, compiled),
            "automatic": lambda: replay(target.compile(module, training=False)),
            "eager": partial(replay, module),
            "cudnn": partial(replay, module.get_submodule("depthwise")),
        }
        seen = measure(ways, target.batch_us, rounds=rounds_of(case))
    with torch.no_grad():
        error = relative_error(compiled(*inputs), module(*inputs))
        steps = steps_of(compiled, inputs)
    outside = [] if error <= TOLERANCE else [f"error {error:.1e}, at most {TOLERANCE:.0e}"]
    return {"replays": row_of(seen), "steps": steps, "error": error, "outside": outside}


def compiled_guided(module: nn.Module, target: Target) -> nn.Module:
    """The module with the guided recipe, for inference."""
    return target.compile(module, training=False, recipe=guided_recipe())


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """||result - expected|| / ||expected||."""
    return float((result - expected).double().norm() / expected.double().norm())
