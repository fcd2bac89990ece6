"""Extremes with torch's gradients.

`x.max(dim)` and `x.min(dim)` give values and positions; among equal elements torch's gradient goes to the
one at the position, while that of `x.amax(dim)` is shared. Where gradients are wanted, an exported program
reads the values at the positions, which says so. The gradient of `x.max()` is shared, too, among all NaN
where there is one, while that of `x.amax()` is NaN then: `x.max()` has a separate formula. So has the
norm of infinite order, whose gradient at NaN is 0.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from daceml.frontend.capture.gradients.custom_gradients import cotangent_of, emitter, with_gradient

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_ATEN = torch.ops.aten
_ALONG = (_ATEN.max.dim, _ATEN.min.dim)
_OF_ALL = {_ATEN.max.default: _ATEN.amax.default, _ATEN.min.default: _ATEN.amin.default}


def read_chosen_extremes(program: ExportedProgram) -> None:
    """Let a program say which elements the gradients of extremes go to. Mutates the program."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in list(module.graph.nodes):
                if node.target in _ALONG:
                    _read_chosen(node)
                elif node.target in _OF_ALL:
                    _share(node)
                elif node.target is _ATEN.linalg_vector_norm.default and _is_infinite(node):
                    _share_of_norm(node)
            module.recompile()


def _share(node: Node) -> None:
    (operand,) = node.args
    assert isinstance(operand, torch.fx.Node)
    if not operand.meta["val"].is_floating_point():
        return
    emit = emitter(node)
    with node.graph.inserting_before(node):
        result = emit(_OF_ALL[node.target], operand)  # pyright: ignore[reportArgumentType]
        nan = [emit(_ATEN.isnan.default, x) for x in (operand, result)]
        both_nan = emit(_ATEN.logical_and.default, *nan)
        chosen = emit(_ATEN.logical_or.default, emit(_ATEN.eq.Tensor, operand, result), both_nan)
        share = emit(_ATEN.div.Tensor, emit(cotangent_of(), result), emit(_ATEN.sum.default, chosen))
        gradient = emit(_ATEN.where.ScalarOther, chosen, share, 0.0)
    # the node itself stays, since the program's signature names it
    node.target, node.args = with_gradient(), (result, [operand], [gradient])


def _is_infinite(norm: Node) -> bool:
    order = (*norm.args, 2)[1]
    return isinstance(order, int | float) and math.isinf(order)


def _share_of_norm(node: Node) -> None:
    arguments: tuple[Any, ...] = (*node.args, *(2, None, False, None)[len(node.args) - 1 :])
    operand, order, dim, keepdim, dtype = arguments
    dtype = node.kwargs.get("dtype", dtype)
    assert isinstance(operand, torch.fx.Node)
    held: torch.Tensor = operand.meta["val"]
    if not held.is_floating_point():
        return
    rank = max(held.dim(), 1)
    dims = sorted(d % rank for d in dim) if isinstance(dim, list | tuple) and dim else list(range(held.dim()))
    emit = emitter(node)
    with node.graph.inserting_before(node):
        if dtype is not None:
            operand = emit(_ATEN._to_copy.default, operand, dtype=dtype)
        result = emit(node.target, operand, order, dim, keepdim)
        norm, up = result, emit(cotangent_of(), result)
        for d in dims if not keepdim else ():
            norm, up = (emit(_ATEN.unsqueeze.default, x, d) for x in (norm, up))
        size = emit(_ATEN.abs.default, operand)
        chosen = emit(
            _ATEN.logical_or.default, emit(_ATEN.eq.Tensor, size, norm), emit(_ATEN.isnan.default, size)
        )
        share = emit(_ATEN.div.Tensor, up, emit(_ATEN.sum.dim_IntList, chosen, dims, True))
        share = emit(_ATEN.mul.Tensor, share, chosen)
        gradient = emit(_ATEN.mul.Tensor, emit(_ATEN.sgn.default, operand), share)
    node.target, node.args, node.kwargs = with_gradient(), (result, [operand], [gradient]), {}


def _read_chosen(node: Node) -> None:
    operand, dim, keepdim = (*node.args, False)[:3]
    assert isinstance(operand, torch.fx.Node)
    values = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
    held: torch.Tensor = operand.meta["val"]
    if not values or not held.is_floating_point() or held.dim() == 0:
        return
    aten, graph, positions = _ATEN, node.graph, node.meta["val"][1]
    with graph.inserting_after(node):
        index = graph.call_function(operator.getitem, (node, 1))
    index.meta = dict(node.meta, val=positions)
    for value in values:
        # the node itself stays, since the program's signature names it
        if keepdim:
            value.target, value.args = aten.gather.default, (operand, dim, index)
            continue
        with graph.inserting_before(value):
            wide = graph.call_function(aten.unsqueeze.default, (index, dim))
            chosen = graph.call_function(aten.gather.default, (operand, dim, wide))
        wide.meta = dict(node.meta, val=positions.unsqueeze(dim))
        chosen.meta = dict(node.meta, val=value.meta["val"].unsqueeze(dim))
        value.target, value.args = aten.squeeze.dim, (chosen, dim)
