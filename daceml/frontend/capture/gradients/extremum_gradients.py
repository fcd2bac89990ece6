"""Extremes along a dimension, with torch's gradient: it goes to the element that was chosen.

`x.max(dim)` and `x.min(dim)` give values and positions; among equal elements torch's gradient goes to the
one at the position, while that of `x.amax(dim)` is shared. Where gradients are wanted, an exported program
reads the values at the positions, which says so.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_ALONG = (torch.ops.aten.max.dim, torch.ops.aten.min.dim)


def read_chosen_extremes(program: ExportedProgram) -> None:
    """Read the values of extremes along a dimension at their positions. Mutates the program."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in list(module.graph.nodes):
                if node.target in _ALONG:
                    _read_chosen(node)
            module.recompile()


def _read_chosen(node: Node) -> None:
    operand, dim, keepdim = (*node.args, False)[:3]
    assert isinstance(operand, torch.fx.Node)
    values = [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]
    held: torch.Tensor = operand.meta["val"]
    if not values or not held.is_floating_point() or held.dim() == 0:
        return
    aten, graph, positions = torch.ops.aten, node.graph, node.meta["val"][1]
    with graph.inserting_after(node):
        index = graph.call_function(operator.getitem, (node, 1))
    index.meta = dict(node.meta, val=positions)
    for value in values:
        # the node itself stays, since the program's signature names it
        if keepdim:
            value.target, value.args = aten.gather.default, (operand, dim, index)
            continue
        with graph.inserting_before(value):
            wide = graph.call_function(aten.unsqueeze.default, (index, dim))
            chosen = graph.call_function(aten.gather.default, (operand, dim, wide))
        wide.meta = dict(node.meta, val=positions.unsqueeze(dim))
        chosen.meta = dict(node.meta, val=value.meta["val"].unsqueeze(dim))
        value.target, value.args = aten.squeeze.dim, (chosen, dim)
