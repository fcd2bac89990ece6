"""`as_strided` and `as_strided_scatter`: strides and offsets count elements of a storage, whatever its shape.

Programs keep every value in row-major order, and views are values. So the operand is brought into the order
in which torch keeps it, as one row, and strides count in that. Mutates the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch

from daceml.errors import ExportError
from daceml.frontend.capture.eager_strides import AS_STRIDED, AS_STRIDED_SCATTER
from daceml.frontend.capture.gradients.gradient_stops import storage
from daceml.frontend.capture.provenance import source_of_node

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node


def views_of_memory(program: ExportedProgram) -> None:
    """Let each of the two see one row of elements in the order of memory.

    Raises:
        ExportError: it says where in an input's storage it begins; it reads or writes memory beyond the
            elements of its operand, which torch's gradient leaves out; the operand has gaps; or it writes an
            element twice, or to sizes that are symbolic.
    """
    for node in list(program.graph.nodes):
        if node.op == "call_function" and node.target is AS_STRIDED:
            node.args, node.kwargs = (*_on_a_row(node, node.args[1:])[:-1],), {}
        elif node.op == "call_function" and node.target is AS_STRIDED_SCATTER:
            _scatter(node)


def _scatter(node: Node) -> None:
    """Write into the row, and give it the operand's shape again."""
    row, size, stride, start, order = _on_a_row(node, node.args[2:])
    source: Any = node.args[0]
    value = source.meta["val"]
    _refuse_writes(node, size, stride, value)
    arranged = [value.shape[d] for d in order]
    with node.graph.inserting_after(node):
        shaped = node.graph.call_function(torch.ops.aten.reshape.default, (node, arranged))
        shaped.meta = dict(node.meta, val=value.permute(order))
    with node.graph.inserting_after(shaped):
        inverse = [order.index(d) for d in range(len(order))]
        back = node.graph.call_function(torch.ops.aten.permute.default, (shaped, inverse))
        back.meta = dict(node.meta)
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not shaped)
    node.meta = dict(node.meta, val=row.meta["val"])
    node.args, node.kwargs = (row, node.args[1], size, stride, start), {}


def _refuse_writes(node: Node, size: Any, stride: Any, value: torch.Tensor) -> None:
    if not all(isinstance(n, int) for n in (*size, *stride, *value.shape)):
        why = "which elements those are depends on symbolic sizes"
    elif len(set(places := strided_places(size, stride))) < len(places):
        why = "it writes an element more than once"
    else:
        return
    raise ExportError(
        "a change of a part of memory that as_strided gives",
        where=source_of_node(node),
        why=why,
        fix="change the tensor by indexing, or leave this part of the model eager",
    )


def strided_places(size: Sequence[int], stride: Sequence[int], start: int = 0) -> list[int]:
    """The places in memory that a view has, row by row."""
    places = [start]
    for n, step in zip(size, stride, strict=True):
        places = [place + i * step for place in places for i in range(n)]
    return places


def _on_a_row(node: Node, geometry: Sequence[Any]) -> tuple[Node, Any, Any, Any, list[int]]:
    """The first operand as one row; size, stride and start in it; and the order of its dimensions."""
    source: Any = node.args[0]
    size, stride = geometry[:2]
    offset = geometry[2] if len(geometry) > 2 else node.kwargs.get("storage_offset")
    if offset is not None and _is_of_an_input(source):
        raise ExportError(
            "as_strided with an offset of its own reads an input",
            where=source_of_node(node),
            why="the offset counts from the start of the caller's storage, of which a program knows nothing",
            fix="leave storage_offset out, or call it on a copy: x.clone().as_strided(...)",
        )
    if offset is None:
        offset = source.meta["val"].storage_offset()
    if not _holds(source, size, stride, offset):
        raise ExportError(
            "as_strided reads elements that its operand does not have, or has in places that are apart",
            where=source_of_node(node),
            why="a program keeps the values of a tensor, and not the memory around them",
            fix="call as_strided on the whole tensor, or write it with views and indexing",
        )
    value = source.meta["val"]
    order = memory_order(value)
    assert order is not None, "it holds the elements in some order"
    start = offset - value.storage_offset()
    with node.graph.inserting_before(node):
        row = node.graph.call_function(torch.ops.aten.permute.default, (source, order))
        row.meta = dict(source.meta, val=value.permute(order))
        flat = node.graph.call_function(torch.ops.aten.reshape.default, (row, [-1]))
        flat.meta = dict(source.meta, val=torch.empty_like(value).new_empty([value.numel()]))
    return flat, size, stride, start, order


def _is_of_an_input(node: Node) -> bool:
    inputs = (other for other in node.graph.nodes if other.op == "placeholder")
    return storage(node) in {storage(other) for other in inputs}


def memory_order(value: torch.Tensor) -> list[int] | None:
    """The dimensions of a tensor, outermost first, where its elements fill their memory; None where not."""
    sizes, strides = value.shape, value.stride()
    long = [d for d in range(value.dim()) if sizes[d] != 1]
    if any(isinstance(n, torch.SymInt) for n in (*sizes, *strides)):
        return list(range(value.dim())) if value.is_contiguous() else _symbolic_order(value)
    order = sorted(long, key=lambda d: (-strides[d], -sizes[d]))
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= sizes[d]
    return [*(d for d in range(value.dim()) if d not in long), *order]


def _symbolic_order(value: torch.Tensor) -> list[int] | None:
    """The same of symbolic sizes: each stride is the product of the sizes further inside."""
    sizes: tuple[Any, ...] = tuple(value.shape)
    left = [d for d, size in enumerate(sizes) if not isinstance(size, int) or size != 1]
    order = [d for d in range(value.dim()) if d not in left]
    inside: list[int] = []
    expected: Any = sympy.Integer(1)
    while left:
        found = [d for d in left if sympy.expand(sympy.sympify(expression(value.stride(d))) - expected) == 0]
        if not found:
            return None
        inside.insert(0, found[-1])
        left.remove(found[-1])
        expected *= expression(value.shape[found[-1]])
    return order + inside


def expression(number: Any) -> Any:
    """A size as a number, or as an expression in symbols."""
    return number.node.expr if isinstance(number, torch.SymInt) else number


def _holds(node: Node, size: Any, stride: Any, offset: Any) -> bool:
    """Whether a tensor fills its memory, and everything that is read lies in it."""
    value = node.meta["val"]
    if memory_order(value) is None:
        return False
    numbers = (*size, *stride, offset, *value.shape, value.storage_offset())
    if not all(isinstance(n, int) for n in numbers):
        return True  # torch has compared symbolic sizes with the storage
    if math.prod(size) == 0:
        return True
    first = offset - value.storage_offset()
    last = first + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return first >= 0 and last < value.numel()
