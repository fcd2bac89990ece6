"""ONNX nodes in any DaCe program: DaCe expands them to the loops of their native implementations."""

from __future__ import annotations

from typing import Any, ClassVar

import dace
import numpy as np
from dace.library import expansion
from dace.sdfg import nodes
from dace.sdfg.utils import node_path_graph
from dace.transformation.transformation import ExpandTransformation, PatternNode

from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.single_node import single_node_network
from daceml.sdfg.scalar_environment import declare_scalar_functions


def native_sdfg(node: ONNXNode, state: dace.SDFGState, sdfg: dace.SDFG) -> dace.SDFG:
    """What a node computes as an SDFG of its own, whose arrays are named like the node's connectors.

    A DaCe scalar is a tensor of rank 0, an array of shape (1,) a tensor of rank 1. Constants of the SDFG are
    constants of the operator: axes and shapes are known where they are written as such.

    Args:
        node: in `state`, connected to access nodes or scopes. Not changed.
    Raises:
        InvalidNodeError: the node breaks its operator's schema.
        NoImplementationError: no native implementation takes the node; the message has one line for each.
    """
    node.validate(sdfg, state)
    known: dict[str, Any] = sdfg.constants_prop
    network = single_node_network(
        node, state, sdfg, {array: np.asarray(value) for array, (_, value) in known.items()}
    )
    lower(network, allowed=("alias", "native"))
    declare_scalar_functions(network.state.nodes())
    return network.sdfg


def _disconnect_unread(node: ONNXNode, state: dace.SDFGState, inner: dace.SDFG) -> None:
    """Operands of which an operator needed the shape or the value only are not read any more."""
    (inside,) = inner.states()
    read = {n.data for n in inside.data_nodes()}
    for edge in list(state.in_edges(node)):
        if edge.dst_conn and edge.dst_conn not in read:
            state.remove_edge_and_connectors(edge)
            inner.remove_data(edge.dst_conn, validate=False)
            if state.degree(edge.src) == 0:
                state.remove_node(edge.src)


@expansion
class ExpandNative(ExpandTransformation):
    """An ONNX node as the loops of its native implementation."""

    environments: ClassVar[list[Any]] = []
    _match_node = PatternNode(ONNXNode)

    @classmethod
    def expressions(cls) -> list[Any]:
        return [node_path_graph(cls._match_node)]

    @staticmethod
    def expansion(node: ONNXNode, parent_state: dace.SDFGState, parent_sdfg: dace.SDFG) -> nodes.NestedSDFG:
        inner = native_sdfg(node, parent_state, parent_sdfg)
        _disconnect_unread(node, parent_state, inner)
        kind: Any = nodes.NestedSDFG  # typed for sets of connectors, which have no order
        return kind(
            node.label,
            inner,
            dict.fromkeys(node.in_connectors),
            dict.fromkeys(node.out_connectors),
            {str(name): str(name) for name in inner.free_symbols},
            debuginfo=node.debuginfo,
        )


ONNXNode.implementations["native"] = ExpandNative
ONNXNode.default_implementation = "native"
