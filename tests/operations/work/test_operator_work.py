"""What operators compute and move: against torch's own counter of flops, and against what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from daceml.devices.roofline import Work
from daceml.operations.database.records import Operand, Operation
from daceml.operations.measuring.calls import call_of, tensor_of
from daceml.operations.work.operator_work import is_contraction, rule_of, work_of


class Seen(TorchDispatchMode):
    """Every call below autograd, with what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Operation, tuple[Operand, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.name().startswith("aten::"):  # marks of the profiler around an optimizer's step
            return result
        operation = call_of(func, args, kwargs or {}).operation()
        several = result if isinstance(result, tuple | list) else (result,)
        # an empty tensor stands for a result that this device does not have
        found = [one for one in several if isinstance(one, torch.Tensor) and one.numel()]
        self.calls.append((operation, tuple(tensor_of(one).operand() for one in found)))
        return result


def seen(function: Callable[..., Any], *args: Any, backward: bool = False) -> Seen:
    with Seen() as calls:
        result = function(*args)
        if backward:
            torch.autograd.backward(result, torch.ones_like(result))
    return calls


def random(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


CONTRACTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mm": (torch.mm, (random(5, 7), random(7, 3))),
    "addmm": (torch.addmm, (random(3), random(5, 7), random(7, 3))),
    "bmm": (torch.bmm, (random(4, 5, 7), random(4, 7, 3))),
    "baddbmm": (torch.baddbmm, (random(4, 5, 3), random(4, 5, 7), random(4, 7, 3))),
    "linear": (functional.linear, (random(2, 6, 8), random(4, 8), random(4))),
    "matmul": (torch.matmul, (random(2, 3, 6, 8), random(2, 3, 8, 5))),
    "conv1d": (functional.conv1d, (random(2, 4, 20), random(6, 4, 3))),
    "conv2d": (
        lambda x, w, b: functional.conv2d(x, w, b, stride=2, padding=1),
        (random(2, 4, 9, 11), random(6, 4, 3, 3), random(6)),
    ),
    "dilated": (lambda x, w: functional.conv2d(x, w, dilation=2), (random(2, 4, 9, 11), random(6, 4, 3, 3))),
    "conv3d": (functional.conv3d, (random(2, 4, 5, 6, 7), random(6, 4, 3, 3, 3))),
    "transposed": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, output_padding=1),
        (random(2, 4, 5, 6), random(4, 3, 3, 3)),
    ),
}


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "and backward"])
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_flops_are_those_of_torch_s_counter(name: str, backward: bool):
    function, args = CONTRACTIONS[name]
    with FlopCounterMode(display=False) as counter:
        result = function(*args)
        if backward:
            torch.autograd.backward(result, torch.ones_like(result))
    calls = seen(function, *args, backward=backward).calls
    works = [work_of(operation) for operation, _ in calls if is_contraction(operation.operator)]
    assert works and all(isinstance(one, Work) for one in works)
    assert sum(one.flops for one in works if one is not None) == counter.get_total_flops() > 0


def attention(name: str, *lengths: int, heads_inside: bool = False, first: int = 0, **told: Any) -> Operation:
    query, key = lengths
    shapes = [(2, query, 8, 16) if heads_inside else (2, 8, query, 16)] * first
    for length in (query, key, key):
        shapes.append((2, length, 8, 16) if heads_inside else (2, 8, length, 16))
    operands = tuple(Operand(shape=shape, dtype="bfloat16") for shape in shapes)
    return Operation(operator=name, operands=operands, attributes=told)


# two products of 2 x 8 heads, 32 queries, 48 keys and 16 numbers
ATTENTION = 2 * 2 * (2 * 8) * 32 * 48 * 16


@pytest.mark.parametrize(
    ("operation", "flops"),
    [
        (attention("aten::scaled_dot_product_attention", 32, 48), ATTENTION),
        (attention("aten::_scaled_dot_product_flash_attention", 32, 48), ATTENTION),
        (attention("aten::_scaled_dot_product_efficient_attention", 32, 48), ATTENTION),
        (attention("aten::_flash_attention_forward", 32, 48, heads_inside=True), ATTENTION),
        (attention("aten::_scaled_dot_product_flash_attention", 48, 48, is_causal=True), ATTENTION * 1.5 / 2),
        (attention("aten::_scaled_dot_product_flash_attention_backward", 32, 48, first=1), ATTENTION * 2.5),
        (attention("aten::_flash_attention_backward", 32, 48, heads_inside=True, first=1), ATTENTION * 2.5),
    ],
    ids=lambda one: one.operator if isinstance(one, Operation) else "",
)
def test_attention(operation: Operation, flops: float):
    work = work_of(operation)
    assert work is not None and (work.flops, work.arithmetic) == (flops, "bfloat16")


def test_attention_is_as_torch_s_counter_has_it():
    q, k, v = (
        random(2, 8, 32, 16, grad=False),
        random(2, 8, 48, 16, grad=False),
        random(2, 8, 48, 16, grad=False),
    )
    with FlopCounterMode(display=False) as counter:
        torch.ops.aten._scaled_dot_product_flash_attention.default(q.to("meta"), k.to("meta"), v.to("meta"))
    assert counter.get_total_flops() == ATTENTION


def test_groups_divide_the_work_of_both_passes():
    x, weight = random(2, 8, 10, 10), random(12, 2, 3, 3)
    calls = seen(lambda: functional.conv2d(x, weight, groups=4), backward=True).calls
    flops = {
        op.operator: work.flops for op, _ in calls if (work := work_of(op)) and is_contraction(op.operator)
    }
    one = 2 * 2 * 8 * 8 * weight.numel()
    assert flops == {"aten::convolution": one, "aten::convolution_backward": 2 * one}


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], torch.ones(x.shape[-1]), torch.zeros(x.shape[-1]))


NETWORKS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (
        lambda x, y: functional.gelu(x * 2 + y) / torch.sigmoid(y) - (x > 0).float(),
        (random(4, 1, 6), random(5, 6)),
    ),
    "of types": (lambda x, y: (x.to(torch.bfloat16) + y.bfloat16()).float(), (random(4, 6), random(6))),
    "in place": (
        lambda x: x.clone().add_(1).mul_(2).clamp_(0, 1).relu_().copy_(x).fill_(3),
        (random(4, 6, grad=False),),
    ),
    "reductions": (
        lambda x: x.sum((0, 2)) + x.mean() + x.amax(1, keepdim=True).sum() + x.std(),
        (random(4, 5, 6),),
    ),
    "positions": (
        lambda x: (x.max(1), x.argmax(), x.topk(3), x.sort(), (x > 0).all(1)),
        (random(4, 5, grad=False),),
    ),
    "softmax": (lambda x: functional.softmax(x, -1) + functional.log_softmax(x, 1), (random(4, 5, 6),)),
    "layer norm": (layer_norm, (random(4, 5, 6),)),
    "group norm": (lambda x: functional.group_norm(x, 2), (random(2, 6, 5, 5),)),
    "batch norm": (
        lambda x: functional.batch_norm(x, None, None, torch.ones(6), torch.zeros(6), training=True),
        (random(2, 6, 5, 5),),
    ),
    "cross entropy": (lambda x: functional.cross_entropy(x, torch.arange(7)), (random(7, 9),)),
    "losses": (
        lambda x: functional.mse_loss(x, torch.zeros(7, 9)) + functional.smooth_l1_loss(x, torch.zeros(7, 9)),
        (random(7, 9),),
    ),
    "embedding": (lambda w: functional.embedding(torch.arange(6).reshape(2, 3), w), (random(11, 4),)),
    "lookups": (
        lambda x: (
            x.index_select(1, torch.arange(2)),
            x[torch.arange(3)],
            x.gather(1, torch.zeros(4, 2).long()),
        ),
        (random(4, 5, grad=False),),
    ),
    "joins": (
        lambda x: torch.cat([x, x * 2, x], 1) + torch.stack([x, x, x], 1).reshape(4, -1),
        (random(4, 5),),
    ),
    "max pooling": (lambda x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True), (random(2, 3, 10, 10),)),
    "average pooling": (
        lambda x: functional.avg_pool2d(x, 2) + functional.adaptive_avg_pool2d(x, (5, 5)),
        (random(2, 3, 10, 10),),
    ),
    "resizing": (
        lambda x: functional.interpolate(x, (9, 9)) + functional.interpolate(x, (9, 9), mode="bilinear"),
        (random(2, 3, 5, 5),),
    ),
    "dropout": (lambda x: functional.dropout(x, 0.5), (random(4, 5),)),
    "made anew": (lambda: (torch.zeros(3, 4), torch.ones_like(torch.empty(5)), torch.full((2,), 1.0)), ()),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_results_follow_from_operands_and_attributes(name: str):
    function, args = NETWORKS[name]
    backward = any(isinstance(one, torch.Tensor) and one.requires_grad for one in args)
    calls = seen(function, *args, backward=backward).calls
    assert calls
    for operation, results in calls:
        assert work_of(operation) is not None, f"{operation.operator} is not known"
        assert work_of(operation) == work_of(operation, results), operation


def test_an_optimizer_reads_and_writes_its_state():
    parameters = [random(3, 4), random(5)]
    for one in parameters:
        one.grad = torch.ones_like(one)
    optimizer = torch.optim.Adam(parameters, fused=True)
    calls = seen(optimizer.step).calls
    fused = next(operation for operation, _ in calls if "_fused_adam" in operation.operator)
    work = work_of(fused)
    # parameter, gradient and two moments are read, all but the gradient written; and each has its step
    assert work is not None and work.bytes_moved == 7 * 4 * 17 + 2 * 4


def test_lists_of_tensors():
    one, two = random(3, 4, grad=False), random(5, grad=False)
    calls = seen(torch._foreach_add_, [one, two], [one.clone(), two.clone()]).calls
    work = next(work_of(operation) for operation, _ in calls if "_foreach_add_" in operation.operator)
    assert work is not None and work.bytes_moved == 3 * 4 * 17


def operation(operator: str, *operands: Operand, **attributes: Any) -> Operation:
    return Operation(operator=operator, operands=operands, attributes=attributes)


def tensor(*shape: int, dtype: str = "float32", layout: str | tuple[int, ...] = "contiguous") -> Operand:
    return Operand(shape=shape, dtype=dtype, layout=layout)


def test_both_spellings_of_an_overload():
    plain, overload = (
        work_of(operation(name, tensor(4, 5), tensor(5, 6))) for name in ("aten::mm", "aten::mm.out")
    )
    assert plain == overload == Work(flops=2 * 4 * 5 * 6, bytes_moved=4 * (20 + 30 + 24))


def test_views_are_free_and_broadcast_dimensions_lie_in_memory_once():
    assert work_of(operation("aten::transpose", tensor(4, 5))) == Work(flops=0, bytes_moved=0)
    row = tensor(1000, 8, layout=(0, 1))
    work = work_of(operation("aten::add", row, tensor(1000, 8)))
    assert work is not None and work.bytes_moved == 4 * (8 + 8000 + 8000)


def test_the_gradient_of_a_call():
    forward = Operation(operator="aten::mm", operands=(tensor(4, 5), tensor(5, 6)))
    backward = Operation(operator="aten::mm", operands=forward.operands, direction="backward")
    work = work_of(backward)
    # both operands and the gradient of the result are read, both gradients written
    assert (
        work is not None and work.flops == 2 * 2 * 4 * 5 * 6 and work.bytes_moved == 4 * (2 * (20 + 30) + 24)
    )


@pytest.mark.parametrize(
    "unknown",
    [
        operation("mine::attention", tensor(4)),
        operation("aten::mm", tensor(4, 5)),
        operation("aten::mm", tensor(4, 5, dtype="float64"), tensor(5, 6, dtype="float64")),
        operation("aten::add", tensor(4), tensor(5)),
        operation("aten::index", tensor(4, 5), tensor(4, 5, dtype="bool")),
        operation("aten::max_pool2d", tensor(1, 2, 8, 8)),
        Operation(operator="kernel", operands=(tensor(4),), kernel="fused_1"),
    ],
    ids=["operator", "operand missing", "float64", "shapes", "mask", "window", "compiled kernel"],
)
def test_what_is_not_known_has_no_work(unknown: Operation):
    assert work_of(unknown) is None


def test_names_in_place_are_those_of_their_operators():
    assert rule_of("add_") is rule_of("add") is not None
    assert rule_of("nothing_") is None


def test_the_gradient_of_a_view_is_as_large_as_what_it_was_taken_of():
    gradient = Operand(shape=(2, 3), dtype="float32")
    of = Operation(
        operator="aten::select_backward",
        operands=(gradient,),
        attributes={"input_sizes": (2, 8, 3), "dim": 1, "index": 0},
    )
    work = work_of(of)
    assert work is not None
    assert (work.flops, work.bytes_moved) == (0, 4 * (2 * 3 + 2 * 8 * 3))
    parts = Operation(operator="aten::unsafe_split", operands=(gradient,), attributes={"split_size": 1})
    free = work_of(parts)
    assert free is not None
    assert free.bytes_moved == 0
