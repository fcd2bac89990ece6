"""Traces that are no program: errors of eager that a trace lets pass, lost tensors, another device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from daceml.errors import ExportError
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.sizes.hints import hint

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def refuse_errors(program: ExportedProgram) -> None:
    """Leave it to eager, which raises an error or gives another type, where torch's trace lets a call pass.

    Raises:
        RunsEagerlyError: there is such a call.
    """
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", program.graph).nodes:
            # operators in place have the rules of the others
            rule = _LET_PASS.get(str(node.target).replace("_.", "."))
            unlike = rule is not None and rule(*torch.fx.map_arg(node.args, _value))
            if unlike or _refuses_nothing(node) or _reads_bookkeeping(node):
                raise RunsEagerlyError(
                    f"an eager call of {node.target} does something else than its trace{_operands(node)}"
                )


def _operands(node: torch.fx.Node) -> str:
    tensors = [value for value in map(_value, node.all_input_nodes) if isinstance(value, torch.Tensor)]
    told = ", ".join(f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}" for t in tensors)
    return f"; its operands are {told}" if told else ""


def _reads_bookkeeping(node: torch.fx.Node) -> bool:
    """Whether forward reads what an embedding bag keeps for its gradient, whose sizes no trace knows."""
    if str(node.target) not in ("aten.embedding_bag.default", "aten.embedding_bag.padding_idx"):
        return False
    return any(user.args[1] != 0 and user.users for user in node.users)


def refuse_wrapped(program: ExportedProgram) -> None:
    """Refuse a trace that took a tensor of a functional transform for a constant.

    Raises:
        ExportError: torch.func.grad, vjp or jvp of tensors from outside of the function, such as parameters.
    """
    transforms: Any = torch._C._functorch  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    tensors = (t for t in program.constants.values() if isinstance(t, torch.Tensor))
    if any(map(transforms.is_functorch_wrapped_tensor, tensors)):
        raise ExportError(
            "forward transforms a function, and its trace takes tensors of the transform for constants",
            why="torch.func.grad, vjp and jvp wrap their operands, and torch's exporter does not see inside",
            fix="compute the derivative outside of forward; or leave fullgraph=True out",
        )


def _value(node: torch.fx.Node) -> Any:
    return node.meta.get("val")


def _refuses_nothing(node: torch.fx.Node) -> bool:
    """Whether an operator on tensors without elements, or with such a result, raises an error.

    The call is made: there is nothing to compute. Errors that depend on values are eager's to raise or not.
    """
    operator = node.target
    if not isinstance(operator, OpOverload) or operator.namespace != "aten":
        return False
    tensors = [_value(node), *map(_value, node.all_input_nodes)]
    if torch.Tag.nondeterministic_seeded in operator.tags or not any(map(_is_empty, tensors)):
        return False
    try:
        operator(*torch.fx.map_arg(node.args, _example), **torch.fx.map_arg(node.kwargs, _example))
    except Exception:
        return True
    return False


def _is_empty(value: Any) -> bool:
    sizes: tuple[Any, ...] = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
    return any(size == 0 for size in sizes if isinstance(size, int))


def _example(node: torch.fx.Node) -> Any:
    """A value for a node in memory of its own; symbolic sizes are those of the traced call."""
    value = _value(node)
    if not isinstance(value, torch.Tensor):
        return hint(value)
    sizes, strides = (tuple(map(hint, numbers)) for numbers in (value.shape, value.stride()))
    return torch.empty_strided(sizes, strides, dtype=value.dtype).zero_()


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


def _is_unlike_places(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, *_: Any
) -> bool:
    """Whether values cannot be expanded to the places that they are written to; masks select at the call."""
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return False
    wanted = torch.ops.aten.index.Tensor(x, indices).shape
    if values.dim() > len(wanted):
        return True
    return any(n not in (1, m) for n, m in zip(reversed(values.shape), reversed(wanted), strict=False))


def _is_no_reshape(_: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the strides of a view are not row-major: a trace takes it for a reshape."""
    expected = 1
    for extent, step in zip(reversed(size), reversed(stride), strict=True):
        if extent != 1 and step != expected:
            return True
        expected *= extent
    return False


def _is_no_target(x: torch.Tensor, target: torch.Tensor, *_: Any) -> bool:
    """Whether a loss refuses such numbers of classes; probabilities have the shape of its input."""
    if target.is_floating_point() and target.shape == x.shape:
        return False
    allowed = (torch.int64, torch.uint8) if x.dim() <= 2 else (torch.int64,)
    return target.dtype not in allowed or target.shape[1:] != x.shape[2:]


_LET_PASS: dict[str, Callable[..., bool]] = {
    "aten._reshape_alias.default": _is_no_reshape,
    "aten.threshold_backward.default": lambda gradient, x, *_: gradient.dtype != x.dtype,
    "aten.ldexp.Tensor": lambda x, other: other.dtype == torch.bool,
    "aten.huber_loss.default": lambda x, target, *_: x.dtype != target.dtype,
    "aten.logcumsumexp.default": lambda x, *_: not (x.is_floating_point() or x.is_complex()),
    "aten.slice_scatter.default": _is_unlike(torch.ops.aten.slice.Tensor),
    "aten.index_add.default": _is_unlike_rows,
    "aten.select_scatter.default": _is_unlike(torch.ops.aten.select.int),
    "aten.index_put.default": _is_unlike_places,
    "aten.cross_entropy_loss.default": _is_no_target,
    "aten.nll_loss.default": _is_no_target,
    "aten.nll_loss2d.default": _is_no_target,
    "aten.nll_loss_nd.default": _is_no_target,
    "aten.multi_margin_loss.default": lambda x, target, *_: target.dtype != torch.int64,
    "aten.multilabel_margin_loss.default": lambda x, target, *_: target.dtype != torch.int64,
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
