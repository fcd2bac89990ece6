"""Traces that are no program: errors of eager that a trace lets pass, and results on another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from daceml.frontend.capture.exportable import RunsEagerlyError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


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
