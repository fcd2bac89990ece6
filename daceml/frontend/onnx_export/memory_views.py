"""`as_strided` on memory: strides and offsets count elements of a tensor's storage, whatever its shape.

Programs keep every value in row-major order, and views are values. So the operand is brought into the order
in which torch keeps it, as one row, and strides count in that. Mutates the program.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import ExportError
from daceml.frontend.capture.eager_strides import AS_STRIDED
from daceml.frontend.capture.gradients.gradient_stops import storage
from daceml.frontend.capture.provenance import source_of_node

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node


def views_of_memory(program: ExportedProgram) -> None:
    """Let each `as_strided` see one row of elements in the order of memory.

    Raises:
        ExportError: it says where in an input's storage it begins; it reads memory beyond the elements of its
            operand, which torch's gradient leaves out; or the operand has gaps.
    """
    for node in list(program.graph.nodes):
        if node.op == "call_function" and node.target is AS_STRIDED:
            _on_a_row(node)


def _on_a_row(node: Node) -> None:
    source: Any = node.args[0]
    size, stride = node.args[1], node.args[2]
    offset = node.args[3] if len(node.args) > 3 else node.kwargs.get("storage_offset")
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
    node.args, node.kwargs = (flat, size, stride, start), {}


def _is_of_an_input(node: Node) -> bool:
    inputs = (other for other in node.graph.nodes if other.op == "placeholder")
    return storage(node) in {storage(other) for other in inputs}


def memory_order(value: torch.Tensor) -> list[int] | None:
    """The dimensions of a tensor, outermost first, where its elements fill their memory; None where not."""
    sizes, strides = value.shape, value.stride()
    long = [d for d in range(value.dim()) if sizes[d] != 1]
    if any(isinstance(n, torch.SymInt) for n in (*sizes, *strides)):
        return list(range(value.dim())) if value.is_contiguous() else None
    order = sorted(long, key=lambda d: (-strides[d], -sizes[d]))
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= sizes[d]
    return [*(d for d in range(value.dim()) if d not in long), *order]


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
