"""Whether everything that the other shards rely on is there and right: sentences of what is not."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.gpu import environment
from benchmarks.gpu.case import Case
from benchmarks.gpu.networks import copying
from benchmarks.gpu.precisions import PRECISIONS, Precision, computing_in
from benchmarks.gpu.subject import BLOCK_BYTES
from benchmarks.gpu.target import Target, steps_of, target_of
from benchmarks.models.mish import Mish
from daceml.cli.checks import CHECKS as FINDINGS
from daceml.cli.checks import examine

_MATRIX = 8192
_SMALL_MATRIX = 128
_DROPPED, _ELEMENTS = 0.25, 2**16
_TOLERANCE = 1e-5  # of one operator in float32, relative to the norm: some eps

Found = dict[str, Any]


def check(case: Case) -> Found:
    """Run a check of `cases.CHECKS`; `outside` has a sentence for each fault."""
    return _CHECKS[case.name](target_of(emulated=case.emulated))


def _environment(target: Target) -> Found:
    seen = environment.description()
    outside = [] if target.emulated or seen["gpu"] else ["torch sees no CUDA device"]
    return {"seen": seen, "outside": outside}


def _doctor(target: Target) -> Found:
    """What `daceml doctor` says."""
    findings = [examine(title, one) for title, one in FINDINGS]
    return {
        "findings": {one.title: f"{one.status}: {one.found}" for one in findings},
        "outside": [f"{one.title}: {one.found}; {one.fix}" for one in findings if one.status == "fail"],
    }


def _ceilings(target: Target) -> Found:
    """Bytes that a copy moves in a second, and what products of matrices reach in each precision."""
    bytes_moved = BLOCK_BYTES if not target.emulated else 2**20
    copy_us = _median_us(target, copying(target, bytes_moved // 4))
    names = ("fp32", "tf32", "bf16", "fp16")
    return {
        "copy_bytes_per_s": 2 * bytes_moved / copy_us * 1e6,
        "product_flops_per_s": {name: _product_rate(target, PRECISIONS[name]) for name in names},
        "outside": [],
    }


def _product_rate(target: Target, precision: Precision) -> float:
    size = _SMALL_MATRIX if target.emulated else _MATRIX
    # random numbers: on zeros a device draws less power, and may run faster
    a, b = (torch.randn(size, size, device=target.device).to(precision.dtype) for _ in range(2))
    with computing_in(precision):
        return 2 * size**3 / _median_us(target, partial(torch.mm, a, b)) * 1e6


def _median_us(target: Target, step: Callable[[], object]) -> float:
    for _ in range(3):
        step()
    return median(target.batch_us(step, 5) for _ in range(7))


def _training(target: Target) -> Found:
    """An activation that is spelled out, compiled for the device: one kernel forward, one backward."""
    x = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0)).to(target.device)
    compiled = target.compile(Mish(), training=True)
    ours, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    results, expected = compiled(ours), Mish()(exact)
    results.sum().backward()
    expected.sum().backward()
    assert ours.grad is not None
    assert exact.grad is not None
    outside = [
        *_differing("result", results, expected),
        *_differing("gradient", ours.grad, exact.grad),
    ]
    steps = steps_of(compiled, (ours,))
    if [kinds.get("kernel") for kinds in steps.values()] != [1, 1]:
        outside.append(f"not one kernel forward and one backward: {steps}")
    return {"steps": steps, "outside": outside}


def _draws(target: Target) -> Found:
    """Dropout: how many are dropped, what the rest becomes, the backward pass's mask, and seeds."""
    compiled = target.compile(nn.Dropout(_DROPPED).train(), training=True)
    ones = torch.ones(_ELEMENTS, device=target.device)

    def drawn(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(seed)
        x = ones.clone().requires_grad_()
        result = compiled(x)
        result.backward(ones)
        assert x.grad is not None
        return result.detach(), x.grad

    (first, gradient), (again, _), (other, _) = drawn(1), drawn(1), drawn(2)
    dropped = float((first == 0).float().mean())
    spread = 5 * math.sqrt(_DROPPED * (1 - _DROPPED) / _ELEMENTS)
    kept = first[first != 0]
    faults = {
        f"{dropped:.4f} of the elements are dropped, not {_DROPPED}": abs(dropped - _DROPPED) > spread,
        "elements that are kept are not scaled by 1 / (1 - p)": bool(
            ((kept - 1 / (1 - _DROPPED)).abs() > 1e-6).any()
        ),
        "the backward pass has another mask than the forward pass": not torch.equal(first, gradient),
        "one seed drops different elements in two calls": not torch.equal(first, again),
        "two seeds drop the same elements": torch.equal(first, other),
    }
    return {"dropped": dropped, "outside": [fault for fault, there in faults.items() if there]}


def _graphs(target: Target) -> Found:
    """A call that replays a graph computes with the inputs and the weights of that very call."""
    module = target.place(nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 8)).eval())
    compiled = target.compile(module, training=False, cuda_graphs=not target.emulated)
    exact = copy.deepcopy(module).double()
    outside: list[str] = []
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    inputs = torch.randn(4, 16, 32, device=target.device)
    with torch.no_grad(), computing_in(PRECISIONS["fp32"]):
        for number, x in enumerate(inputs):
            kept.append((compiled(x), exact(x.double())))
            outside += _differing(f"call {number}", *kept[-1])
        # by what a graph writes next, results of calls before must not change
        outside += [fault for result, expected in kept for fault in _differing("earlier", result, expected)]
        for ours, theirs in zip(module.parameters(), exact.parameters(), strict=True):
            ours.mul_(0.5)
            theirs.mul_(0.5)
        outside += _differing("changed weights", compiled(inputs[0]), exact(inputs[0].double()))
    return {"outside": outside}


def _differing(what: str, result: torch.Tensor, expected: torch.Tensor) -> list[str]:
    result, expected = result.detach(), expected.detach()
    error = float((result.double() - expected).norm() / expected.norm())
    return [] if error <= _TOLERANCE else [f"{what}: error {error:.1e}, at most {_TOLERANCE:.0e}"]


_CHECKS: dict[str, Callable[[Target], Found]] = {
    "environment": _environment,
    "doctor": _doctor,
    "ceilings": _ceilings,
    "training": _training,
    "draws": _draws,
    "graphs": _graphs,
}
