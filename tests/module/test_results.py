"""Results besides fresh tensors: sizes, numbers, and tensors that are the very ones that were passed."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import daceml
from daceml.module.module import compile_module
from tests.support.eager_twin import Function, unlike_eager

X = torch.arange(6.0).reshape(2, 3)


def test_a_size_stays_a_size():
    assert unlike_eager(lambda x: x.shape, X) == []
    assert (
        unlike_eager(lambda x: {"shape": x.shape, "strides": x.stride(), "y": [x * 2, (x.shape,)]}, X) == []
    )
    assert unlike_eager(lambda x: (x[:1] * 2, x.shape, x.size(0)), X, dynamic=True) == []


@pytest.mark.parametrize(
    "function",
    [lambda x: x.sum().item(), lambda x: x[0].tolist(), lambda x: (x * 2, {"n": x.max().item()})],
    ids=["item", "tolist", "item in a dict"],
)
def test_values_of_tensors_are_numbers(function):
    assert unlike_eager(function, X, one_program=False) == []
    assert unlike_eager(function, X.long(), one_program=False) == []


@pytest.mark.parametrize(
    "function",
    [
        torch.positive,
        torch.resolve_conj,
        torch.resolve_neg,
        torch.conj,
        torch.conj_physical,
        torch.real,
        torch.atleast_1d,
        torch.atleast_2d,
        torch.atleast_3d,
        lambda x: x.contiguous(),
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_an_operator_with_nothing_to_do_returns_its_operand(function, gradients):
    assert unlike_eager(function, X, gradients=gradients) == []
    assert unlike_eager(lambda x: function(x * 2).add(1), X, gradients=gradients) == []


PARTS = {
    "chunks": lambda y: y.chunk(2),
    "chunks of rows": lambda y: y.chunk(3, 1),
    "splits": lambda y: torch.tensor_split(y, 2),
    "unbound": lambda y: y.unbind(1),
    "overlapping": lambda y: (y[:, :2], y[:, 1:]),
    "every second": lambda y: (y[:, ::2], y[:, 1::2]),
    "transposed": lambda y: (y.t(), y[1], y.diagonal()),
    "detached": lambda y: (y[0].detach(), y[1]),
    "changed": lambda y: (y[0].mul_(2), y[1]),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("gradients", [False, True])
def test_parts_of_one_tensor_are_parts_of_one_tensor(parts, gradients):
    assert unlike_eager(lambda x: parts(x.sin()), X, gradients=gradients) == []
    # a matrix whose columns lie in a row
    assert unlike_eager(lambda x: parts(x.t().sin()), X.t().contiguous(), gradients=gradients) == []


def test_parts_of_a_tensor_of_any_size_are_parts_of_one_tensor():
    function = lambda x: x.sin().chunk(2)  # noqa: E731
    assert unlike_eager(function, X, dynamic=True) == []
    compiled = compile_module(Function(function), backward=False, dynamic=True)
    for rows in (4, 6, 8):
        first, second = compiled(torch.ones(rows, 3))
        assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        assert second.storage_offset() == 3 * rows // 2
    assert len(compiled.session.variants) == 1


def test_results_that_an_operator_writes_are_the_tensors_that_it_was_given():
    def function(x, y, places):
        return *torch.sort(x, out=(y, places)), torch.max(x, 1)

    assert unlike_eager(function, X, X * 2, torch.zeros(2, 3, dtype=torch.long)) == []


def write(target, v):
    target.add_(v)
    return target


MADE = {
    "returned": lambda v: (v * 2, torch.tensor([5.0, 6.0])),
    "changed": lambda v: write(torch.tensor([5.0, 6.0]), v),
    "changed in a view": lambda v: (t := torch.tensor([5.0, 6.0]), write(t[:1], v[:1]))[0],
    "changed and read": lambda v: (t := v.new_tensor([1.0, 2.0]), write(t, v), t * 2),
    "copied to": lambda v: torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t().copy_(v),
}


@pytest.mark.parametrize("function", MADE.values(), ids=MADE)
@pytest.mark.parametrize("gradients", [False, True])
def test_a_tensor_that_forward_makes_of_numbers_is_new_in_each_call(function, gradients):
    assert unlike_eager(function, torch.tensor([1.0, 3.0]), gradients=gradients) == []
    compiled = compile_module(Function(function), backward=False)
    with torch.no_grad():
        for leaf in pytree.tree_leaves(compiled(torch.ones(2))):
            leaf.fill_(9)
        again = pytree.tree_leaves(compiled(torch.ones(2)))
        assert all(map(torch.equal, again, pytree.tree_leaves(function(torch.ones(2)))))


def test_a_tensor_made_without_gradients_is_new_in_each_call():
    def function(v):
        with torch.no_grad():
            t = torch.tensor([5.0, 6.0])
            t.add_(v)
        return t, v * t

    assert unlike_eager(function, torch.tensor([1.0, 3.0]), gradients=True) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_a_change_in_a_view_follows_a_change_of_the_whole(gradients):
    def function(x):
        y = x * 2
        y.mul_(2)
        y.diagonal().add_(1)
        y.sub_(3)
        y[1:].mul_(2)
        return y

    assert unlike_eager(function, X, gradients=gradients) == []


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = torch.ones(2, 3)

    def forward(self, x):
        return x * 2, self.plain.float(), self.plain, self.plain[1:]


def test_results_lie_in_a_plain_tensor_of_the_module():
    module = Held()
    _, same, plain, part = compile_module(module, backward=False)(X)
    assert same is module.plain
    assert plain is module.plain
    assert part.data_ptr() == module.plain[1:].data_ptr()


def test_a_result_that_comes_twice_is_one_tensor():
    assert unlike_eager(lambda x: (y := x.t().sin(), y), X) == []
    assert unlike_eager(lambda x: (y := x.t()[:1], {"again": y}), X) == []


def both_parts(x):
    return x.real, x.imag, torch.view_as_real(x)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (both_parts, torch.complex64),
        (lambda x: both_parts(x[1:]), torch.complex128),
        (lambda x: (x.conj(), x.conj().imag, x.mH[1]), torch.complex64),
        (lambda x: torch.view_as_complex(x[2:]), torch.float32),
        (lambda x: x.view(torch.int32)[:, 1:], torch.float32),
        (lambda x: x.view(torch.int64).t(), torch.float32),
        (lambda x: (x[1:].view(torch.uint8), x), torch.float32),
        (lambda x: (lambda y: (y.view(torch.int32), y))(x * 2), torch.float32),
        (lambda x: (lambda y: (torch.view_as_real(y), y.conj(), y))(x * 2), torch.complex64),
    ],
)
def test_a_view_of_another_type_or_of_conjugates_shares_memory(function, dtype, dynamic, gradients):
    x = torch.randn(4, 2, dtype=dtype)
    options = {"gradients": gradients, "dynamic": dynamic, "one_program": False}
    assert unlike_eager(function, x, **options) == []


def test_the_conjugate_of_an_argument_that_is_one_itself():
    def function(x):
        return x.conj(), x.mT, x.real, x.imag

    compiled = daceml.compile(Function(function), backward=False, fullgraph=False)
    for x in (torch.randn(3, 2, dtype=torch.complex64), torch.randn(3, 2, dtype=torch.complex64).conj()):
        results = [function(x), compiled(x)]
        for eager, ours in zip(*results, strict=True):
            assert (ours.is_conj(), ours.is_neg()) == (eager.is_conj(), eager.is_neg())
            assert torch.equal(ours, eager) and ours.data_ptr() == eager.data_ptr()
