"""What a graph does with the numbers that forward reads from tensors: compute with them, or more."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

READS = frozenset({torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default})
"""Operators that make a number of a tensor with one element."""

_VALUES = frozenset(
    {
        "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow",
        "eq", "ne", "lt", "le", "gt", "ge", "where", "masked_fill", "fill", "full", "full_like", "new_full",
        "scalar_tensor", "clamp", "clamp_min", "clamp_max",
    }
)  # fmt: skip
"""Operators that take numbers as values, so that a tensor without dimensions does as well."""

_ARITHMETIC = frozenset({operator.add, operator.sub, operator.mul, operator.truediv, operator.neg})
_NAMED = frozenset({"sym_float", "sym_max", "sym_min", "_sym_sqrt"})


def reads_a_number(node: Any) -> bool:
    """Whether a node makes a number of a tensor."""
    return getattr(node, "target", None) in READS


def depends_on_read(node: Any) -> bool:
    """Whether a node is a number that follows from one that forward reads from a tensor."""
    if not hasattr(node, "meta") or not isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat):
        return False
    return reads_a_number(node) or any(map(depends_on_read, node.all_input_nodes))


def only_values(program: ExportedProgram) -> bool:
    """Whether every number that forward reads from a tensor is only computed with, and configures nothing."""
    graph = program.graph_module
    if any(part is not graph and _reads(part) for part in graph.modules()):
        return False
    numbers: set[Node] = set()
    for node in graph.graph.nodes:
        if reads_a_number(node):
            if not isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat):
                return False
            numbers.add(node)
        elif numbers.intersection(node.all_input_nodes):
            if node.target in _ARITHMETIC or getattr(node.target, "__name__", "") in _NAMED:
                numbers.add(node)
            elif not _takes_as_values(node, numbers):
                return False
    return True


def _reads(module: Any) -> bool:
    return any(map(reads_a_number, getattr(getattr(module, "graph", None), "nodes", ())))


def _takes_as_values(node: Node, numbers: set[Node]) -> bool:
    overload = node.target
    if not isinstance(overload, OpOverload) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    schema = overload._schema  # pyright: ignore[reportPrivateUsage]
    name = schema.name.partition("::")[2].removesuffix("_")
    if overload.namespace != "aten" or name not in _VALUES:
        return False
    for position, formal in enumerate(schema.arguments):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(formal.name)
        if isinstance(given, list | tuple):
            if numbers.intersection(n for n in given if isinstance(n, torch.fx.Node)):  # a size
                return False
        elif isinstance(given, torch.fx.Node) and given in numbers:
            words = ("Tensor", "number", "Scalar")
            if formal.name == "alpha" or not any(word in str(formal.type) for word in words):
                return False
    return True
