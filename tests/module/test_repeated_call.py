"""Calls like the one before take a short way; whatever is another call does not, and gives eager's result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import daceml
from daceml.errors import CallError, SharedMemoryError
from daceml.module.module import DaceModule
from tests.support.golden import raises


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * torch.relu(self.linear(x)) + x.sum()


def called(module: nn.Module | None = None, *, gradients: bool) -> DaceModule:
    """A compiled module after two calls of 4x6, of which the second took the short way."""
    compiled: Any = daceml.compile(Layer() if module is None else module)
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            compiled(torch.randn(4, 6))
    return compiled


def stop(*_: Any) -> Any:
    raise AssertionError("the session was asked for a program")


@pytest.mark.parametrize("gradients", [False, True])
def test_a_call_like_the_one_before_asks_for_no_program(gradients: bool, monkeypatch: pytest.MonkeyPatch):
    compiled, x = called(gradients=gradients), torch.randn(4, 6)
    monkeypatch.setattr(compiled.session, "_prepare", stop)
    with torch.set_grad_enabled(gradients):
        found, expected = compiled(x), compiled.session.eager(x)
        assert torch.equal(found, expected) or torch.allclose(found, expected, atol=1e-6)
        assert found.requires_grad is expected.requires_grad is gradients


def same(x: torch.Tensor) -> torch.Tensor:
    return x


@contextmanager
def hook_of_all_modules() -> Generator[None]:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def float64_by_default() -> Generator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def dual(x: torch.Tensor) -> torch.Tensor:
    return forward_ad.make_dual(x, torch.ones_like(x))


# name -> what the argument is, and around the call
Around = Callable[[], Any]
OTHERS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Around]] = {
    "other sizes": (lambda x: x[:3], nullcontext),
    "another order of memory": (lambda x: x.t().contiguous().t(), nullcontext),
    "a step": (lambda x: torch.cat([x, x])[::2], nullcontext),
    "a parameter": (lambda x: nn.Parameter(x), nullcontext),
    "it requires a gradient": (lambda x: x.clone().requires_grad_(), nullcontext),
    "without gradients": (same, torch.no_grad),
    "inference mode": (same, torch.inference_mode),
    "autocast": (same, lambda: torch.autocast("cpu", torch.bfloat16)),
    "another default type": (same, float64_by_default),
    "hooks of all modules": (same, hook_of_all_modules),
    "a stance": (same, lambda: daceml.stance("force_eager")),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_another_call_gives_what_eager_gives(name: str, gradients: bool):
    given, around = OTHERS[name]
    compiled, x = called(gradients=gradients), torch.randn(4, 6)
    with torch.set_grad_enabled(gradients), around():
        found, expected = compiled(given(x)), compiled.session.eager(given(x))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert found.requires_grad is expected.requires_grad
    assert found.is_inference() is expected.is_inference()
    if expected.requires_grad:
        assert found.grad_fn is not None


def test_another_element_type_is_refused_as_in_eager():
    compiled = called(gradients=False)
    with torch.no_grad(), pytest.raises(RuntimeError):
        compiled(torch.randn(4, 6, dtype=torch.float64))


def test_a_tensor_that_is_more_than_its_memory_is_refused():
    compiled, x = called(gradients=False), torch.randn(4, 6)
    with torch.no_grad(), raises(CallError, "negated"):
        compiled(torch.complex(x, x).conj().imag)


def test_transformed_calls_are_eagers():
    compiled, x = called(gradients=False), torch.randn(4, 6)
    with torch.no_grad(), forward_ad.dual_level():
        found, expected = (forward_ad.unpack_dual(m(dual(x))) for m in (compiled, compiled.session.eager))
        torch.testing.assert_close(found.tangent, expected.tangent)
    batch = torch.randn(3, 4, 6)
    with torch.no_grad():
        assert torch.allclose(torch.vmap(compiled)(batch), torch.vmap(compiled.session.eager)(batch))
        # a tensor of the outside within a transformed call
        outside = torch.vmap(lambda b: compiled(x) + b.sum())(batch)
        assert torch.allclose(outside, torch.vmap(lambda b: compiled.session.eager(x) + b.sum())(batch))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda m: setattr(m, "scale", 3.0),
    "a weight in place": lambda m: m.linear.weight.data.mul_(2.0),
    "a weight replaced": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.ones(6, 6))),
    "memory of a weight": lambda m: setattr(m.linear.weight, "data", torch.ones(6, 6)),
    "the order of a weight": lambda m: setattr(m.linear.weight, "data", torch.randn(6, 6).t()),
    "a submodule": lambda m: setattr(m, "linear", nn.Linear(6, 6)),
    "a hook": lambda m: m.register_forward_hook(lambda *a: a[-1] + 1.0),
    "a frozen weight": lambda m: m.linear.requires_grad_(False),
    "evaluation": lambda m: m.eval(),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_module_that_has_changed_gives_what_eager_gives(name: str, gradients: bool):
    compiled, x = called(gradients=gradients), torch.randn(4, 6)
    CHANGES[name](compiled)
    with torch.set_grad_enabled(gradients):
        found = compiled(x)
        expected = compiled.session.eager(x)
    assert torch.allclose(found, expected, atol=1e-5)
    assert found.requires_grad is expected.requires_grad


class Counting(nn.Module):
    """Writes to a buffer in every call."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * self.count


def test_effects_happen_in_every_call():
    compiled = called(Counting(), gradients=False)
    with torch.no_grad():
        assert torch.equal(compiled(torch.ones(4, 6)), torch.full((4, 6), 3.0))
    assert compiled.get_buffer("count") == 3


@pytest.mark.parametrize("gradients", [False, True])
def test_memory_that_an_input_shares_with_what_forward_changes_is_seen(gradients: bool):
    compiled = called(Counting(), gradients=gradients)
    compiled.register_buffer("count", torch.zeros(4, 6))
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            compiled(torch.ones(4, 6))
        with raises(SharedMemoryError, "count"):
            compiled(compiled.get_buffer("count"))
        compiled(torch.ones(4, 6))
    assert torch.equal(compiled.get_buffer("count"), torch.full((4, 6), 3.0))


def test_after_a_weight_of_another_type_the_module_is_compiled_anew():
    compiled = called(gradients=False)
    compiled.half()
    x = torch.randn(4, 6).half()
    with torch.no_grad():
        assert torch.allclose(compiled(x).float(), compiled.session.eager(x).float(), atol=2e-2)


class Positions(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[index]


def test_an_index_outside_is_refused_in_the_same_words():
    compiled: Any = daceml.compile(Positions())
    x, index = torch.randn(4, 6), torch.tensor([0, 3])
    with torch.no_grad():
        messages: list[str] = []
        for good_calls in (0, 2):
            for _ in range(good_calls):
                compiled(x, index)
            with pytest.raises(IndexError) as caught:
                compiled(x, torch.tensor([0, 4]))
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert torch.equal(compiled(x, index), x[index])


_AT_EXIT = """
import atexit
held = {}
def last():
    import torch
    with torch.no_grad():
        print(held["model"](held["x"]).shape)
atexit.register(last)  # what was registered first runs last
import torch
import daceml
held |= {"model": daceml.compile(torch.nn.Linear(4, 3)), "x": torch.ones(2, 4)}
with torch.no_grad():
    for _ in range(3):
        held["model"](held["x"])
"""


def test_what_runs_at_the_end_of_a_process_may_call():
    done = subprocess.run([sys.executable, "-c", _AT_EXIT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "torch.Size([2, 3])\n"), done.stderr
