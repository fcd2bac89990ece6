"""Whether a graph with symbolic sizes is, for some sizes, the graph that tracing with these sizes gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator

from daceml.frontend.capture.eager_strides import correct_strides, reads_memory_order

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Checks of sizes, which a trace with fixed sizes has behind it
_CHECKS = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_tensor_metadata")


def same_graph(symbolic: ExportedProgram, fixed: ExportedProgram, values: Mapping[Any, int]) -> bool:
    """Whether both compute the same, operator for operator, once every symbol has its value."""
    if symbolic.call_spec.out_spec != fixed.call_spec.out_spec:
        return False
    correct_strides(fixed)
    try:
        return _canonical(symbolic.graph_module, values) == _canonical(fixed.graph_module, {})
    except _UnboundError:
        return False


class _UnboundError(Exception):
    """A size depends on something that is no size of an input."""


def _canonical(module: fx.GraphModule, values: Mapping[Any, int]) -> list[Any]:
    """Every node in order, with numbers for sizes and positions for nodes."""
    known: dict[fx.Node, Any] = {}
    lines: list[Any] = []
    for node in module.graph.nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if name in _CHECKS:
            continue
        value = node.meta.get("val")
        symbol = isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat)
        if symbol or (node.op == "call_function" and isinstance(value, int | float)):
            known[node] = ("number", _number(value, values))
            continue
        if name == "slice" and _takes_everything(node):
            # traced for a symbolic size only: x[:, 1:] slices the first dimension, too
            known[node] = known[node.all_input_nodes[0]]
            continue
        if node.op == "get_attr" and isinstance(
            part := getattr(module, str(node.target), None), fx.GraphModule
        ):
            lines.append(_canonical(part, values))
        else:
            args, kwargs = _with_known((node.args, node.kwargs), known)
            target = node.target if node.op == "call_function" else node.op
            if isinstance(target, HigherOrderOperator):
                # sizes go into a graph inside as arguments of their own
                args = tuple(a for a in args if not (isinstance(a, _Known) and a.kind == "number"))
            order = _memory_order(node, values) if reads_memory_order(node) else None
            lines.append((target, _plain(args), _plain(kwargs), _geometry(value, values), order))
        known[node] = ("node", len(lines))
    return lines


class _Known:
    """What stands for a node in the arguments of another one."""

    def __init__(self, value: tuple[str, Any]) -> None:
        self.kind, self.value = value


def _takes_everything(node: fx.Node) -> bool:
    bounds: list[Any] = [None, None, 1]
    bounds[: len(node.args) - 2] = node.args[2:]
    start, end, step = bounds
    return bool((start is None or start == 0) and (end is None or end == 2**63 - 1) and step == 1)


def _with_known(value: Any, known: Mapping[fx.Node, Any]) -> Any:
    def mark(node: fx.Node) -> Any:
        return _Known(known[node])

    return fx.map_arg(value, mark)


def _plain(value: Any) -> Any:
    """Arguments in a form that compares: a symbolic size that has a value is that number."""
    if isinstance(value, _Known):
        return value.value if value.kind == "number" else (value.kind, value.value)
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return repr(value) if isinstance(value, float) else value


def _geometry(value: Any, values: Mapping[Any, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.dtype, [_number(n, values) for n in value.shape])
    if isinstance(value, list | tuple):
        return [_geometry(entry, values) for entry in value]
    return None


def _memory_order(node: fx.Node, values: Mapping[Any, int]) -> list[int]:
    """The dimensions of the operand of a node, outermost first, those of one element left out."""
    operand = torch.empty_like(node.all_input_nodes[0].meta["val"])
    strides = [_number(n, values) for n in operand.stride()]
    long = [d for d, n in enumerate(operand.shape) if _number(n, values) != 1]
    return sorted(long, key=lambda d: -strides[d])


def _number(number: Any, values: Mapping[Any, int]) -> Any:
    if not isinstance(number, torch.SymInt | torch.SymBool | torch.SymFloat):
        return number
    value = number.node.expr.xreplace(dict(values))
    if getattr(value, "free_symbols", None):
        raise _UnboundError
    return (
        bool(value)
        if isinstance(number, torch.SymBool)
        else int(value)
        if value == int(value)
        else float(value)
    )
