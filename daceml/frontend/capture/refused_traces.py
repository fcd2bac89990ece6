"""Traces that are no program: draws that are not used, errors of eager, and results on another device.

A draw that is not used moves torch's generator, and no program makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.gradient_stops import changed_by, regions, storage

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

# Arguments with which an operator that may draw does not.
_IDLE = {"dropout_p": (0,), "dropout": (0,), "train": (False, None), "training": (False,)}


def refuse_unused_draws(program: ExportedProgram) -> None:
    """Leave it to eager where a draw is not used.

    Raises:
        RunsEagerlyError: an operator draws, and neither a result nor a changed tensor follows from it.
    """
    if (node := _unused_draw(program.graph_module)) is not None:
        raise RunsEagerlyError(f"forward draws random numbers that it does not use, by {node.target}")


def _unused_draw(module: GraphModule) -> Node | None:
    used: set[Node] = set()
    read = {storage(node) for node in module.graph.nodes if node.op == "placeholder"}
    for node in reversed(module.graph.nodes):
        inside = list(regions(module, node))
        changed = {storage(target) for target in changed_by(node)} - {None}
        if node.op != "call_function" or inside or changed & read or not used.isdisjoint(node.users):
            used.add(node)
            read |= {storage(operand) for operand in node.all_input_nodes}
            if (found := next(filter(None, map(_unused_draw, inside)), None)) is not None:
                return found
        elif _draws(node):
            return node
    return None


def _draws(node: Node) -> bool:
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.numel() == 0:
        return False
    formals = target._schema.arguments
    given = {formal.name: formal.default_value for formal in formals}
    given |= {formal.name: value for formal, value in zip(formals, node.args, strict=False)} | node.kwargs
    if "train" in given and given["p"] in (0, 1):
        return False
    return not any(name in given and given[name] in idle for name, idle in _IDLE.items())


def refuse_errors(program: ExportedProgram) -> None:
    """Leave it to eager, which raises an error or gives another type, where torch's trace lets a call pass.

    Raises:
        RunsEagerlyError: there is such a call.
    """
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", program.graph).nodes:
            rule = _LET_PASS.get(str(node.target))
            if rule is not None and rule(*(_value(operand) for operand in node.args)):
                raise RunsEagerlyError(f"torch's trace of {node.target} is not what an eager call does")


def _value(operand: Any) -> Any:
    return operand.meta.get("val") if isinstance(operand, torch.fx.Node) else operand


def _is_empty(x: Any, *_: Any) -> bool:
    return any(size == 0 for size in x.shape if isinstance(size, int))


def _is_empty_along(x: Any, dim: int, *_: Any) -> bool:
    return x.dim() > 0 and isinstance(x.shape[dim], int) and x.shape[dim] == 0


def _is_unlike(view: Callable[..., torch.Tensor]) -> Callable[..., bool]:
    """Whether a source is not as large as the part of a tensor that it replaces.

    Where sizes are symbolic, the comparison becomes a condition on them.
    """

    def rule(x: torch.Tensor, source: torch.Tensor, *place: Any) -> bool:
        try:
            return tuple(source.shape) != tuple(view(x, *place).shape)
        except IndexError:
            return True

    return rule


def _is_unlike_rows(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *_: Any) -> bool:
    if x.dim() < 2:
        return False
    others = [[n for d, n in enumerate(tensor.shape) if d != dim % x.dim()] for tensor in (x, source)]
    return source.dim() != x.dim() or others[0] != others[1]


_LET_PASS: dict[str, Callable[..., bool]] = {
    "aten.threshold_backward.default": lambda gradient, x, *_: gradient.dtype != x.dtype,
    "aten.ldexp.Tensor": lambda x, other: other.dtype == torch.bool,
    "aten.logcumsumexp.default": lambda x, *_: not (x.is_floating_point() or x.is_complex()),
    "aten.slice_scatter.default": _is_unlike(torch.ops.aten.slice.Tensor),
    "aten.index_add.default": _is_unlike_rows,
    "aten.select_scatter.default": _is_unlike(torch.ops.aten.select.int),
    **dict.fromkeys(("aten.max.default", "aten.min.default"), _is_empty),
    **dict.fromkeys(("aten.max.dim", "aten.min.dim"), _is_empty_along),
}
"""Operator -> whether an eager call with such arguments is unlike its trace."""


def refuse_moved(program: ExportedProgram, device: torch.device) -> None:
    """Leave it to eager where a result, or what a generator draws, belongs to another device.

    Positions and constants that are made elsewhere and moved are the same on any device.

    Raises:
        RunsEagerlyError: forward does one of the two.
    """
    results = {spec.arg.name for spec in program.graph_signature.output_specs if hasattr(spec.arg, "name")}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.device == device:
            continue
        drawn = node.op == "call_function" and torch.Tag.nondeterministic_seeded in node.target.tags
        if node.name in results or drawn:
            what = "draws numbers" if drawn else "gives a result"
            raise RunsEagerlyError(f"forward {what} on {value.device}, and the call is on {device}")
