"""The call behind a node that stays a node after lowering."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dace.sdfg import nodes

from daceml.errors import UnsupportedProgramError
from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.registry import implementations_of
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.all_reduce import AllReduce
from daceml.sdfg.external import (
    TORCH_OPERATOR,
    Argument,
    AtenCall,
    ExternalCall,
    FallbackCall,
    TensorView,
)
from daceml.sdfg.sizes import row_major, size
from daceml.sdfg.tensor_lists import TensorLists

if TYPE_CHECKING:
    from daceml.sdfg.network import Network


def external_call(node: nodes.LibraryNode, network: Network) -> ExternalCall:
    """The call that a lowered node stands for.

    Raises:
        UnsupportedProgramError: the node has not been lowered, or is no ONNX node.
        NoImplementationError: ONNX Runtime cannot run it.
    """
    if isinstance(node, AllReduce):
        return ExternalCall(action=node.half, label=node.label)
    if isinstance(node, TensorLists):
        return ExternalCall(action=node.call, label=node.label)
    if not isinstance(node, ONNXNode) or not node.implementation:
        raise UnsupportedProgramError(
            f"{type(node).__name__} has not been lowered",
            where=str(node),
            why="a program consists of maps and of external calls",
            fix="call daceml.onnx_ops.lowering.lower first",
        )
    chosen = next(i for i in implementations_of(node.op_type, node.domain) if i.title == node.implementation)
    action: AtenCall | FallbackCall
    action = (
        chosen.function(node, network)
        if chosen.kind == "onnxruntime"
        else bind(node, network).call(chosen.function)
    )
    if isinstance(action, AtenCall):
        action = _as_stored(action, network)
    how = action.function if isinstance(action, AtenCall) else "onnxruntime"
    return ExternalCall(
        action=action,
        label=node.op_type if how == TORCH_OPERATOR else f"{node.op_type} {how}",
        position=node.position,
        module_path=node.module_path,
        source=node.source,
    )


def draws_in_order(network: Network) -> list[nodes.LibraryNode]:
    """The nodes of a lowered network that take numbers from torch's generator, in the model's order."""
    state = network.state
    found = [
        (call.position, state.node_id(node), node)
        for node in state.nodes()
        if isinstance(node, ONNXNode) and node.implementation and node.implementation.startswith("aten:")
        for call in [external_call(node, network)]
        if isinstance(call.action, AtenCall) and call.action.draws
    ]
    return [node for _, _, node in sorted(found, key=lambda f: f[:2])]


def _as_stored(call: AtenCall, network: Network) -> AtenCall:
    """A call whose views have the strides of their arrays, where a pass has given them other ones.

    Raises:
        UnsupportedProgramError: the call sees such an array under another shape.
    """

    def stored(argument: Argument) -> Argument:
        if not isinstance(argument, TensorView):
            return argument
        desc = network.sdfg.arrays[argument.array]
        shape = tuple(size(s) for s in desc.shape)
        strides = tuple(size(s) for s in desc.strides)
        if strides == row_major(shape):
            return argument
        if argument.sizes != shape or argument.strides != row_major(shape):
            raise UnsupportedProgramError(
                f"{call.function} sees {argument.array} under another shape",
                why=f"the array has strides {strides}",
                fix="a pass over layouts must leave this array in row-major order",
            )
        return replace(argument, strides=strides)

    return replace(call, arguments=tuple(stored(a) for a in call.arguments))
