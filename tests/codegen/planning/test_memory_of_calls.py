"""What exists while a program runs: results from when they are written, inputs until their last use."""

from __future__ import annotations

import gc
import os
import resource
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.codegen.planning.memory_usage import Usage
from daceml.codegen.planning.plan import make_plan
from daceml.codegen.planning.step_exchange import exchange_steps
from daceml.codegen.planning.step_memory import live_bytes
from daceml.codegen.planning.steps import Copy, Step
from daceml.onnx_ops.external import external_call
from tests.support.golden import raises
from tests.support.small_networks import build, elementwise

STEPS = ["_out = _a + dace.float32(1)", "_out = _a * dace.float32(3)", "_out = _a - dace.float32(2)"]
ARRAY_BYTES = 64 * 257 * 4


def test_arrays_exist_from_their_first_writer_to_their_last_reader():
    plan = make_plan(elementwise(STEPS, (64, 257)), external_call, given=("x0",))
    # x0 and x1; x1 and x2; x2 and the output
    assert live_bytes(plan, ("x0",)) == [2 * ARRAY_BYTES] * 3
    assert live_bytes(plan) == [ARRAY_BYTES, 2 * ARRAY_BYTES, 2 * ARRAY_BYTES]
    kept = make_plan(elementwise(STEPS, (64, 257)), external_call)
    assert kept.layout.size_bytes >= 2 * ARRAY_BYTES


def test_an_input_of_the_last_use_is_released_and_others_stay(tmp_path: Path):
    program = build(elementwise(STEPS, (64, 257)), tmp_path)
    x = torch.randn(64, 257)
    expected = (x + 1) * 3 - 2
    given = [x]
    assert torch.equal(program([], given)[0], expected)
    assert not given
    assert torch.equal((x + 1) * 3 - 2, expected), "somebody else holds it"
    dropped = [torch.randn(64, 257)]
    alive = weakref.ref(dropped[0])
    program([], dropped)
    gc.collect()
    assert alive() is None


def test_tensors_are_held_for_one_call(tmp_path: Path):
    program = build(elementwise(STEPS), tmp_path)
    held = torch.ops.daceml.hold([torch.randn(8, 32)])
    torch.ops.daceml.call_held([], held, program.number)
    with raises(RuntimeError, f"tensors are held under {held}", exact=False):
        torch.ops.daceml.call_held([], held, program.number)


def step(label: str, reads: str = "", writes: str = "") -> Step:
    return Step(
        action=Copy(source="", target=""),
        reads=tuple(reads.split()),
        writes=tuple(writes.split()),
        label=label,
    )


def exchanged(steps: list[Step], sizes: dict[str, int], outputs: str = "", fixed: str = "") -> str:
    usage = Usage(
        steps,
        root=str,
        made_bytes=lambda a: sizes.get(a, 0),
        freed_bytes=lambda a: 0 if a in outputs else sizes.get(a, 0),
        fixed=lambda s: s.label in fixed,
    )
    return "".join(s.label for s in exchange_steps(usage))


def test_a_large_result_is_made_after_what_frees_memory():
    steps = [step("a", "x", "big"), step("b", "y", "small"), step("c", "big small", "end")]
    sizes = {"x": 0, "y": 50, "big": 100, "small": 1, "end": 1}
    assert exchanged(steps, sizes) == "bac"
    assert exchanged(steps, sizes, fixed="ab") == "abc"


def test_steps_that_depend_on_each_other_stay_in_order():
    steps = [step("a", "x", "p"), step("b", "p", "q"), step("c", "q", "r")]
    assert exchanged(steps, {"p": 100, "q": 1, "r": 1}) == "abc"
    overwriting = [step("a", "x", "big"), step("b", "y", "x")]
    assert exchanged(overwriting, {"big": 100, "y": 50}) == "ab"


class Reshaped(nn.Module):
    """The gradient of its input is that of a product in another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, 6)
        return self.first(rows).sum() + self.second(rows).tanh().sum()


def test_a_gradient_in_another_shape():
    module = Reshaped().double()
    compiled = daceml.compile(module)
    x = torch.randn(4, 3, 2, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(module(x), [x, *module.parameters()])
    for found, wanted in zip(
        torch.autograd.grad(compiled(x), [x, *module.parameters()]), expected, strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)


def test_a_graph_that_is_retained_keeps_what_was_saved():
    module = nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 40), nn.Sigmoid()).double()
    compiled = daceml.compile(module)
    x = torch.randn(30, 40, dtype=torch.float64)
    y = compiled(x)
    first = torch.autograd.grad(y.sum(), list(module.parameters()), retain_graph=True)
    second = torch.autograd.grad(y.sum(), list(module.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y.sum(), list(module.parameters()))


LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif("MALLOC_PERTURB_" in os.environ, reason="malloc touches every page of what it hands out")
@pytest.mark.skipif(
    not LARGE_PAGES.exists() or "[never]" in LARGE_PAGES.read_text(), reason="this system has no large pages"
)
def test_a_large_result_is_made_of_large_pages():
    module = daceml.compile(nn.ReLU())
    x = torch.randn(2**24)
    with torch.no_grad():
        module(x)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        y = module(x)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert torch.equal(y, x.relu())
    assert faults < y.nbytes // 4096 // 2
