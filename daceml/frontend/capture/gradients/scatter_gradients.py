"""Scattered extremes and products, with torch's gradients.

Gradients of `scatter_reduce` with "amax", "amin" and "prod" depend on what was written, so no rule for an
update alone gives them. Where gradients are wanted, an exported program has torch's formulas next to the
value. In torch's formula for extremes, an element that `include_self=False` leaves out counts if it equals
the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from daceml.frontend.capture.gradients.custom_gradients import (
    Emit,
    cotangent_of,
    emitter,
    value_of,
    with_gradient,
)

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node

_ATEN = torch.ops.aten
_SCATTERS = (_ATEN.scatter_reduce.two, _ATEN.scatter_reduce_.two)


def give_scatter_gradients(program: ExportedProgram) -> None:
    """Write gradients of scattered extremes and products into a program. Mutates the program."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in list(module.graph.nodes):
                if node.target in _SCATTERS and node.args[4] in _FORMULAS:
                    _give(module.graph, node)
            module.recompile()


def _give(graph: Graph, node: Node) -> None:
    data, _, index, source, reduce = node.args[:5]
    held, updates = value_of(data), value_of(source)
    if not held.is_floating_point() or held.dim() == 0 or updates.shape != value_of(index).shape:
        return

    emit = emitter(node)
    with graph.inserting_before(node):
        result = emit(_ATEN.scatter_reduce.two, *node.args, **node.kwargs)
        cotangent = emit(cotangent_of(), result)
        included = node.kwargs.get("include_self", (*node.args, True)[5])
        gradients = _FORMULAS[reduce](emit, node, result, cotangent, included=included)
        attached = (result, [data, source], list(gradients))
        if node.target is _ATEN.scatter_reduce_.two:
            target, arguments = _ATEN.copy_.default, (data, emit(with_gradient(), *attached))
        else:
            target, arguments = with_gradient(), attached
    # the node itself stays, since the program's signature names it
    node.target, node.args, node.kwargs = target, arguments, {}


def _extreme(emit: Emit, node: Node, result: Node, cotangent: Node, *, included: bool) -> tuple[Node, Node]:
    """All elements that equal the result share its gradient."""
    data, dim, index, source = node.args[:4]
    dtype = value_of(data).dtype

    def equal(x: Any, y: Any) -> Node:
        return emit(_ATEN._to_copy.default, emit(_ATEN.eq.Tensor, x, y), dtype=dtype)

    kept = equal(data, result)
    written = equal(source, emit(_ATEN.gather.default, result, dim, index))
    count = emit(_ATEN.scatter_add.default, kept, dim, index, written)
    share = emit(_ATEN.div.Tensor, cotangent, count)
    of_data = emit(_ATEN.mul.Tensor, kept, share)
    if not included:
        of_data = emit(_ATEN.scatter.value, of_data, dim, index, 0)
    return of_data, emit(_ATEN.mul.Tensor, written, emit(_ATEN.gather.default, share, dim, index))


def _product(emit: Emit, node: Node, result: Node, cotangent: Node, *, included: bool) -> tuple[Node, Node]:
    """The product of the other factors, also where one of them is 0."""
    data, dim, index, source = node.args[:4]

    def product(start: Any, factors: Any) -> Node:
        return emit(_ATEN.scatter_reduce.two, start, dim, index, factors, "prod", include_self=included)

    filled = emit(_ATEN.masked_fill.Scalar, data, emit(_ATEN.eq.Scalar, data, 0), 1)
    others = emit(_ATEN.div.Tensor, product(filled, source), filled)
    of_data = emit(_ATEN.mul.Tensor, cotangent, others)
    if not included:
        of_data = emit(_ATEN.scatter.value, of_data, dim, index, 0)
    is_zero = emit(_ATEN.eq.Scalar, source, 0)
    zero = emit(_ATEN._to_copy.default, is_zero, dtype=value_of(data).dtype)
    none = emit(_ATEN.zeros_like.default, data)
    zeros = emit(_ATEN.gather.default, emit(_ATEN.scatter_add.default, none, dim, index, zero), dim, index)
    single = emit(_ATEN.logical_and.default, is_zero, emit(_ATEN.eq.Scalar, zeros, 1))
    without = product(data, emit(_ATEN.masked_fill.Scalar, source, single, 1))
    of_single = emit(_ATEN.gather.default, emit(_ATEN.mul.Tensor, cotangent, without), dim, index)
    of_others = emit(_ATEN.gather.default, emit(_ATEN.mul.Tensor, cotangent, result), dim, index)
    divisor = emit(_ATEN.masked_fill.Scalar, source, is_zero, 1)
    return of_data, emit(_ATEN.where.self, single, of_single, emit(_ATEN.div.Tensor, of_others, divisor))


_FORMULAS: dict[Any, Callable[..., tuple[Node, Node]]] = {
    "amax": _extreme,
    "amin": _extreme,
    "prod": _product,
}
