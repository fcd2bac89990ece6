"""fold_batch_norms: a normalization with fixed statistics becomes part of the convolution before it.

BatchNormalization(Conv(X, W, B), scale, shift, mean, variance)   ->   Conv(X, W s, (B - mean) s + shift)

with s = scale / sqrt(variance + epsilon) for each channel of the result. The new weights are computed in
float64 and rounded once, when a program is bound to a module (and again where a call finds other weights:
`layout/watched_weights.py`). A result is then rounded as a convolution's is, and not three times more. Where
a convolution alone overflows, and its normalization would not bring it back, the result may be finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dace
from dace.sdfg import nodes

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network, Preparation
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.transformations.rewriting.refusals import refused_node

_TYPES = (dace.float32, dace.float64)
# The operands of a normalization besides X, in the order in which `daceml.runtime.weight_preparation` takes
# them
_STATISTICS = ("scale", "B", "input_mean", "input_var")


def fold_batch_norms(network: Network) -> int:
    """Take normalizations into convolutions. Mutates the network, which is not lowered.

    Returns:
        how many normalizations disappeared.
    """
    found = [n for n in network.state.nodes() if isinstance(n, ONNXNode) and _is(n, "BatchNormalization")]
    refused: list[Refusal] = []
    folded = 0
    for norm in found:
        place = _place(norm, network)
        if isinstance(place, _Place):
            _fold(place, network)
            folded += 1
        else:
            refused.append(refused_node(norm, place))
    network.passes.append(
        PassRecord(
            level="coarse",
            name="fold_batch_norms",
            applied={"fold_batch_norms": folded} if folded else {},
            refused=tuple(refused),
        )
    )
    return folded


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A convolution with the normalization behind it.

    Attributes:
        between: what the convolution gives, and the normalization alone reads.
        sources: arrays of weight, bias ("" where there is none), scale, shift, mean and variance.
    """

    convolution: ONNXNode
    between: nodes.AccessNode
    norm: ONNXNode
    sources: tuple[str, ...]


def _is(node: ONNXNode, op_type: str) -> bool:
    return node.op_type == op_type and not node.domain and not node.implementation


def _place(norm: ONNXNode, network: Network) -> _Place | str:
    state = network.state
    if network.live:
        return "the weights are unprepared: every call reads them from the module"
    (given,) = state.in_edges_by_connector(norm, "X")
    between = given.src
    makers = [e.src for e in state.in_edges(between)]
    if len(makers) != 1 or not isinstance(makers[0], ONNXNode) or not _is(makers[0], "Conv"):
        return "its input is not the result of a convolution"
    if norm.attribute_values().get("training_mode") or len(state.out_edges(norm)) != 1:
        return "it computes statistics"
    if between.data in (*network.outputs, *network.mutations) or state.out_degree(between) != 1:
        return "another operator also reads the result of the convolution"
    convolution = makers[0]
    operands = [_operand(convolution, name, network) for name in ("W", "B")]
    operands += [_operand(norm, name, network) for name in _STATISTICS]
    dtype = network.sdfg.arrays[between.data].dtype
    if dtype not in _TYPES:
        return f"weights of {dtype.to_string()} would be rounded a second time"
    for array in filter(None, operands):
        made = network.prepared.get(array)
        if array not in network.weights and (made is None or made.packed):
            return "an operand is not a row-major parameter or buffer"
        if array in network.mutations.values():
            return "an operand is changed by the module"
        if network.sdfg.arrays[array].dtype != dtype:
            return "its statistics differ from its input in element type"
    return _Place(convolution=convolution, between=between, norm=norm, sources=tuple(operands))


def _operand(node: ONNXNode, connector: str, network: Network) -> str:
    edges: list[Any] = list(network.state.in_edges_by_connector(node, connector))
    return str(edges[0].src.data) if edges else ""


def _fold(place: _Place, network: Network) -> None:
    """Mutates the network."""
    state, convolution, norm = network.state, place.convolution, place.norm
    epsilon = float(norm.attribute_values()["epsilon"])
    for connector, function, like in (("W", "folded_weight", 0), ("B", "folded_bias", 2)):
        desc = network.sdfg.arrays[place.sources[like]]
        made = Preparation(function=function, sources=place.sources, reals=(epsilon,), packed=False)
        name = network.prepare(made, f"{place.sources[0]}_{function}", desc)
        for edge in list(state.in_edges_by_connector(convolution, connector)):
            state.remove_edge(edge)
            if state.degree(edge.src) == 0:
                state.remove_node(edge.src)
        access = next((n for n in state.data_nodes() if n.data == name), None) or add_access(state, name)
        convolution.add_in_connector(connector)
        memlet = dace.Memlet.from_array(name, network.sdfg.arrays[name])
        state.add_edge(access, None, convolution, connector, memlet)
    (result,) = state.out_edges(norm)
    memlet = dace.Memlet.from_array(result.dst.data, network.sdfg.arrays[result.dst.data])
    statistics = [e.src for e in state.in_edges(norm) if e.src is not place.between]
    state.add_edge(convolution, "Y", result.dst, None, memlet)
    state.remove_nodes_from([norm, place.between])
    network.sdfg.remove_data(place.between.data, validate=False)
    for source in dict.fromkeys(statistics):
        if state.degree(source) == 0:
            state.remove_node(source)
