"""ONNX nodes in any DaCe program: DaCe expands them to the loops of their native implementations."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import dace
import numpy as np
from dace import data, dtypes, subsets
from dace.library import expansion
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.sdfg.utils import node_path_graph
from dace.transformation.transformation import ExpandTransformation, PatternNode

from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network
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
    inner = dace.SDFG(f"{node.op_type}_{state.node_id(node)}")
    inside = inner.add_state("network", is_start_block=True)
    clone = copy.deepcopy(node)
    clone.implementation = None
    inside.add_node(clone)
    for edge in state.in_edges(node):
        if edge.dst_conn:
            whole = _add_operand(inner, edge.dst_conn, sdfg, edge.data)
            inside.add_edge(add_access(inside, edge.dst_conn), None, clone, edge.dst_conn, whole)
    for edge in state.out_edges(node):
        if edge.src_conn:
            whole = _add_operand(inner, edge.src_conn, sdfg, edge.data)
            inside.add_edge(clone, edge.src_conn, add_access(inside, edge.src_conn), None, whole)
    network = Network(
        sdfg=inner,
        inputs=tuple(e.dst_conn for e in state.in_edges(node) if e.dst_conn),
        outputs=tuple(e.src_conn for e in state.out_edges(node) if e.src_conn),
        constants=_constants(node, state, sdfg),
        scalars=frozenset(name for name, desc in inner.arrays.items() if isinstance(desc, data.Scalar)),
    )
    lower(network, allowed=("alias", "native"))
    declare_scalar_functions(inside.nodes())
    return inner


def _add_operand(inner: dace.SDFG, name: str, sdfg: dace.SDFG, memlet: Memlet) -> Memlet:
    """Declare what a connector brings; returns the memlet of all of it."""
    outer: Any = sdfg.arrays[memlet.data]
    desc = copy.deepcopy(outer) if isinstance(outer, data.Scalar) else None
    if desc is None:
        subset: Any = memlet.subset
        shape: Any = outer.shape if subset is None else subset.size()
        desc = data.Array(outer.dtype, shape, strides=outer.strides)
    desc.transient = False
    desc.storage = dtypes.StorageType.Default
    desc.lifetime = dtypes.AllocationLifetime.Scope
    inner.add_datadesc(name, desc)
    free: Any = desc.free_symbols
    for symbol in free:
        if symbol.name not in inner.symbols:
            inner.add_symbol(symbol.name, symbol.dtype)
    return Memlet(data=name, subset=subsets.Range.from_array(desc))


def _constants(node: ONNXNode, state: dace.SDFGState, sdfg: dace.SDFG) -> dict[str, np.ndarray]:
    """Connector -> its value, where the SDFG has that as a constant."""
    known: dict[str, Any] = sdfg.constants_prop
    return {
        edge.dst_conn: np.asarray(known[edge.data.data][1])
        for edge in state.in_edges(node)
        if edge.dst_conn and edge.data.data in known
    }


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
