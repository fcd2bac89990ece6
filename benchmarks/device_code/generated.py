"""Device code of a network's programs, and what each of their passes launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.models.spec import ModelSpec
from daceml.sdfg.sizes import Size

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.codegen_cuda.kernel_unit import KernelUnit


@dataclass(frozen=True, kw_only=True)
class GeneratedKernel:
    """A kernel, and in which pass it was seen first.

    Attributes:
        bytes_moved: that one launch reads and writes, each byte once; over the kernel's symbols where its
            sizes are not known.
    """

    part: str
    unit: KernelUnit
    bytes_moved: Size


@dataclass(frozen=True, kw_only=True)
class Launches:
    """What one pass launches on a device.

    Attributes:
        kernels: generated ones, each as often as it is called.
        contractions: calls of products, convolutions and attention.
        others: further calls, and copies.
    """

    kernels: int
    contractions: int
    others: int


def generated(
    spec: ModelSpec, *, architecture: int, train_mode: bool = False
) -> tuple[list[GeneratedKernel], dict[str, Launches]]:
    """Generate a training step and inference: each distinct kernel once, and what each pass launches.

    Args:
        train_mode: of inference.
    """
    from benchmarks.programs import optimised
    from daceml.codegen.planning.plan import make_plan
    from daceml.codegen_cuda.kernel_unit import kernel_unit
    from daceml.onnx_ops.external import external_call
    from daceml.sdfg.costs import kernel_cost

    found: dict[str, GeneratedKernel] = {}
    launches: dict[str, Launches] = {}
    parts = optimised(spec, "training", device="cuda", architecture=architecture)
    parts |= optimised(spec, "inference", train_mode=train_mode, device="cuda", architecture=architecture)
    for part, made in parts.items():
        plan = make_plan(made.network, external_call, given=())
        launches[part] = launches_of(plan)
        for kernel in plan.kernels:
            if kernel.name not in found:
                found[kernel.name] = GeneratedKernel(
                    part=part, unit=kernel_unit(kernel), bytes_moved=kernel_cost(kernel.sdfg).unique_bytes
                )
    return list(found.values()), launches


def launches_of(plan: Plan) -> Launches:
    """What a program launches."""
    from daceml.sdfg.external import AtenCall
    from daceml.sdfg.outline import KernelCall

    actions = [step.action for step in plan.steps]
    kernels = sum(isinstance(action, KernelCall) for action in actions)
    contractions = sum(isinstance(action, AtenCall) and action.flops != 0 for action in actions)
    return Launches(kernels=kernels, contractions=contractions, others=len(actions) - kernels - contractions)
