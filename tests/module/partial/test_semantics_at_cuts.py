"""What Python and autograd see at cuts: identities, aliases, modes, effects and numbers are eager's."""

from __future__ import annotations

import copy
import cProfile
import inspect
import linecache
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import daceml
from daceml.errors import ExportError, SharedMemoryError
from daceml.module.module import DaceModule
from tests.support.eager_twin import Function
from tests.support.sampling import sampled

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

LOG: list[int] = []
COUNT = 0


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part, self.other = Part(), Part()

    @staticmethod
    def branch(x: torch.Tensor) -> torch.Tensor:
        """What no program can repeat."""
        return x + 1 if x.sum() > 1e9 else x


class KeyedByModule(Base):
    def __init__(self) -> None:
        super().__init__()
        self.scales = {self.part: 2.0}

    def forward(self, x):
        assert type(self.part) is Part
        return self.part(self.branch(x)) * self.scales[self.part]


class KnowsItsParent(Base):
    def __init__(self) -> None:
        super().__init__()
        self.count, self.tick = 0, self._tick

    def _tick(self) -> None:
        self.count += 1

    def forward(self, x):
        self.tick()
        return self.part(self.branch(x)) * self.count


class Swaps(Base):
    def forward(self, x):
        self.active = self.part
        return self.active(self.branch(x))


class ViewFirst(Base):
    """A view, then what it is a view of, cross a cut, and an in-place operator follows."""

    def forward(self, x):
        h = self.part(x).sin()
        v = h[:, 0]
        z = torch.linalg.inv(torch.eye(8) * 2)
        v = v.add_(z[0, 0] * 5)
        return (h * 3).cos() + h


class SharesWithAPart(Base):
    class Gives(nn.Module):
        def forward(self, x):
            h = x * 2
            return h, h[:, 0]

    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, h, v):
            v.add_(5)
            return self.linear(h)

    def __init__(self) -> None:
        super().__init__()
        self.gives, self.uses = self.Gives(), self.Uses()

    def forward(self, x):
        return self.uses(*self.gives(self.branch(x)))


class GlobalList(Base):
    def forward(self, x):
        LOG.append(1)
        return self.part(self.branch(x)) * len(LOG)


class ClassAttribute(Base):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return self.part(self.branch(x)) * self.calls


class DrawsThenBranches(Base):
    def forward(self, x):
        return self.part(self.branch(x)) * random.random() * float(np.random.rand())  # noqa: NPY002


class OwnGeneratorThenBranches(Base):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.numpy = random.Random(3), np.random.default_rng(4)

    def forward(self, x):
        return self.part(x * self.generator.random() + self.numpy.random()) + self.branch(x)


class RefusedInVmap(Base):
    def forward(self, x):
        def one(row: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(row[:4].outer(row[:4]) + 9 * torch.eye(4)).sum()

        return torch.vmap(one)(self.part(x)), self.other(x)


class DerivativesPerSample(Base):
    """Each begins with calls of the graph that change how autograd keeps tensors, and ends with others."""

    def forward(self, x):
        weights = dict(self.part.named_parameters())

        def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(self.part, weights, (row,)).square().sum()

        each = torch.func.vmap(torch.func.grad(loss, argnums=1), in_dims=(None, 0))(weights, self.other(x))
        return each, torch.func.vmap(torch.func.jacrev(self.part))(x)


class InnerStep(Base):
    def forward(self, x):
        weights = dict(self.part.named_parameters())
        steps = torch.func.grad(lambda w: torch.func.functional_call(self.part, w, (x,)).square().sum())(
            weights
        )
        return self.other(
            torch.func.functional_call(self.part, {k: weights[k] - 0.1 * steps[k] for k in steps}, (x,))
        )


class NewNumbers(Base):
    def forward(self, x):
        return self.part(x) * x.sum().item()


class Modes(Base):
    def forward(self, x):
        y = self.part(x)
        with torch.no_grad():
            a = (y * 2).sin().cos()
            b = torch.fft.fft(a).real
            c = (b.sin() + y * 3).cos() * y
        with torch.autocast("cpu", dtype=torch.bfloat16):
            d = self.other(torch.fft.fft(y.float()).real)
        return y * c, d


MODELS = [
    KeyedByModule,
    KnowsItsParent,
    Swaps,
    ViewFirst,
    SharesWithAPart,
    GlobalList,
    ClassAttribute,
    DrawsThenBranches,
    OwnGeneratorThenBranches,
    RefusedInVmap,
    DerivativesPerSample,
    InnerStep,
    NewNumbers,
    Modes,
]


def cut(module: nn.Module, **options: Any) -> DaceModule:
    compiled = daceml.compile(module, fullgraph=False, **options)
    assert isinstance(compiled, DaceModule)
    return compiled


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002


def calls(module: nn.Module, count: int = 5) -> list[Any]:
    LOG.clear()
    ClassAttribute.calls = 0
    seen: list[Any] = []
    for number in range(count):
        seed(number)
        seen.append((module(torch.randn(4, 8)), random.random(), torch.rand(1)))
    return seen


# without gradients: those that share memory, change modes, draw numbers or differentiate
@pytest.mark.parametrize(
    ("make", "gradient"),
    sampled(
        [(make, gradient) for make in MODELS for gradient in (False, True)],
        *((make, True) for make in MODELS),
        *((make, False) for make in (ViewFirst, SharesWithAPart, DrawsThenBranches, InnerStep, Modes)),
    ),
)
def test_calls_are_those_of_eager(make: Callable[[], nn.Module], gradient: bool):
    seed(0)
    eager = make()
    module = make()
    module.load_state_dict(eager.state_dict())
    compiled = cut(module)
    with torch.set_grad_enabled(gradient):
        torch.testing.assert_close(
            calls(compiled), calls(eager), rtol=1e-2 if make is Modes else 1e-4, atol=1e-5
        )
    assert getattr(module, "count", 0) == getattr(eager, "count", 0)
    if isinstance(module, Swaps):
        assert module.active is module.part and type(module.active) is Part


class ChangesWhatAProgramGave(Base):
    def forward(self, x):
        y = self.part.linear(x)
        if y.abs().sum().item() > 0:
            y[:, 0] = 1.0
        y.mul_(2)
        return self.other(y)


def test_eager_code_changes_a_result_that_another_result_needs_for_its_gradient():
    eager = ChangesWhatAProgramGave()
    compiled = cut(copy.deepcopy(eager))
    found = []
    for module in (compiled, eager):
        x = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
        module(x).sin().sum().backward()
        found.append([x.grad, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("make", [DerivativesPerSample, InnerStep])
def test_a_failed_trace_ends_the_transforms_that_it_began(make: Callable[[], nn.Module]):
    x = torch.randn(4, 8)
    with torch.no_grad():
        with pytest.raises(ExportError):
            daceml.compile(make(), backward=False, fullgraph=True)(x)
        cut(make(), backward=False)(x)
        doubled = Function(lambda y: torch.vmap(lambda row: row * 2)(y))
        torch.testing.assert_close(daceml.compile(doubled, fullgraph=True)(x), x * 2)
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    with torch.autograd.graph.save_on_cpu():  # hooks are allowed
        pass


def test_a_checkpoint_runs_forward_twice_in_the_same_way():
    class Checkpointed(Base):
        def forward(self, x):
            y = self.part(x)
            for _ in range(3):
                y = (y @ self.other.linear.weight).tanh()
            return self.branch(self.other(y))

    eager = Checkpointed()
    module = copy.deepcopy(eager)
    compiled = cut(module)
    for number in range(3):
        results = []
        for called, owner in ((compiled, module), (eager, eager)):
            seed(number)
            x = torch.randn(4, 8, requires_grad=True)
            owner.zero_grad()
            checkpoint(called, x, use_reentrant=False).sum().backward()
            results.append((x.grad, [p.grad.clone() for p in owner.parameters() if p.grad is not None]))
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_inference_mode_between_programs():
    class Caches(Base):
        def __init__(self) -> None:
            super().__init__()
            self.cache: torch.Tensor | None = None

        def forward(self, x):
            y = self.part(self.branch(x))
            if self.cache is None:
                self.cache = torch.empty_like(y)
            self.cache.copy_(y)
            x.mul_(2)
            self.last = y
            return y, y, x

    eager = Caches()
    module = copy.deepcopy(eager)
    compiled = cut(module)
    with torch.inference_mode():
        for _ in range(3):
            x, z = torch.ones(4, 8), torch.ones(4, 8)
            ours, theirs = compiled(x), eager(z)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
            assert ours[0] is ours[1] and ours[2] is x and module.last is ours[0]
            assert all(t.is_inference() for t in (*ours, module.cache))


def test_an_inference_tensor_that_a_program_changes():
    class Doubles(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x + 1

    compiled = daceml.compile(Doubles())
    with torch.inference_mode():
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x), torch.full((3,), 3.0))
        torch.testing.assert_close(x, torch.full((3,), 2.0))
    with pytest.raises(daceml.errors.InferenceTensorError, match="made in inference mode"):
        compiled(x)
    torch.testing.assert_close(x, torch.full((3,), 2.0))
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_statistics_of_inference_mode_cannot_be_changed_outside(mode):
    with torch.inference_mode():
        eager = nn.BatchNorm1d(3)
    compiled = daceml.compile(eager)
    with mode(), pytest.raises(RuntimeError, match="inference"):
        eager(torch.randn(4, 3))
    with mode(), pytest.raises(RuntimeError, match="inference"):
        compiled(torch.randn(4, 3))
    assert eager.running_mean is not None and not eager.running_mean.any()


@pytest.mark.parametrize("same_first", [True, False])
def test_arguments_that_are_one_tensor_in_one_call_only(same_first: bool):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, a, b):
            return self.linear(a) + 2 * b + self.linear.weight.sum()

    module = Two()
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    pairs = [(a, a), (a, b), (b, b[:]), (module.linear.weight, a), (a, module.linear.weight), (b, a)]
    for options in ({}, {"backward": False}, {"dynamic": True}):
        compiled = daceml.compile(module, **options)
        for pair in pairs if same_first else pairs[::-1]:
            torch.testing.assert_close(compiled(*pair), module(*pair))


def test_memory_that_arguments_share_and_forward_changes():
    class Writes(nn.Module):
        def forward(self, a, b):
            a.add_(1)
            return b * 2

    whole = daceml.compile(Writes(), fullgraph=True)
    x = torch.zeros(3)
    with pytest.raises(SharedMemoryError):
        whole(x, x)
    compiled = cut(Writes())
    torch.testing.assert_close(compiled(x, x), torch.full((3,), 2.0))
    torch.testing.assert_close(compiled(torch.zeros(3), x), torch.full((3,), 2.0))
    assert len(compiled.session.variants) == 1


def test_results_that_share_memory():
    def overlapping(x):
        y = x.sin()
        return y[:3], y[2:]

    def apart(x):
        return x.sin().chunk(2)

    def view_first(x):
        y = x.sin()
        return y[:, 0], y, y.view(-1)

    class Returns(nn.Module):
        def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    for function in (overlapping, apart, view_first):
        module = Returns(function)
        compiled = cut(module)
        x = torch.randn(4, 4)
        ours, theirs = compiled(x), module(x)
        torch.testing.assert_close(ours, theirs)
        for results in (ours, theirs):
            results[0].zero_()
        torch.testing.assert_close(ours, theirs)
        assert compiled.session.variants, "it is one program"


def test_a_profiler_does_not_hide_a_clock():
    class Clock(Base):
        def forward(self, x):
            return self.part(x) * 0 + time.perf_counter()

    compiled = cut(Clock())
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        first = compiled(torch.zeros(2, 8))[0, 0].item()
    finally:
        profiler.disable()
    assert sys.getprofile() is None
    time.sleep(0.02)
    assert compiled(torch.zeros(2, 8))[0, 0].item() > first


def test_files_that_the_standard_library_opens(tmp_path: Path):
    """For forward they are an effect; torch reads source files while it traces."""
    file = tmp_path / "scale.txt"

    class Reads(nn.Module):
        def forward(self, x):
            if x.dim() > 1:
                inspect.getsource(type(self))
                return x * float(file.read_text())
            return x.relu() + 1

    compiled = daceml.compile(Reads())
    linecache.clearcache()
    compiled(torch.randn(3))
    assert len(compiled.session.variants) == 1
    for scale in (2.0, 3.0):
        file.write_text(str(scale))
        torch.testing.assert_close(compiled(torch.ones(2, 2)), torch.full((2, 2), scale))
    assert len(compiled.session.variants) == 1


def test_a_full_disk_is_no_reason_to_give_up_the_module(monkeypatch: pytest.MonkeyPatch):
    from daceml.module import compile as compiling

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    module = Part()
    compiled = cut(module)
    x = torch.randn(2, 8)
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "compile_variant", full)
        with pytest.raises(OSError, match="No space left"):
            compiled(x)
    torch.testing.assert_close(compiled(x), module(x))
    assert compiled.session.variants


def _gelu_of_transposed(x):
    y = torch.nn.functional.gelu(x.transpose(1, 2))
    print(end="")  # noqa: T201  (a cut)
    return y


ORDERS = {
    "as_strided": lambda y: y.as_strided((y.numel(),), (1,)),
    "is_contiguous": lambda y: y * 2 if y.is_contiguous() else y * 3,
}


@pytest.mark.parametrize("use", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_eager_code_finds_the_strides_of_eager(use, dynamic):
    x = torch.randn(2, 3, 4)
    compiled = daceml.compile(
        Function(lambda x: use(_gelu_of_transposed(x))), fullgraph=False, dynamic=dynamic, backward=False
    )
    for _ in range(2):
        torch.testing.assert_close(compiled(x), use(_gelu_of_transposed(x)))


def test_eager_code_draws_in_the_order_of_memory():
    def function(x):
        y = _gelu_of_transposed(x)
        return y * torch.rand_like(y)

    results = []
    for call in (function, *[daceml.compile(Function(function), fullgraph=False)] * 2):
        x = torch.linspace(-1, 1, 24).reshape(2, 3, 4).requires_grad_()
        torch.manual_seed(1)
        y = call(x)
        results.append((y, *torch.autograd.grad((y * torch.arange(3)).sum(), x)))
    for ours in results[1:]:
        torch.testing.assert_close(ours, results[0])
        assert ours[0].stride() == results[0][0].stride()
