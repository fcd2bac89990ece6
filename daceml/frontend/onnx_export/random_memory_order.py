"""Random numbers in the order of memory.

torch draws numbers for a tensor in the order in which its elements lie in memory, which for a transposed or
channels-last tensor is not that of its indices. Programs keep everything in row-major order, so they draw for
the tensor as it lies in memory, and bring the result into the order of the indices. Mutates the program.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from daceml.frontend.capture.eager_strides import DRAWS

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def draw_in_memory_order(program: ExportedProgram) -> None:
    """Permute what is drawn for, and each result back."""
    permute = torch.ops.aten.permute.default
    for node in list(program.graph.nodes):
        if node.op != "call_function" or str(node.target) not in DRAWS:
            continue
        given = node.args[0]
        order = _order(given.meta["val"])
        if order == list(range(len(order))):
            continue
        with program.graph.inserting_before(node):
            lying = program.graph.call_function(permute, (given, order))
        lying.meta = dict(node.meta, val=given.meta["val"].permute(order))
        node.update_arg(0, lying)
        results = [node]
        if isinstance(node.meta["val"], tuple | list):
            # the mask beside the result
            node.meta = dict(node.meta, val=tuple(value.permute(order) for value in node.meta["val"]))
            results = [user for user in node.users if user.target is operator.getitem]
        for result in results:
            value = result.meta["val"]
            result.meta = dict(result.meta, val=value.permute(order))
            with program.graph.inserting_after(result):
                back = program.graph.call_function(
                    permute, (result, sorted(range(len(order)), key=order.__getitem__))
                )
            back.meta = dict(result.meta, val=value)
            result.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)


def _order(value: torch.Tensor) -> list[int]:
    """The dimensions of a tensor of the same layout, outermost first; those of one element stay in place."""
    strides = torch.empty_like(value).stride()
    long = [d for d in range(value.dim()) if value.shape[d] != 1]
    moved = iter(sorted(long, key=lambda d: -strides[d]))
    return [next(moved) if d in long else d for d in range(value.dim())]
