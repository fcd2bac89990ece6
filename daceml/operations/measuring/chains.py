"""Copies of one operation, one after the other, as something that can be timed.

How copies depend on each other. Where a result can be the next one's first operand, it is:
x[i+1] = op(x[i], ...). Elsewhere copies take the same operands, and order is the dependency: a processor does
what it is told before a call returns, and a CUDA stream, or the graph captured from it, does one kernel after
the other. That costs nothing, so nothing is subtracted; an added `0 * x` would cost a kernel of its own, and
hide a short operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from daceml.errors import MeasurementError
from daceml.operations.measuring.batches import Timed
from daceml.operations.measuring.calls import Call, Tensor, filled
from daceml.operations.measuring.operands import draw
from daceml.operations.measuring.stopwatches import Stopwatch, Work, nothing

# Results are fed on so often, and as often again, before a chain is made of them; they may not differ by more
# in size then. x + y grows as the length does and may; x y, a GELU and a product of matrices may not.
_TRIED, _DRIFT = 4, 4.0
_SHAPES_FROM_DATA = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Copies of an operation.

    Attributes:
        timed: as many copies as it is told -> seconds.
        chained: whether each copy reads the result of the one before; else order alone holds them apart.
    """

    timed: Timed
    chained: bool


def forward_chain(
    call: Call,
    stopwatch: Stopwatch,
    *,
    device: str = "cpu",
    buffers: Sequence[int] | None = None,
    results: int = 1,
    before: Work = nothing,
    between: Callable[[Sequence[torch.Tensor]], None] | None = None,
    only_between: bool = False,
    seed: int = 0,
) -> Chain:
    """Copies of a call without autograd; what it allocates for its result, it allocates in the chain, too.

    Args:
        buffers: of each tensor, taken in turn; where they are given, results are no operands.
        results: that are alive at a time, so that as many more are written before memory is written again.
        before: done before each chain, and not timed.
        between: done with a copy's tensors before it, and timed: the slope is that of both.
        only_between: without the copies, so that there is something to subtract.
    Raises:
        MeasurementError: its result's shape follows from data.
    """
    function = call.function()
    _refuse_data_dependent(call, function)
    with stopwatch.scope():
        tensors = _tensor_sets(call, buffers or [1] * len(call.tensors), device, seed)
        arguments = [_arguments(call, one, device) for one in tensors]
        chained = buffers is None and results == 1 and _feeds_itself(call, function, arguments[0])
    if chained:
        (args, kwargs) = arguments[0]
        first, rest = args[0], args[1:]

        def work(copies: int) -> None:
            x = first
            for _ in range(copies):
                x = function(x, *rest, **kwargs)

    elif len(arguments) == results == 1 and between is None:
        (args, kwargs) = arguments[0]

        def work(copies: int) -> None:
            for _ in range(copies):
                function(*args, **kwargs)

    else:
        sets, kept, begun = len(arguments), [None] * results, 0

        def work(copies: int) -> None:
            nonlocal begun  # the next chain goes on where this one ends
            for place in range(begun, begun + copies):
                if between is not None:
                    between(tensors[place % sets])
                    if only_between:
                        continue
                args, kwargs = arguments[place % sets]
                kept[place % results] = function(*args, **kwargs)
            begun += copies

    return Chain(timed=_timed(work, stopwatch, before), chained=chained)


def backward_chain(
    call: Call, stopwatch: Stopwatch, *, most: int, device: str = "cpu", before: Work = nothing, seed: int = 0
) -> Chain:
    """The gradients of a call's operands, of as many independent copies; graphs are made before, and kept.

    Every copy has leaves of its own that share the operands' memory, so that no gradients are added up, and
    autograd runs all of them in one pass, in an order.

    Args:
        most: copies that are prepared; no chain can be longer.
    Raises:
        MeasurementError: nothing of it has a gradient.
    """
    function = call.function()
    _refuse_data_dependent(call, function)
    if function._schema.is_mutable:
        raise MeasurementError(
            f"{call.operator} has no backward pass of its own",
            why="it writes over its operands, which autograd forbids for leaves",
            fix="measure the operator without the underscore",
        )
    roots: list[torch.Tensor] = []
    leaves: list[list[torch.Tensor]] = []
    with stopwatch.scope(), torch.enable_grad():
        (drawn,) = draw(call.tensors, device=device, seed=seed)
        for _ in range(most):
            own = [one.detach().requires_grad_(one.is_floating_point()) for one in drawn]
            args, kwargs = _arguments(call, own, device)
            result = function(*args, **kwargs)
            roots.append(_differentiable(call, result))
            leaves.append([one for one in own if one.requires_grad])
        gradient = torch.randn_like(roots[0])
        reached = torch.autograd.grad(roots[0], leaves[0], gradient, retain_graph=True, allow_unused=True)
    used = [place for place, one in enumerate[torch.Tensor | None](reached) if one is not None]
    if not used:
        raise MeasurementError(
            f"{call.operator} has no backward pass", why="its result does not depend on its operands"
        )
    wanted = [[own[place] for place in used] for own in leaves]

    def work(copies: int) -> None:
        inputs = [leaf for own in wanted[:copies] for leaf in own]
        torch.autograd.grad(roots[:copies], inputs, [gradient] * copies, retain_graph=True)

    return Chain(timed=_timed(work, stopwatch, before), chained=False)


def _timed(work: Callable[[int], None], stopwatch: Stopwatch, before: Work) -> Timed:
    prepared: dict[int, Callable[[], float]] = {}

    def timed(copies: int) -> float:
        if copies not in prepared:  # a graph of each length is captured once
            prepared[copies] = stopwatch.prepared(lambda: work(copies), before)
        return prepared[copies]()

    return timed


def _arguments(call: Call, tensors: Iterable[torch.Tensor], device: str) -> tuple[list[Any], dict[str, Any]]:
    rest = iter(tensors)
    args = [filled(value, rest, device) for value in call.args]
    return args, {name: filled(value, rest, device) for name, value in call.kwargs}


def _tensor_sets(
    call: Call, buffers: Sequence[int], device: str, seed: int
) -> list[tuple[torch.Tensor, ...]]:
    random = Random(seed)
    drawn: list[list[torch.Tensor]] = []
    for place, (one, count) in enumerate(zip(call.tensors, buffers, strict=True)):
        made = [tensor for (tensor,) in draw([one], sets=count, device=device, seed=seed + place)]
        random.shuffle(made)  # no order that a prefetcher learns
        drawn.append(made)
    turns = range(max(buffers, default=1))
    return [tuple(made[turn % len(made)] for made in drawn) for turn in turns]


def _refuse_data_dependent(call: Call, function: Any) -> None:
    # x[i] with whole numbers has the shape of i; with a mask, it has as many rows as the mask is true for
    if call.operator.startswith("aten::index.") and all(one.dtype != "bool" for one in call.tensors):
        return
    if any(tag in function.tags for tag in _SHAPES_FROM_DATA):
        raise MeasurementError(
            f"{call.operator} has no time of its own",
            why="the shape of its result, or what is done next, follows from the values of its operands",
            fix="record the program that calls it, with daceml.profile",
        )


def _feeds_itself(call: Call, function: Any, arguments: tuple[list[Any], dict[str, Any]]) -> bool:
    """Whether a result can be the next first operand, and stays a number of ordinary size when it is."""
    args, kwargs = arguments
    first = call.args[0] if call.args else None
    if not isinstance(first, Tensor) or function._schema.is_mutable:
        return False
    # aliases of the operand are no computation, and a chain of views grows a chain of metadata
    if any(returned.alias_info is not None for returned in function._schema.returns):
        return False
    x, sizes = args[0], list[float]()
    for _ in range(2):
        for _ in range(_TRIED):
            y = function(x, *args[1:], **kwargs)
            if not isinstance(y, torch.Tensor) or not _alike(x, y):
                return False
            x = y
        sizes.append(_size(x))
    # neither growing towards infinity nor dying down to numbers that processors are slow with
    return sizes[0] > 0 and 1 / _DRIFT < sizes[1] / sizes[0] < _DRIFT


def _alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and x.stride() == y.stride()


def _size(x: torch.Tensor) -> float:
    """The median magnitude of what is not zero: a few large elements hide no others that die down."""
    nonzero = x[x != 0]
    return float(nonzero.abs().double().median()) if nonzero.numel() else 0.0


def _differentiable(call: Call, result: Any) -> torch.Tensor:
    found = result if isinstance(result, list | tuple) else (result,)
    for one in found:
        if isinstance(one, torch.Tensor) and one.requires_grad:
            return one
    raise MeasurementError(
        f"{call.operator} has no backward pass",
        why="no result of it has a gradient",
        fix="measure it forward only",
    )
