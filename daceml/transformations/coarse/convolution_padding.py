"""Padding of convolutions: where the vendor's kernel can do it, it does; elsewhere a Pad before it does.

Conv(Pad(x, p), q)     ->  Conv(x, p + q)          zeros, the same number on both sides: one pass less
Conv(x, p != q)        ->  Conv(Pad(x, p, q), 0)   a vendor's kernel pads both sides alike, or none

A kernel skips what it pads. Where a weight is infinite or NaN, a border may thus be a number that is NaN with
zeros in memory; every other element of the channel is not finite then, as with torch's own padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import dace
import numpy as np
from dace.sdfg import nodes

from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.native.windows import windows_of
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class
from daceml.onnx_ops.tracing.tensor import Tensor
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.sizes import size
from daceml.transformations.rewriting.refusals import refused_node

_OPSET = 21
Sides = tuple[tuple[int, ...], tuple[int, ...]]


def place_padding(network: Network) -> tuple[int, int]:
    """Move padding into convolutions and out of them. Mutates the network, which is not lowered yet.

    Returns:
        how many Pad nodes were taken into a convolution, and how many were put before one.
    """
    taken = made = 0
    refused: list[Refusal] = []
    for node in list(network.state.nodes()):
        if not isinstance(node, ONNXNode) or node.op_type != "Conv" or node.domain:
            continue
        own = _sides(node, network)
        if isinstance(own, str):
            refused.append(refused_node(node, own))
            continue
        pad = _pad_before(node, network)
        if pad is not None:
            more = _amounts(pad, network)
            if isinstance(more, str):
                refused.append(refused_node(pad, more))
            else:
                total = tuple(tuple(map(sum, zip(a, b, strict=True))) for a, b in zip(own, more, strict=True))
                if total[0] == total[1]:
                    _take(pad, node, network)
                    node.set_attribute("auto_pad", "NOTSET")
                    node.set_attribute("pads", [*total[0], *total[1]])
                    taken += 1
                    continue
                refused.append(refused_node(pad, f"together they pad {total[0]} before and {total[1]} after"))
        if own[0] != own[1]:
            _pad_apart(node, own, network)
            made += 1
    applied = {"pads in convolutions": taken, "pads before convolutions": made}
    network.passes.append(
        PassRecord(
            level="coarse",
            name="place_padding",
            applied={name: count for name, count in applied.items() if count},
            refused=tuple(refused),
        )
    )
    return taken, made


def _sides(node: ONNXNode, network: Network) -> Sides | str:
    """What a convolution pads before and after each spatial dimension, or why that is not known."""
    binding = bind(node, network)
    x, w, values = binding.inputs.get("X"), binding.inputs.get("W"), binding.attributes
    assert isinstance(x, Tensor)
    assert isinstance(w, Tensor)
    try:
        windows = windows_of(
            x.shape[2:],
            w.shape[2:],
            strides=values.get("strides"),
            dilations=values.get("dilations"),
            pads=values.get("pads"),
            auto_pad=values.get("auto_pad") or "NOTSET",
        )
    except Refused as refusal:
        return str(refusal)
    if min((*windows.before, *windows.after), default=0) < 0:
        return "negative pads"
    return windows.before, windows.after


def _pad_before(node: ONNXNode, network: Network) -> ONNXNode | None:
    """The Pad whose result this convolution alone reads."""
    (edge,) = network.state.in_edges_by_connector(node, "X")
    source = edge.src
    if source.data in network.outputs or source.data in network.mutations:
        return None
    if network.state.out_degree(source) != 1 or network.state.in_degree(source) != 1:
        return None
    (made,) = network.state.in_edges(source)
    pad = made.src
    return pad if isinstance(pad, ONNXNode) and pad.op_type == "Pad" and not pad.domain else None


def _amounts(pad: ONNXNode, network: Network) -> Sides | str:
    """The zeros that a Pad adds to the spatial dimensions, or why a convolution cannot add them."""
    binding = bind(pad, network)
    values = binding.attributes
    data, pads = binding.inputs.get("data"), binding.inputs.get("pads")
    filler, axes = binding.inputs.get("constant_value"), binding.inputs.get("axes")
    assert isinstance(data, Tensor)
    if values.get("mode") not in (None, "constant"):
        return f"it pads in mode {values['mode']}, and a convolution pads with zeros"
    if not isinstance(pads, Tensor) or pads.value is None:
        return "its amounts are not constant"
    if isinstance(axes, Tensor) and axes.value is None:
        return "its axes are not constant"
    if isinstance(filler, Tensor) and (filler.value is None or np.any(filler.value != 0)):
        return "it does not pad with zeros"
    rank = data.rank
    chosen: Sequence[int] = range(rank)
    if isinstance(axes, Tensor):
        chosen = [int(a) % rank for a in np.asarray(axes.value).reshape(-1)]
    amounts = [int(p) for p in np.asarray(pads.value).reshape(-1)]
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(chosen):
        before[axis], after[axis] = amounts[place], amounts[place + len(chosen)]
    if any((*before[:2], *after[:2])):
        return "it pads batch or channels"
    if min((*before, *after)) < 0:
        return "it crops"
    return tuple(before[2:]), tuple(after[2:])


def _take(pad: ONNXNode, node: ONNXNode, network: Network) -> None:
    """Let the convolution read what the Pad reads. Mutates the network."""
    state = network.state
    (edge,) = state.in_edges_by_connector(node, "X")
    (given,) = state.in_edges_by_connector(pad, "data")
    padded = edge.src
    memlet = dace.Memlet.from_array(given.src.data, network.sdfg.arrays[given.src.data])
    state.add_edge(given.src, None, node, "X", memlet)
    operands: list[nodes.AccessNode] = [e.src for e in state.in_edges(pad)]
    state.remove_nodes_from([pad, padded])
    network.sdfg.remove_data(padded.data, validate=False)
    for operand in dict.fromkeys(operands):
        if state.degree(operand) == 0 and operand.data in network.constants:
            state.remove_node(operand)
            del network.constants[operand.data]
            network.sdfg.remove_data(operand.data, validate=False)


def _pad_apart(node: ONNXNode, sides: Sides, network: Network) -> None:
    """A Pad before a convolution, which pads nothing itself then. Mutates the network."""
    sdfg, state = network.sdfg, network.state
    (edge,) = state.in_edges_by_connector(node, "X")
    desc = sdfg.arrays[edge.src.data]
    before, after = ((0, 0, *side) for side in sides)
    shape = [size(n) + b + a for n, b, a in zip(desc.shape, before, after, strict=True)]
    name, _ = sdfg.add_transient(f"{edge.src.data}_padded", shape, desc.dtype, find_new_name=True)
    amounts, _ = sdfg.add_array(
        f"{name}_amounts", [2 * len(shape)], dace.int64, transient=False, find_new_name=True
    )
    network.constants[amounts] = np.array([*before, *after], dtype=np.int64)
    pad = node_class("Pad", version=_OPSET)(
        inputs=["data", "pads"],
        outputs=["output"],
        onnx_name=f"{node.onnx_name}/pad",
        module_path=node.module_path,
        source=node.source,
    )
    state.add_node(pad)
    padded = add_access(state, name)

    def whole(array: str) -> dace.Memlet:
        return dace.Memlet.from_array(array, sdfg.arrays[array])

    state.add_edge(edge.src, None, pad, "data", whole(edge.src.data))
    state.add_edge(add_access(state, amounts), None, pad, "pads", whole(amounts))
    state.add_edge(pad, "output", padded, None, whole(name))
    state.add_edge(padded, None, node, "X", whole(name))
    state.remove_edge(edge)
    node.set_attribute("auto_pad", "NOTSET")
    node.set_attribute("pads", [0] * (2 * (len(shape) - 2)))
