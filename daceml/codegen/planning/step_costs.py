"""The kind of a step and its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce
from daceml.sdfg.costs import Cost
from daceml.sdfg.external import TORCH_OPERATOR, AtenCall, FallbackCall
from daceml.sdfg.network import IndexCheck, LimitCheck, WeightCheck
from daceml.sdfg.network_costs import arrays_bytes, call_cost, external_cost, list_cost
from daceml.sdfg.outline import KernelCall
from daceml.sdfg.tensor_lists import ListCall

if TYPE_CHECKING:
    from daceml.codegen.planning.steps import Step
    from daceml.sdfg.network import Network


def step_cost(step: Step, network: Network) -> tuple[str, Cost]:
    """Kind of a step, as in `StepRecord`, and its cost under the network's symbols."""
    action = step.action
    match action:
        case KernelCall():
            return "kernel", call_cost(action)
        case ListCall():
            return "kernel", list_cost(action)
        case AtenCall():
            kind = "torch" if action.function == TORCH_OPERATOR else "aten"
            return kind, external_cost(action, network)
        case FallbackCall():
            return "onnxruntime", external_cost(action, network)
        case BeginAllReduce():
            moved = 2 * arrays_bytes(action.gradients, network)
            return "collective", Cost(unique_bytes=moved, total_bytes=moved)
        case WaitAllReduce():
            moved = 2 * arrays_bytes(action.averaged, network)
            return "collective", Cost(unique_bytes=moved, total_bytes=moved)
        case IndexCheck() | LimitCheck():
            moved = arrays_bytes([action.array], network)
            return "check", Cost(unique_bytes=moved, total_bytes=moved)
        case WeightCheck():
            moved = arrays_bytes(action.arrays, network)
            return "check", Cost(unique_bytes=moved, total_bytes=moved)
        case _:
            moved = 2 * arrays_bytes([action.source], network)
            return "copy", Cost(unique_bytes=moved, total_bytes=moved)
