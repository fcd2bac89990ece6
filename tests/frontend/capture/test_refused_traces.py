"""What torch's trace lets pass and eager PyTorch does otherwise: errors and types."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.errors import DacemlError
from tests.support.eager_twin import Function, unlike_eager
from tests.support.sampling import slowed


def once_of_any_size(cases, *kept):
    """Every case with fixed and with symbolic sizes; of the latter, a sample is quick."""
    every = [(*case, dynamic) for case in cases for dynamic in (False, True)]
    return slowed(every, *((*case, True) for case in cases if case not in kept))


def placed(x, place, y):
    x = x.clone()
    x[place] = y
    return x


RAISING = [
    (lambda x: x.max(), [torch.ones(0)]),
    (lambda x: x.min(1), [torch.ones(2, 0)]),
    (torch.ldexp, [torch.ones(2), torch.tensor([True, False])]),
    (lambda x: torch.logcumsumexp(x, 0), [torch.tensor(3)]),
    (lambda x: functional.interpolate(x, scale_factor=0.5), [torch.ones(1, 2, 1, 4)]),
    (lambda x: functional.interpolate(x, scale_factor=0.5), [torch.ones(1, 0, 4, 4)]),
    (lambda x: functional.interpolate(x, scale_factor=0.5, mode="bilinear"), [torch.ones(1, 2, 4, 0)]),
    (lambda x: functional.adaptive_avg_pool2d(x, 2), [torch.ones(2, 3, 0, 4)]),
    (
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        [torch.ones(2, 3, 0, 5), torch.zeros(2, 6, 7, 2)],
    ),
]


@pytest.mark.parametrize(
    ("function", "tensors", "dynamic"), once_of_any_size(RAISING, RAISING[1], RAISING[4], RAISING[8])
)
def test_errors_of_eager(function, tensors, dynamic):
    assert unlike_eager(function, *tensors, one_program=False, dynamic=dynamic) == []


@pytest.mark.parametrize("shape", [(8, 4), (8, 4, 8, 8)])
@pytest.mark.parametrize("kind", ["other dtype", "other shape"])
def test_targets_that_a_loss_refuses(shape: tuple[int, ...], kind: str):
    x, size = torch.randn(shape), (shape[0], *shape[2:])
    places = (
        torch.zeros(size, dtype=torch.int32)
        if kind == "other dtype"
        else torch.zeros(8, 4, dtype=torch.int64)
    )
    for loss in (functional.cross_entropy, lambda x, y: functional.nll_loss(x.log_softmax(1), y)):
        assert unlike_eager(loss, x, places, one_program=False) == []
    model = nn.Conv2d(4, 4, 1) if len(shape) == 4 else nn.Linear(4, 4)
    step = daceml.compile_step(model, functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(DacemlError):
        step(x, places)


@pytest.mark.parametrize("loss", [functional.multi_margin_loss, functional.multilabel_margin_loss])
def test_targets_of_margins_are_int64(loss):
    x = torch.randn(4, 3)
    target = torch.zeros(4 if loss is functional.multi_margin_loss else (4, 3), dtype=torch.int64)
    assert unlike_eager(loss, x, target, one_program=False) == []
    assert unlike_eager(loss, x, target.int(), one_program=False) == []


def test_operators_without_elements_that_raise_no_error_are_compiled():
    x = torch.ones(2, 0, 4)
    assert unlike_eager(lambda x: (x.sum(1), torch.cat([x, x + 1], 1), x.transpose(1, 2) @ x), x) == []


SOURCES = [
    (lambda x, y: x.slice_scatter(y, 0, 0, 2), (2, 4), [(3, 4), (1, 4), (2, 3), (4,)]),
    (lambda x, y: x.slice_scatter(y, 1, 1, None, 2), (5, 2), [(5, 3), (4, 2), (5, 1)]),
    (lambda x, y: x.slice_scatter(y, 0, -2), (2, 4), [(3, 4), (2, 5)]),
    (lambda x, y: x.select_scatter(y, 0, 1), (4,), [(3,), (5,), (1,), (5, 4)]),
    (lambda x, y: x.index_add(0, torch.tensor([3, 0, 3]), y), (3, 4), [(3, 3), (3, 1), (2, 4)]),
    (lambda x, y: x.index_copy(0, torch.tensor([3, 0]), y), (2, 4), [(2, 3), (2, 1), (3, 4)]),
    (lambda x, y: x.clone().index_add_(0, torch.tensor([3, 0, 3]), y), (3, 4), [(3, 3), (3, 1), (2, 4)]),
    (lambda x, y: x.index_put((torch.tensor([3, 0, 3]),), y), (3, 4), [(3, 3), (2, 4), (3,), (1, 3, 4)]),
    (lambda x, y: x.index_put((torch.tensor([3, 0]),), y, True), (2, 4), [(2, 3), (3, 4), (5,)]),
    (lambda x, y: placed(x, (slice(None), torch.tensor([3, 0])), y), (5, 2), [(5, 3), (4, 2), (4,)]),
    (lambda x, y: placed(x, torch.tensor([[3, 0], [1, 2]]), y), (2, 2, 4), [(2, 2, 3), (3, 2, 4), (2,)]),
]


@pytest.mark.parametrize(
    ("function", "source", "wrong", "dynamic"),
    once_of_any_size(SOURCES, SOURCES[0], SOURCES[3], SOURCES[4], SOURCES[7], SOURCES[10]),
)
def test_a_source_of_another_size_is_an_error_as_in_eager(function, source, wrong, dynamic):
    compiled = daceml.compile(Function(function), backward=False, dynamic=dynamic)
    x = torch.randn(5, 4)
    for _ in range(2):
        y = torch.randn(source)
        assert torch.equal(compiled(x, y), function(x, y))
        for shape in wrong:
            for call in (function, compiled):
                with pytest.raises((RuntimeError, IndexError)):
                    call(x, torch.randn(shape))


def test_modules_of_one_class_have_programs_of_their_own():
    """Dynamo keeps what it compiles by code object, which all instances of a class share."""

    def placed(start: int) -> nn.Module:
        return Function(lambda x, y: x.slice_scatter(y, 0, start, start + 2))

    x = torch.randn(5, 4)
    for rows in (3, 1, 2):
        for start in range(3):
            module, y = placed(start), torch.randn(rows, 4)
            compiled = daceml.compile(module, backward=False)
            if rows == 2:
                assert torch.equal(compiled(x, y), module(x, y))
            else:
                with pytest.raises(RuntimeError, match="equal to the slice"):
                    compiled(x, y)


def test_mixed_types_are_promoted():
    backward = torch.ops.aten.threshold_backward
    for other in (torch.float64, torch.int64):
        x, gradient = torch.arange(-2, 2).to(other), torch.tensor([1.0, 2.0, 3.0, 4.0])
        assert unlike_eager(lambda g, x: backward(g, x, 0), gradient, x, one_program=False) == []


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_are_left_to_torch():
    def function(x):
        return torch.quantize_per_tensor(x, 0.0213, 3, torch.qint8).int_repr()

    assert unlike_eager(function, torch.linspace(-3.0, 3.0, 50), one_program=False) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_data_that_forward_assigns_is_not_lost(gradients):
    def rebound(x):
        y = x.clone()
        y.data = x.detach() * 2
        return y.add_(1)

    x = torch.tensor([1.0, -3.0])
    assert unlike_eager(rebound, x, gradients=gradients, one_program=False) == []


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_what_a_bag_keeps_for_its_gradient_is_eagers(mode, last):
    """torch's trace knows neither its sizes nor its numbers."""

    def bags(weight, indices, offsets):
        return torch.embedding_bag(weight, indices, offsets, False, mode, False, None, last)

    offsets = torch.tensor([0, 2, 5] if last else [0, 2])
    tensors = [torch.randn(4, 2), torch.tensor([0, 1, 2, 1, 3]), offsets]
    assert unlike_eager(bags, *tensors, one_program=False) == []
    assert unlike_eager(lambda *tensors: bags(*tensors)[0], *tensors) == []


def test_a_view_with_other_strides_than_its_sizes_is_eagers():
    def function(x):
        return torch.ops.aten._reshape_alias(x, (4, 6), (1, 4)).sin()

    x = torch.arange(24.0)
    assert unlike_eager(function, x, gradients=True, one_program=False) == []
    assert unlike_eager(lambda x: torch.ops.aten._reshape_alias(x, (4, 6), (6, 1)).sin(), x) == []


def test_a_loss_of_two_types_has_the_type_of_its_input():
    x = torch.arange(3.0)
    assert unlike_eager(functional.huber_loss, x, x.double() + 1, one_program=False) == []
