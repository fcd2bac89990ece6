"""Parts of a dimension of symbolic size: `split`, `chunk` and `split_with_sizes` as one slice for each part,
`unbind` as one `select`.

Mutates the program that it is given. ONNX's Split wants the sizes of its parts as numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from daceml.frontend.onnx_export.functionalize import rename_outputs

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_SPLITS = frozenset({"split", "split_with_sizes", "chunk", "unbind"})
_END = 2**63 - 1


def parts_as_slices(program: ExportedProgram) -> None:
    """Replace each split into parts of a dimension that has a symbolic size, or whose parts have."""
    for node in list(program.graph.nodes):
        if not isinstance(node.target, OpOverload) or node.target.overloadpacket.__name__ not in _SPLITS:
            continue
        parts = node.meta["val"]
        unbound = node.target.overloadpacket.__name__ == "unbind"
        place = 1 if unbound else 2
        dim = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
        sizes = [t.shape[dim] for t in (node.args[0].meta["val"], *(() if unbound else parts))]
        if any(isinstance(size, torch.SymInt) for size in sizes):
            _select(node, dim) if unbound else _slice(node, dim, parts)
    rename_outputs(program)


def _select(node: Node, dim: int) -> None:
    """There are as many parts as there were in the trace, which holds for this size alone."""
    graph = node.graph
    for user in list(node.users):
        with graph.inserting_before(user):
            part = graph.call_function(torch.ops.aten.select.int, (node.args[0], dim, user.args[1]))
        part.meta = dict(user.meta)
        user.replace_all_uses_with(part)
        graph.erase_node(user)
    graph.erase_node(node)


def _slice(node: Node, dim: int, parts: Sequence[torch.Tensor]) -> None:
    graph, whole = node.graph, node.args[0]
    with graph.inserting_before(node):
        bounds = _bounds(node, dim, len(parts))
    for user in list(node.users):
        number: Any = user.args[1]
        with graph.inserting_before(user):
            part = graph.call_function(
                torch.ops.aten.slice.Tensor, (whole, dim, bounds[number], bounds[number + 1])
            )
        part.meta = dict(user.meta)
        user.replace_all_uses_with(part)
        graph.erase_node(user)
    graph.erase_node(node)


def _bounds(node: Node, dim: int, count: int) -> list[Any]:
    """Where each part begins, and the end."""
    name = node.target.overloadpacket.__name__  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    whole: Any = node.args[0]
    given: Any = node.args[1]
    if name == "split_with_sizes":
        starts: list[Any] = [0]
        for size in given[:-1]:
            starts.append(_computed(operator.add, starts[-1], size))
        return [*starts, _END]
    if name == "chunk":
        extent = node.graph.call_function(torch.ops.aten.sym_size.int, (whole, dim))
        extent.meta = dict(node.meta, val=whole.meta["val"].shape[dim])
        given = _computed(operator.floordiv, _computed(operator.add, extent, given - 1), given)
    return [*(_computed(operator.mul, given, i) if i else 0 for i in range(count)), _END]


def _computed(function: Any, first: Any, second: Any) -> Any:
    """A number, or a node that computes it."""
    nodes = [operand for operand in (first, second) if hasattr(operand, "meta")]
    value = function(*(o.meta["val"] if hasattr(o, "meta") else o for o in (first, second)))
    if not nodes:
        return value
    made = nodes[0].graph.call_function(function, (first, second))
    made.meta = dict(nodes[0].meta, val=value)
    return made
