"""What forward does with gradients: cut them, keep them, define them; and what results they reach."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.support.computations import Apart
from tests.support.golden import golden
from tests.support.trained_twins import WithState, compiled_backward, double, same, step, trains_like, twins


def cuts(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Every way to say that a value is a constant, and a straight-through estimator."""
    with torch.no_grad():
        a = m.layer(x)
        b = torch.sin(x)
    with torch.set_grad_enabled(False):
        c = x * m.weight
    through = x + (x.round() - x).detach()
    return a * x + b * m.weight + c * x + through * m.layer(x).data + m.weight.data * x


def inside_autocast(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        y = m.layer(x).detach() * x
        with torch.no_grad():
            z = x.exp()
        return y * z + m.weight


def averages(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m.kept.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return (x - m.kept) * m.weight


def averages_of_constants(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.kept.lerp_(x.detach().mean(0), 0.1)
    return x * m.kept.sin()


def filled_in_place(m: Any, x: torch.Tensor) -> torch.Tensor:
    z = torch.zeros(2, *x.shape, dtype=x.dtype)
    z[0] = x * m.weight
    z[1].copy_(m.layer(x))
    return z.relu_().exp()


def tied(m: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(functional.linear(x, m.layer.weight), m.layer.weight.t())


def recomputed(m: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(m.layer, x, use_reentrant=False).sin()


def flat(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Derivatives that are zero, which is not the same as none."""
    return (x * m.weight).round() + m.layer(x).sign()


def masked(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Rows of three, each with other elements cut off."""
    return m.layer(x.sin() * 9 - 4).relu().exp()


def scalars(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return functional.mse_loss(m.layer(x), x), m.weight.sum() * x.mean()


def kinds(m: Any, x: torch.Tensor, index: torch.Tensor) -> dict[str, Any]:
    """Results that are inputs, views, parameters, detached, integers, sizes, or depend on nothing."""
    y = m.layer(x)[index]
    return {
        "result": (y, [y * 2, y.argmax(-1)]),
        "input": x,
        "views": (x[0], x.t(), y.view(-1)),
        "parameter": m.weight,
        "detached": (y.detach(), x.detach(), x[1:].detach(), m.weight.detach()),
        "constant": (torch.arange(3.0) * 2, index + 1, x.shape[0], None, 0.5),
        "of a parameter": m.weight * 2,
    }


def begins_to_require(m: Any, x: torch.Tensor) -> torch.Tensor:
    """As wav2vec2 does with its input; and what requires a gradient already, or does not any more."""
    h = m.kept[:, None].sin()
    h.requires_grad = True
    m.weight.requires_grad_()
    m.kept.requires_grad_(False)
    return m.layer(x) * h * m.layer(x).requires_grad_()


def detached_in_place(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The value from before, and what was computed of it, keep their gradients."""
    y = m.layer(x)
    first, powers = y[0], y.exp()
    y.detach_()
    z = (x * m.weight).detach_().requires_grad_() * m.weight
    return y, y * m.weight * powers, first * m.weight, z


COMPILED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    f.__name__: (f, (double(2, 3),)) for f in (
        averages, averages_of_constants, filled_in_place, flat, detached_in_place,
    )
} | {"kinds": (kinds, (double(4, 3), torch.tensor([0, 3, 3]))),
       "begins to require": (begins_to_require, (double(3, 3),))}  # fmt: skip


def test_compiled_together():
    torch.manual_seed(0)
    functions = (cuts, inside_autocast, tied, recomputed, masked, scalars)
    compiled, eager = twins(Apart(**{f.__name__: WithState(f) for f in functions}))
    trains_like(compiled, eager, *(double(2, 3) for _ in functions))
    assert compiled_backward(compiled)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str):
    torch.manual_seed(0)
    function, inputs = COMPILED[name]
    compiled, eager = twins(WithState(function))
    trains_like(compiled, eager, *inputs)
    assert compiled_backward(compiled)


def test_results_alias_what_they_alias_in_eager():
    compiled, _ = twins(WithState(kinds))
    x = double(4, 3).requires_grad_()
    got = compiled(x, torch.tensor([0, 1, 2]))
    assert got["input"] is x and got["parameter"] is compiled.weight
    assert got["detached"][1].data_ptr() == x.data_ptr()
    assert got["detached"][0].data_ptr() == got["result"][0].data_ptr()


def test_an_attribute_is_a_result_too():
    def remember(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.last = m.layer(x)
        return m.last.exp()

    def use(module: Any) -> list[torch.Tensor | None]:
        (module(double(2, 3) * 0 + 1).sum() + module.last.pow(2).sum()).backward()
        return [p.grad for p in module.parameters()]

    torch.manual_seed(0)
    compiled, eager = twins(WithState(remember))
    same(use(compiled), use(eager))
    assert compiled_backward(compiled)


def test_tensors_in_plain_attributes_have_gradients():
    module = WithState(lambda m, x: x * m.things[0])
    module.things = [double(3).requires_grad_()]
    module.requires_grad_(False)
    compiled, x = twins(module)[0], double(3)
    compiled(x).sum().backward()
    same(module.things[0].grad, x)
    module.things[0].requires_grad_(False)
    assert not compiled(x).requires_grad
    module.things[0].requires_grad_(True)
    assert compiled(x).requires_grad


# --- what torch keeps ---


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        return gradient * 5


def own_function(m: Any, x: torch.Tensor) -> torch.Tensor:
    return Sign.apply(m.layer(x) - 0.5) * x  # pyright: ignore


def own_hook(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.layer(x)
    if y.requires_grad:
        y.register_hook(lambda g: g * 10)
    return y.sin()


class TwiceTanh:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * 2


class Static(nn.Module):
    forward = staticmethod(torch.sin)


class OfItsClass(nn.Module):
    @classmethod
    def forward(cls, x: torch.Tensor) -> torch.Tensor:
        return x.exp()


class Partial(nn.Module):
    def scaled(self, by: float, x: torch.Tensor) -> torch.Tensor:
        return x * by

    forward = functools.partialmethod(scaled, 3)


class AnyCallable(nn.Module):
    forward = TwiceTanh()


@pytest.mark.parametrize("make", [Static, OfItsClass, Partial, AnyCallable])
def test_forward_is_bound_as_python_binds_it(make: type[nn.Module]):
    trains_like(*twins(nn.Sequential(nn.Linear(3, 3).double(), make())), double(4, 3))
    trains_like(*twins(make()), double(4, 3))


class Loss(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).sin()


@pytest.mark.parametrize("computed", [True, False])
def test_inputs_may_be_results_of_other_modules(computed: bool):
    """A loss, for one, has no parameters, and its inputs have gradients of their own."""
    compiled, eager = twins(Loss())
    found: list[list[torch.Tensor]] = []
    for module in (compiled, eager):
        leaves = [torch.linspace(0, 1, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        inputs = [leaf.exp() for leaf in leaves] if computed else leaves
        found.append(list(torch.autograd.grad(module(*inputs).sum(), leaves)))
    same(*found)
    assert compiled_backward(compiled)


def own_gradient(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return torch.autograd.grad(m.layer(x).pow(3).sum(), x)[0] * m.weight


def detached_input(m: Any, x: torch.Tensor) -> torch.Tensor:
    return x.detach_() * m.weight


def detached_in_place_and_changed(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.layer(x)
    y.detach_().add_(1)
    return y * x


def returns_a_new_leaf(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = m.kept.sin().requires_grad_()
    return h, h * m.layer(x)


def moves_with_a_new_leaf_alone(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return m.kept.sin().requires_grad_().exp(), m.layer(x)


def requires_of_a_buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.layer(x) * m.kept.requires_grad_()


def detached_and_changed(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.layer(x)
    y.detach().add_(1)
    return y * x


def changed_without_gradient(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    with torch.no_grad():
        y.clamp_(0, 1)
    return y * m.weight


def clipped_weight(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m.weight.clamp_(0, 0.5)
    return x * m.weight


def kept_in_a_buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    m.kept.copy_(y[0])  # gradients flow on through the buffer
    return m.kept * x


def reentrant_checkpoint(m: Any, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(m.layer, x, use_reentrant=True).sin()


EAGER: dict[str, tuple[Callable[..., Any], str]] = {
    # name: (forward, what the reason names)
    "hook of a tensor": (own_hook, "register_hook"),
    "gradient asked for": (own_gradient, "torch.autograd.grad"),
    "detached input": (detached_input, "detach_"),
    "detached in place and changed": (detached_in_place_and_changed, "detached"),
    "returns a new leaf": (returns_a_new_leaf, "it has made"),
    "moves with a new leaf alone": (moves_with_a_new_leaf_alone, "it has made"),
    "requires of a buffer": (requires_of_a_buffer, "requires_grad_"),
    "detached and changed": (detached_and_changed, "detached"),
    "changed without gradient": (changed_without_gradient, "mul in place under no_grad"),
    "clipped weight": (clipped_weight, "p_weight in place under no_grad"),
    "kept in a buffer": (kept_in_a_buffer, "b_kept"),
    "reentrant checkpoint": (reentrant_checkpoint, "CheckpointFunction"),
}


def test_functions_with_a_backward_of_their_own():
    torch.manual_seed(0)
    trains_like(*twins(WithState(own_function)), double(2, 3), steps=1)


@pytest.mark.parametrize("name", EAGER)
def test_left_to_torch(name: str, caplog: pytest.LogCaptureFixture):
    torch.manual_seed(0)
    function, fact = EAGER[name]
    compiled, eager = twins(WithState(function))
    x = double(2, 3)
    with caplog.at_level(logging.WARNING):
        same(step(compiled, [x]), step(eager, [x]))
    (message,) = caplog.messages
    assert "WithState" in message and fact in message and message == golden()
    assert not compiled_backward(compiled)


def advantages(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Made in the size of what has a gradient, and filled without one, as in advantage estimation."""
    found, last = torch.zeros_like(x), x.new_zeros(x.shape[1:])
    with torch.no_grad():
        for row in reversed(range(len(x))):
            found[row] = last = x[row] * m.weight + 0.9 * last
        m.kept.copy_(torch.ones_like(x[0]))
    return m.layer(x) * found + m.kept


def test_a_tensor_of_which_only_the_size_is_taken_has_no_gradient():
    torch.manual_seed(0)
    compiled, eager = twins(WithState(advantages))
    trains_like(compiled, eager, double(2, 3), steps=1)
    assert compiled_backward(compiled)


def test_hooks_of_submodules_are_left_to_torch_while_they_are_there(caplog: pytest.LogCaptureFixture):
    torch.manual_seed(0)
    compiled, eager = twins(nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double())
    x = double(2, 3)
    handles = [
        module[0].register_full_backward_hook(lambda m, given, out: (given[0] * 5,))
        for module in (compiled, eager)
    ]
    trains_like(compiled, eager, x)
    (message,) = caplog.messages
    assert "submodule 0" in message and message == golden() and not compiled_backward(compiled)
    for handle in handles:
        handle.remove()
    trains_like(compiled, eager, x)
    assert compiled_backward(compiled)


def test_two_parameters_with_one_memory_have_gradients_of_their_own(caplog: pytest.LogCaptureFixture):
    torch.manual_seed(0)
    module = WithState(lambda m, x: x * m.weight + x.sin() * m.other)
    module.other = nn.Parameter(module.weight.data)
    compiled, _ = twins(module)
    x = double(3)
    (compiled(x)).sum().backward()
    same([compiled.weight.grad, compiled.other.grad], [x, x.sin()])
    (message,) = caplog.messages
    assert "memory" in message and message == golden()
