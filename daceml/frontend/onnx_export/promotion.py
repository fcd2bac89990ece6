"""Explicit casts where PyTorch promotes element types and ONNX does not.

Mutates the program that it is given. ONNX operators want operands of one element type; the traced result
says which type PyTorch computes in, so a cast of the other operands is all there is to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TO_RESULT = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "add",
        "addbmm",
        "addcdiv",
        "addcmul",
        "addmm",
        "addmv",
        "angle",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "baddbmm",
        "bmm",
        "cat",
        "celu",
        "ceil",
        "clamp",
        "clamp_max",
        "clamp_min",
        "concat",
        "copysign",
        "cos",
        "cosh",
        "cumsum",
        "div",
        "elu",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "floor_divide",
        "fmax",
        "fmin",
        "fmod",
        "gelu",
        "hypot",
        "leaky_relu",
        "lerp",
        "log",
        "log10",
        "log1p",
        "log2",
        "logaddexp",
        "logaddexp2",
        "logsumexp",
        "maximum",
        "minimum",
        "mish",
        "mul",
        "neg",
        "outer",
        "pow",
        "reciprocal",
        "remainder",
        "rsqrt",
        "rsub",
        "sigmoid",
        "sign",
        "silu",
        "sin",
        "sinc",
        "sinh",
        "softplus",
        "sqrt",
        "square",
        "stack",
        "sub",
        "sum",
        "mean",
        "prod",
        "tan",
        "tanh",
        "true_divide",
        "xlogy",
        "mse_loss",
        "l1_loss",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "__and__",
        "__or__",
        "__xor__",
    ]
)
"""Operators that compute in the element type of their result."""

_SPELLINGS = {
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "ger": "outer",
    "special_erf": "erf",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_sinc": "sinc",
}
"""Other names of operators, which torch's own translations take for what they are not: of one type."""

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
"""Operators that compute in the common type of their operands."""

SELECTED = {"where": (1, 2)}
"""Operators of which only some operands are promoted."""


def promote(program: ExportedProgram) -> None:
    """Insert the casts that PyTorch makes by itself."""
    for node in list(program.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        _spell(node)
        _say_type(node)
        namespace, name = node.target.namespace, node.target.overloadpacket.__name__
        if namespace != "aten" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if name in TO_RESULT:
            wanted, positions = node.meta["val"].dtype, range(len(node.args))
        elif name in SELECTED:
            wanted, positions = node.meta["val"].dtype, SELECTED[name]
        elif name in COMPARISONS:
            wanted, positions = _common(node.args[:2]), (0, 1)
        else:
            continue
        for position in positions:
            if position < len(node.args):
                node.update_arg(position, _cast(program.graph, node, node.args[position], wanted))


def _spell(node: torch.fx.Node) -> None:
    """Give an operator its usual name."""
    target: Any = node.target
    if target.namespace == "aten" and (name := _SPELLINGS.get(target.overloadpacket.__name__)) is not None:
        packet = getattr(torch.ops.aten, name)
        node.target = getattr(packet, str(target).rpartition(".")[2], target)


def _say_type(node: torch.fx.Node) -> None:
    """Give an operator that makes a tensor of nothing its type, which may be torch's default type of then."""
    value = node.meta.get("val")
    names = [argument.name for argument in node.target._schema.arguments]  # pyright: ignore
    makes = not any(isinstance(operand.meta.get("val"), torch.Tensor) for operand in node.all_input_nodes)
    if (
        makes
        and "dtype" in names
        and isinstance(value, torch.Tensor)
        and len(node.args) <= names.index("dtype")
    ):
        node.kwargs = {**node.kwargs, "dtype": node.kwargs.get("dtype") or value.dtype}


def _common(operands: Any) -> torch.dtype | None:
    values = [operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand for operand in operands]
    if not any(isinstance(value, torch.Tensor) for value in values):
        return None
    return torch.result_type(*values)


def _cast(graph: torch.fx.Graph, user: torch.fx.Node, argument: Any, wanted: torch.dtype | None) -> Any:
    """The argument in the wanted type: tensors get a cast node, numbers and sizes stay."""
    if isinstance(argument, list | tuple):
        return type(argument)(_cast(graph, user, part, wanted) for part in argument)
    if not isinstance(argument, torch.fx.Node):
        return argument
    value = argument.meta.get("val")
    if (
        not isinstance(value, torch.Tensor)
        or wanted is None
        or value.dtype == wanted
        or value.dtype.is_complex
    ):
        return argument
    with graph.inserting_before(user):
        cast = graph.call_function(torch.ops.aten._to_copy.default, (argument,), {"dtype": wanted})
    cast.meta = dict(user.meta, val=value.to(wanted))
    return cast
