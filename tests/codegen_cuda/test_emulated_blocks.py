"""Blocks and layers whose every loop is a kernel of a device, in emulation: as exact as eager PyTorch.

A program is compared with the same module in float64, from the same numbers. Its results and gradients may be
as far from there as a few times what eager PyTorch is in the same element type, or a few units in the last
place of their largest element: it adds up in another order, and rounds to 16 bits where an array is stored,
as eager does, but not between the operations of one kernel.
"""

from __future__ import annotations

import copy
import itertools
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.codegen_cuda.device_objects import cuda_object
from daceml.codegen_cuda.kernel_facts import load_facts
from daceml.codegen_cuda.toolchain import CudaToolchain, find_nvcc
from daceml.runtime.records.kernel_facts import KernelFacts
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import include_folder
from daceml.transformations.standard import device_recipe
from tests.codegen_cuda.networks import BLOCKS, kernel_units
from tests.support.sampling import sampled

OVER_EAGER = 2.0
UNITS = 4.0
STEPS = list(itertools.product(BLOCKS, [torch.float32, torch.float16, torch.bfloat16]))
QUICK = itertools.product(["mish", "layer norm"], [torch.float32, torch.bfloat16])


@pytest.mark.parametrize(("name", "dtype"), sampled(STEPS, ("bert", torch.float32), *QUICK), ids=str)
def test_a_step_is_as_exact_as_eager(name: str, dtype: torch.dtype):
    case = BLOCKS[name]
    torch.manual_seed(0)
    eager = case.build().to(dtype)
    inputs = [torch.randn(shape).to(dtype) for shape in case.shapes]
    cotangent = torch.randn(eager.eval()(*inputs).shape).to(dtype)
    exact, compiled = copy.deepcopy(eager.train()).double(), copy.deepcopy(eager)
    expected = step(exact, [x.double() for x in inputs], cotangent.double())
    theirs = step(eager, inputs, cotangent)
    ours = step(daceml.compile(compiled, recipe=device_recipe()), inputs, cotangent)
    assert ours.keys() == theirs.keys() == expected.keys()
    far = {what: far_off(ours[what], theirs[what], expected[what]) for what in expected}
    assert not {what: why for what, why in far.items() if why is not None}


def step(module: nn.Module, inputs: list[torch.Tensor], cotangent: torch.Tensor) -> dict[str, torch.Tensor]:
    """Result, gradients, and buffers after a step that draws the same numbers in all of them."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(1)
    result = module(*leaves)
    result.backward(cotangent)
    found = {"result": result.detach(), **{f"gradient of input {n}": x.grad for n, x in enumerate(leaves)}}
    found |= {f"gradient of {name}": p.grad for name, p in module.named_parameters()}
    return {**found, **dict(module.named_buffers())}


def far_off(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str | None:
    """How much too far a tensor is from the exact one; None if it is not."""
    assert ours.dtype == eager.dtype and ours.shape == exact.shape
    if not ours.dtype.is_floating_point:
        return None if torch.equal(ours.double(), exact.double()) else "other integers"
    if not torch.equal(ours.isfinite(), exact.isfinite()):
        return "values that are no numbers are in other places"
    ours, eager, exact = (x.nan_to_num() for x in (ours, eager, exact))
    scale = max(float(exact.abs().max()), torch.finfo(eager.dtype).tiny)
    error, allowed = (float((x.double() - exact).abs().max()) / scale for x in (ours, eager))
    limit = max(OVER_EAGER * allowed, UNITS * torch.finfo(eager.dtype).eps)
    return None if error <= limit else f"{error:.1e} from float64, eager {allowed:.1e}"


@pytest.mark.slow
def test_kernels_add_up_without_atomics_and_registers_suffice(tmp_path: Path):
    units: dict[str, str] = {}
    for case in BLOCKS.values():
        units |= {unit.launch: unit.text for unit in kernel_units(case, torch.bfloat16)}
    assert not any("atomic" in text.lower() for text in units.values())
    # means of values are added up in float64, and divided in float32: a division of doubles is a call
    assert not [text for text in units.values() if re.search(r"/ double\(|double\([^()]*\) /", text)]
    nvcc = find_nvcc()
    if nvcc is None:
        return
    tools = CudaToolchain(nvcc=nvcc, release=(13, 0), architecture=90)
    facts = tools.compile("\n".join(units.values()), tmp_path, includes=(include_folder(),))
    assert len(facts) == len(units)
    spilling = [
        unit
        for unit in units
        if any(
            unit.removeprefix("daceml_launch_k_") in name for name, one in facts.items() if one.spill_bytes
        )
    ]
    assert not {unit: one for unit in spilling if (one := in_chosen_shape(units[unit], tmp_path)).spill_bytes}


def in_chosen_shape(text: str, folder: Path) -> KernelFacts:
    """What the assembler says of a kernel, in the blocks that are chosen for it."""
    found = load_facts(cuda_object(text, Cache(folder), 90))
    assert found is not None
    (facts,) = found.kernels.values()
    return facts
