"""The memory of the tensors that forward returns: which share one, and programs that return all of it.

A program returns values in row-major order, each in memory of its own. Where several results are parts of one
memory that forward has made, such as those of `x.sin().chunk(2)`, it returns the whole in the place of the
first one, and a call takes its parts. In a forward that is cut, eager code may depend on the order of memory
(`rand_like`, `as_strided`, `is_contiguous`): a result with permuted dimensions is part of such a whole, too.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy
import torch
from torch.export.graph_signature import OutputKind, TensorArgument

from daceml.frontend.capture.gradients.gradient_stops import storage
from daceml.frontend.onnx_export.memory_views import expression, memory_order

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from daceml.frontend.capture.capture import Capture

_COMPARED = 1 << 20
"""Elements of tensors whose places in memory are compared one by one."""


def with_whole_memory(captured: Capture, *, eager_strides: bool = False) -> tuple[Capture, dict[int, Node]]:
    """Let the program return the memory of results that share it. Mutates the program.

    Args:
        eager_strides: also that of results whose dimensions are permuted in memory.
    Returns:
        the capture, which knows of the whole whether it requires a gradient, and the nodes that forward
        returned, by their places among the tensors of the result.
    """
    program = captured.program
    returned = returned_nodes(program)
    if len(captured.moving) != len(returned):
        return captured, {}
    symbols, own = size_symbols(program).keys(), {storage(node) for node in _placeholders(program)}
    moving, replaced = list(captured.moving), dict[int, "Node"]()
    for memory in dict.fromkeys(map(storage, returned)):
        places = [place for place, node in enumerate(returned) if storage(node) == memory]
        parts = list(dict.fromkeys(returned[place] for place in places))
        if memory is None or memory in own or any(is_whole(p.meta["val"]) for p in parts):
            continue
        if len(places) == 1 and not (eager_strides and _fills_memory(parts[0].meta["val"])):
            continue
        whole = _whole(program, memory)
        if whole is None or not all(_is_part(p.meta["val"], whole.meta["val"], symbols) for p in parts):
            continue
        first = places[0]
        replaced[first] = returned[first]
        moving[first] = any(moving[place] for place in places)
        _return_instead(program, first, whole)
    return replace(captured, moving=tuple(moving)), replaced


def returned_nodes(program: ExportedProgram) -> list[Node]:
    """The nodes of the tensors that forward returns, in order."""
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes[name] for _, name in _tensor_outputs(program)]


def size_symbols(program: ExportedProgram) -> dict[Any, tuple[int, int]]:
    """Symbol -> (input, dimension) that it is the size of; a dimension d < 0 means the stride of ~d."""
    found: dict[Any, tuple[int, int]] = {}
    for position, node in enumerate(user_tensors(program)):
        value = node.meta["val"]
        for axis, number in (*enumerate(value.shape), *((~axis, n) for axis, n in enumerate(value.stride()))):
            known = expression(number)
            if getattr(known, "is_Symbol", False):
                found.setdefault(known, (position, axis))
    return found


def user_tensors(program: ExportedProgram) -> list[Node]:
    """The inputs of a program that are tensors of the caller's, in order."""
    signature = program.graph_signature
    own = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    lifted = signature.inputs_to_lifted_tensor_constants
    return [
        node
        for node in _placeholders(program)
        if isinstance(node.meta.get("val"), torch.Tensor) and node.name not in own and node.name not in lifted
    ]


def _placeholders(program: ExportedProgram) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "placeholder"]


def _tensor_outputs(program: ExportedProgram) -> list[tuple[int, str]]:
    """Where the tensors of the result stand among the outputs of a program, and their names."""
    return [
        (place, spec.arg.name)
        for place, spec in enumerate(program.graph_signature.output_specs)
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]


def _whole(program: ExportedProgram, memory: int) -> Node | None:
    """A node that holds all of a memory in row-major order; None where no value does."""
    nodes = program.graph.nodes
    first = next((node for node in nodes if node.op == "call_function" and storage(node) == memory), None)
    order = None if first is None else memory_order(first.meta["val"])
    if first is None or order is None:
        return None
    value, node = first.meta["val"], first
    if order != sorted(order):
        value = value.permute(order)
        with program.graph.inserting_after(first):
            node = program.graph.call_function(torch.ops.aten.permute.default, (first, order))
        node.meta = dict(first.meta, val=value)
    return node if is_whole(value) else None


def _is_part(value: torch.Tensor, whole: torch.Tensor, symbols: Container[Any]) -> bool:
    numbers = map(expression, (*value.shape, *value.stride(), value.storage_offset()))
    used = {symbol for n in numbers if not isinstance(n, int) for symbol in n.free_symbols}
    return value.dtype == whole.dtype and all(symbol in symbols for symbol in used)


def _return_instead(program: ExportedProgram, place: int, node: Node) -> None:
    index, _ = _tensor_outputs(program)[place]
    output = program.graph.output_node()
    returned: Any = list(output.args[0])  # pyright: ignore[reportArgumentType]
    returned[index] = node
    output.args = (tuple(returned),)
    program.graph_signature.output_specs[index].arg = TensorArgument(name=node.name)


def may_overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one storage share an element; True where sizes are symbolic or large."""
    numbers = (*a.shape, *a.stride(), a.storage_offset(), *b.shape, *b.stride(), b.storage_offset())
    if a.dtype != b.dtype or not all(isinstance(n, int) for n in numbers):
        return True
    if a.numel() == 0 or b.numel() == 0:
        return False
    first, second = _span(a), _span(b)
    if first.stop <= second.start or second.stop <= first.start:
        return False
    if max(a.numel(), b.numel()) > _COMPARED:
        return True
    return bool(np.intersect1d(_places(a), _places(b)).size)


def _span(value: torch.Tensor) -> range:
    start = value.storage_offset()
    last = sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return range(start, start + last + 1)


def _places(value: torch.Tensor) -> np.ndarray:
    """The places in its storage that a tensor's elements have."""
    places = np.full((1,), value.storage_offset())
    for n, step in zip(value.shape, value.stride(), strict=True):
        places = (places[:, None] + np.arange(n) * step).reshape(-1)
    return places


def _fills_memory(value: torch.Tensor) -> bool:
    """Whether a tensor is all of its memory, in some order of its dimensions."""
    order = memory_order(value)
    return order is not None and is_whole(value.permute(order))


def is_whole(value: torch.Tensor) -> bool:
    """Whether a tensor is laid out as the program returns it, and is all of its memory."""
    if not value.is_contiguous() or expression(value.storage_offset()) != 0:
        return False
    elements = expression(value.numel())
    rest = elements * value.element_size() - expression(value.untyped_storage().nbytes())
    return bool(rest == 0 or (not isinstance(rest, int) and sympy.expand(rest) == 0))
