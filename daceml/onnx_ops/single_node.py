"""One node of an SDFG as a network of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dace
from dace import data, dtypes, subsets
from dace.memlet import Memlet

from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network

if TYPE_CHECKING:
    import numpy as np

    from daceml.onnx_ops.schema.node import ONNXNode


def single_node_network(
    node: ONNXNode, state: dace.SDFGState, sdfg: dace.SDFG, constants: Mapping[str, np.ndarray]
) -> Network:
    """The network of one node without an implementation, whose arrays are named like the node's connectors.

    A DaCe scalar is a tensor of rank 0, an array of shape (1,) a tensor of rank 1.

    Args:
        node: in `state`, connected to access nodes or scopes. Not changed.
        constants: array of the SDFG -> its value; axes and shapes are known where they are written as such.
    """
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
    given = {edge.dst_conn: str(edge.data.data) for edge in state.in_edges(node) if edge.dst_conn}
    return Network(
        sdfg=inner,
        inputs=tuple(given),
        outputs=tuple(e.src_conn for e in state.out_edges(node) if e.src_conn),
        constants={name: constants[array] for name, array in given.items() if array in constants},
        scalars=frozenset(name for name, desc in inner.arrays.items() if isinstance(desc, data.Scalar)),
    )


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
