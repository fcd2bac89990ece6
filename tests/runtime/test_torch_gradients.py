"""Gradients that torch's own kernels compute: second derivatives, batches, and after a result has changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import functional, grad
from torch.utils.checkpoint import checkpoint

from tests.support.trained_twins import double, same, twins


class Calls(nn.Module):
    """A function of its arguments and of one weight."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))

    def forward(self, *args):
        return self.function(self.w, *args)


def leaf() -> torch.Tensor:
    return torch.tensor([1.0, 0.2, 0.3], dtype=torch.float64, requires_grad=True)


def product(w, x, y):
    return x**2 * y * w


def one_tensor_twice(module):
    x = leaf()
    return grad(module(x, x).sum(), x, create_graph=True)


def one_argument_from_another(module):
    x = leaf()
    return grad(module(x, x * 2).sum(), [x, module.w], create_graph=True)


def the_module_twice(module):
    x = leaf()
    return grad(module(module(x, x), x).sum(), [x, module.w], create_graph=True)


def a_weight_as_an_argument(module):
    return grad(module(module.w, module.w).sum(), module.w, create_graph=True)


def hessian(module):
    return functional.hessian(lambda x: module(x, x * 3).sum(), leaf())


def jacobian_in_one_batch(module):
    return functional.jacobian(lambda x: module(x, x + 1), leaf(), vectorize=True)


def batch(module):
    x = leaf()
    return grad(module(x, x * 2), x, torch.eye(3, dtype=x.dtype), is_grads_batched=True)


def hooks(module):
    x = leaf()
    handles = [x.register_hook(lambda g: g * 2), module.w.register_hook(lambda g: g * 3)]
    h = x * 2
    h.register_hook(lambda g: g * 5)
    h.retain_grad()
    module(h, x).sum().backward(create_graph=True)
    found = [x.grad, h.grad, module.w.grad]
    for handle in handles:
        handle.remove()
    return [g.detach() for g in found]


def frozen_after_the_call(module):
    x = leaf()
    y = module(x, x)
    module.w.requires_grad_(False)
    found = grad(y.sum(), x, create_graph=True)
    module.w.requires_grad_(True)
    return found


def within_a_checkpoint(module):
    x = leaf()
    y = checkpoint(lambda x: module(x * 1.5, x) * 2, x, use_reentrant=False)
    return grad(y.sum(), x, create_graph=True)


def second_derivatives_by_everything(module):
    x = leaf()
    first = grad(module(x, x.cos()).sin().sum(), [x, module.w], create_graph=True)
    return grad(sum(g.square().sum() for g in first), [x, module.w])


USES = (
    one_tensor_twice, one_argument_from_another, the_module_twice, a_weight_as_an_argument, hessian,
    jacobian_in_one_batch, batch, hooks, frozen_after_the_call, within_a_checkpoint,
    second_derivatives_by_everything,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("use", USES)
def test_gradients_are_those_of_eager(use):
    compiled, eager = twins(Calls(product))
    for _ in range(2):
        same(use(compiled), use(eager))


def test_a_result_that_changes_where_one_tensor_is_given_twice():
    def use(module):
        x = leaf()
        p, q = module(x, x)
        total = (p * 3).sum() + q.sum()
        p.mul_(2)
        return grad(total, x)

    compiled, eager = twins(Calls(lambda w, x, y: ((x * y * w).clone(), (x * y * w).sin())))
    same(use(compiled), use(eager))


def test_inference_tensors_are_arguments():
    compiled, eager = twins(Calls(lambda w, x: x + w))
    with torch.inference_mode():
        x = double(3)
    for module in (compiled, eager):
        module(x).sum().backward()
    same(compiled.w.grad, eager.w.grad)


def test_hooks_for_saved_tensors_see_no_empty_ones():
    compiled, _ = twins(Calls(lambda w, x: (x * w).sin()))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t, t.abs().max()), lambda packed: packed[0]):
        compiled(leaf()).sum().backward()
    assert compiled.w.grad is not None


def test_a_call_keeps_no_argument_alive_through_its_own_graph():
    compiled, _ = twins(Calls(lambda w, h: h + w))
    h = double(3)
    y = compiled(h)
    h.copy_(y)
    gone = weakref.ref(h)
    del h, y
    gc.collect()
    assert gone() is None


def test_second_derivatives_next_to_an_argument_that_forward_changes():
    def counted(w, x, total):
        total.add_(x.detach().sum())
        return x**3 * w

    def second(module):
        x, total = leaf(), torch.zeros((), dtype=torch.float64)
        (slope,) = grad(module(x, total).sum(), x, create_graph=True)
        return grad(slope.sum(), [x, module.w]), total

    compiled, eager = twins(Calls(counted))
    same(second(compiled), second(eager))


def test_an_argument_that_forward_reads_and_changes_has_no_second_derivatives():
    def scaled(w, x, scale):
        y = x**3 * w * scale
        scale.mul_(2)
        return y

    for module in twins(Calls(scaled)):
        x, scale = leaf(), torch.ones((), dtype=torch.float64)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            grad(module(x, scale).sum(), x, create_graph=True)


@pytest.mark.parametrize(
    "pack", [lambda t: t * 1, lambda t: t.to(torch.bfloat16)], ids=["numbers", "bfloat16"]
)
def test_hooks_for_saved_tensors_may_give_a_mask_back_as_numbers(pack):
    compiled, eager = twins(Calls(lambda w, x: nn.functional.dropout(x, 0.5) + w))

    def gradients(module):
        torch.manual_seed(3)
        x = leaf()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(torch.float64)):
            module(x).sum().backward()
        return x.grad, module.w.grad

    same(gradients(compiled), gradients(eager))
