"""Which results require a gradient in eager PyTorch, whatever a program computes them from.

A result that moves with nothing (`angle`, `x.clone().zero_()`) requires a gradient, which is zero; statistics
of a normalisation require none, though they are computed from what does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch._ops import HigherOrderOperator
from torch.export.graph_signature import OutputKind, TensorArgument

from daceml.frontend.capture.gradients.gradient_stops import operands_read, stop_gradient
from daceml.runtime.records.gradients import Wanted

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node


def with_result_gradients(program: ExportedProgram, wanted: Wanted, moving: Sequence[bool]) -> Wanted:
    """What is wanted, with the tensors that each result has its gradient from.

    Args:
        program: with its gradient stops marked.
        moving: of each tensor among the results, whether it requires a gradient.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    returned = [
        nodes[spec.arg.name]
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]
    if len(returned) != len(moving):
        return wanted
    places = _places(program, wanted)
    reaching = tuple(
        _reaching(node, places) if moves else None for node, moves in zip(returned, moving, strict=True)
    )
    certain = tuple(
        _reaching(node, places, regions=False) if moves else ()
        for node, moves in zip(returned, moving, strict=True)
    )
    return replace(wanted, reaching=reaching, certain=certain)


def _places(program: ExportedProgram, wanted: Wanted) -> dict[Node, int]:
    """Where each wanted tensor of the graph is among all wanted ones: inputs first, then the module's."""
    signature = program.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    state = {key: place for place, key in enumerate(wanted.state, sum(wanted.inputs))}
    inputs, count = iter(wanted.inputs), 0
    found: dict[Node, int] = {}
    for node in program.graph.nodes:
        if node.op != "placeholder" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if node.name in keys:
            if keys[node.name] in state:
                found[node] = state[keys[node.name]]
        elif node.name not in signature.inputs_to_lifted_tensor_constants and next(inputs, False):
            found[node] = count
            count += 1
    return found


def _reaching(result: Node, places: dict[Node, int], *, regions: bool = True) -> tuple[int, ...]:
    """Places of the tensors that a result has a way of gradients to.

    Args:
        regions: also through parts that are graphs of their own, as under autocast, where gradients may end.
    """
    waiting, seen, found = [result], {result}, set[int]()
    while waiting:
        node = waiting.pop()
        if node in places:
            found.add(places[node])
        value = node.meta.get("val")
        if node.target is stop_gradient() or (isinstance(value, torch.Tensor) and not _is_float(value)):
            continue
        if not regions and isinstance(node.target, HigherOrderOperator):
            continue
        new = [operand for operand in operands_read(node) if operand not in seen]
        seen.update(new)
        waiting += new
    return tuple(sorted(found))


def _is_float(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
