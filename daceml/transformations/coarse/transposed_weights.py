"""transpose_weights: small weights that do not change any more lie in the order in which products read them.

Gemm(A, W, C, transB=1)   ->   Gemm(A, W as [k, n], C)

A row of the result then runs along a row of the weight. On one thread addmm takes 0.5 to 0.8 of the time at
up to 32 rows, 0.8 to 0.9 at 128 and 0.9 to 1.0 at 512, from 32 x 32 to 384 x 384, of float32 and of float64;
MKL's packed order (`packed_weights.py`) takes 0.7 to 1.4. Out of memory, with dozens of weights in turn, that
holds up to 256 x 256; from 768 x 768 on the packed order is the better one. A weight that is [k, n] in the
model already stays: packed it takes 0.8 to 1.0 of the time, small ones 1.5 to 1.8. Six layers of 64 with
relus take 0.88 of the time for 32 rows, six of 256 take 0.93 for 8 rows and 0.97 for 128.
"""

from __future__ import annotations

import dace

from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network, Preparation
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scalar import DType
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_node
from daceml.transformations.rewriting.replacement import Value

NAME = "transpose_weights"
_TYPES: frozenset[DType] = frozenset({dace.float32, dace.float64})
_MOST_BYTES = 524_288


def transpose_weights(network: Network) -> int:
    """Let products read small frozen weights row by row. Mutates the network, which is not lowered yet.

    Returns:
        how many products do.
    """
    graph = OperatorGraph(network)
    done, refused = 0, list[Refusal]()
    for node in list(graph.by_type.get(("", "Gemm"), ())):
        if node.implementation or not node.attribute_values().get("transB"):
            continue
        weight = Value(str(graph.operands(node)[1]), graph)
        reason = _refusal(weight, network)
        if reason is not None:
            refused.append(refused_node(node, reason, weight.size_bytes))
            continue
        _read_transposed(node, weight, network, graph)
        done += 1
    network.passes.append(
        PassRecord(
            level="coarse", name=NAME, applied={"products": done} if done else {}, refused=tuple(refused)
        )
    )
    return done


def _refusal(weight: Value, network: Network) -> str | None:
    made = network.prepared.get(weight.array)
    if weight.weight is None and (made is None or made.packed):
        return "its weight is not a parameter"
    if weight.array in network.mutations.values():
        return "its weight is changed by the module"
    if weight.dtype not in _TYPES:
        return f"there are no measurements of matrix multiplications in {weight.dtype.to_string()}"
    size_bytes = weight.size_bytes
    if not isinstance(size_bytes, int) or size_bytes > _MOST_BYTES:
        return f"its weight of {size_bytes} bytes is larger than {_MOST_BYTES}; pack_weights handles those"
    return None if size_bytes else "its weight is empty"


def _read_transposed(node: ONNXNode, weight: Value, network: Network, graph: OperatorGraph) -> None:
    """Mutates the network."""
    sdfg, state = network.sdfg, network.state
    columns, inner = (int(n) for n in weight.shape)  # pyright: ignore[reportArgumentType]
    code = BY_DACE_TYPE[weight.dtype].onnx_code
    made = Preparation(
        function="Transpose",
        sources=(weight.array,),
        numbers=((code,), (inner, columns), (1, 0)),
        packed=False,
    )
    like = dace.data.Array(weight.dtype, (inner, columns))
    name = network.prepare(made, f"{weight.array}_transposed", like)
    if name not in graph.access:
        graph.access[name] = add_access(state, name)
    (edge,) = state.in_edges_by_connector(node, "B")
    state.remove_edge(edge)
    memlet = dace.Memlet.from_array(name, sdfg.arrays[name])
    state.add_edge(graph.access[name], None, node, "B", memlet)
    node.set_attribute("transB", 0)
    if state.degree(edge.src) == 0:
        state.remove_node(edge.src)
        del graph.access[weight.array]
