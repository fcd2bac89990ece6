"""fuse_activations: the loop behind a convolution becomes a part of its kernel.

relu(Conv(X, W, B) + Z)   ->   ConvActivation(X, W, B, Z)      also clip, x sigmoid(x), and the sum alone

Only what a packed convolution gives, and one loop alone reads. oneDNN's relu and clip turn NaN into a number,
which eager PyTorch keeps, so they are taken only where there can be no NaN: `magnitude_limits.py`. Loops of
our own, for depthwise and pointwise convolutions, keep it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import dace
from dace.sdfg import nodes

from daceml.onnx_ops.aten.packed import CONVOLUTION, DEPTHWISE, POINTWISE
from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.domain.convolution_activation import ConvActivation
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.lifting import NotLiftable, Statement, lift
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scalar import Scalar
from daceml.sdfg.scopes import exit_of, remove_scope
from daceml.transformations.layout.magnitude_limits import (
    SWALLOWING,
    bias_is_known,
    limit_magnitudes,
    no_second_run,
)
from daceml.transformations.rewriting.refusals import refused_node

_OWN = (f"aten:{DEPTHWISE}", f"aten:{POINTWISE}")
_ATTRIBUTES = ("strides", "pads", "dilations", "group", "auto_pad", "kernel_shape")


def fuse_activations(network: Network) -> int:
    """Let packed convolutions apply what follows them. Mutates the network.

    Returns:
        how many loops disappeared.
    """
    refused: list[Refusal] = []
    applied: dict[str, int] = {}
    unlimited = no_second_run(network)
    for node in list(network.state.nodes()):
        if not isinstance(node, ONNXNode) or node.domain or node.op_type != "Conv":
            continue
        own = node.implementation in _OWN
        if not own and node.implementation != f"aten:{CONVOLUTION}":
            continue
        found = _place(node, network)
        if not own and isinstance(found, _Place) and found.activation.name in SWALLOWING:
            found = unlimited or (
                "its bias is not a parameter" if not bias_is_known(node, network) else found
            )
        if isinstance(found, str):
            refused.append(refused_node(node, found))
            continue
        _fuse(found, network)
        title = found.activation.name if found.added is None else f"sum and {found.activation.name}"
        applied[title] = applied.get(title, 0) + 1
    checks = limit_magnitudes(network)
    if checks:
        applied["checks of magnitudes"] = checks
    network.passes.append(
        PassRecord(level="layout", name="fuse_activations", applied=applied, refused=tuple(refused))
    )
    return sum(applied.values()) - checks


@dataclass(frozen=True, kw_only=True)
class Activation:
    """What a kernel does to its result.

    Attributes:
        low, high: bounds of a clip.
    """

    name: str
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A convolution and the loop behind it.

    Attributes:
        between: what the convolution gives, and the loop alone reads.
        target: what the loop writes.
        added: what it adds first, if anything.
    """

    convolution: ONNXNode
    between: nodes.AccessNode
    loop: nodes.MapEntry
    target: nodes.AccessNode
    activation: Activation
    added: str | None


def _place(node: ONNXNode, network: Network) -> _Place | str:
    sdfg, state = network.sdfg, network.state
    (result,) = state.out_edges(node)
    between = result.dst
    interface = {*network.outputs, *network.mutations, *(check.array for check in network.checks)}
    if between.data in interface or not sdfg.arrays[between.data].transient:
        return "its result is returned to the caller"
    readers = state.out_edges(between)
    if len(readers) != 1 or sum(n.data == between.data for n in state.data_nodes()) != 1:
        return f"{len(readers)} steps read its result"
    loop = readers[0].dst
    if not isinstance(loop, nodes.MapEntry):
        return "no generated kernel reads its result"
    written = state.out_edges(exit_of(state, loop))
    if len(written) != 1:
        return "the kernel after it writes several arrays"
    target = written[0].dst
    if sum(n.data == target.data for n in state.data_nodes()) != 1 or state.in_degree(target) != 1:
        return "the result of the kernel after it is written in parts"
    if _layout(network, between.data) != _layout(network, target.data):
        return "the result of the kernel after it differs in shape or layout"
    try:
        statements = lift(sdfg, state, loop)
    except NotLiftable as reason:
        return f"the kernel after it does more than assign: {reason}"
    if len(statements) != 1 or statements[0].resolves is not None:
        return "the kernel after it has more than one assignment"
    (statement,) = statements
    if not _covers(statement, network):
        return "the kernel after it writes part of its result, or in another order"
    index = tuple(map(str, statement.index))
    found = _activation(statement.value)
    operands = _sum(found[1], index)
    if isinstance(operands, str):
        return operands
    if between.data not in operands:
        return "the kernel after it is not an activation that torch's kernel can apply"
    added = next((a for a in operands if a != between.data), None)
    if len(operands) == 2 and added is None:
        return "the kernel after it adds the result to itself"
    if added is not None:
        if _layout(network, added) != _layout(network, between.data):
            return "the addend differs in shape or layout"
        if found[0].name not in ("none", "relu") and node.implementation not in _OWN:
            return f"torch's kernel has no sum before {found[0].name}"
        if bind(node, network).attributes.get("group", 1) != 1:
            return "torch's kernel cannot add to grouped convolutions"
    return _Place(
        convolution=node, between=between, loop=loop, target=target, activation=found[0], added=added
    )


def _covers(statement: Statement, network: Network) -> bool:
    """Whether every element is written in its own point."""
    extents = dict(zip(map(str, statement.params), map(str, statement.extents), strict=True))
    shape = tuple(map(str, network.sdfg.arrays[statement.target].shape))
    index = tuple(map(str, statement.index))
    varying = [i for i in index if i in extents]
    if len(varying) != len(set(varying)) or len(varying) != len(extents):
        return False
    return all(extents.get(i, "1" if i == "0" else "") == n for i, n in zip(index, shape, strict=True))


def _layout(network: Network, array: str) -> tuple[object, ...]:
    desc = network.sdfg.arrays[array]
    return tuple(map(str, desc.shape)), tuple(map(str, desc.strides)), desc.dtype


def _activation(value: Scalar) -> tuple[Activation, Scalar]:
    """The activation at the root of a value, and what it is applied to."""
    match value:
        case Scalar(op="rectify", args=(x,)):
            return Activation(name="relu"), x
        case Scalar(op="where", args=(Scalar(op="ge", args=(x, bound)), high, inner)) if _same(bound, high):
            low = _lower_bound(inner, x)
            if low is not None and high.op == "literal":
                return _clip(low, high.data), x
        case _:
            pass
    if value.op == "mul":
        for x, gate in (value.args, value.args[::-1]):
            if gate.op == "sigmoid" and _same(gate.args[0], x):
                return Activation(name="swish"), x
    return Activation(name="none"), value


def _lower_bound(value: Scalar, x: Scalar) -> float | None:
    """Of x, where a value is x with one."""
    match value:
        case Scalar(op="rectify", args=(inner,)) if _same(inner, x):
            return 0.0
        case Scalar(op="where", args=(Scalar(op="le", args=(inner, bound)), low, again)):
            plain = _same(inner, x) and _same(again, x) and _same(bound, low)
            return low.data if plain and low.op == "literal" else None
        case _:
            return None


def _clip(low: float, high: float) -> Activation:
    if low == 0 and math.isinf(high):
        return Activation(name="relu")
    return Activation(name="clip", low=low, high=high)


def _sum(value: Scalar, index: tuple[str, ...]) -> tuple[str, ...] | str:
    """The arrays that a value is the sum of, one or two."""
    reads = value.args if value.op == "add" else (value,)
    found: list[str] = []
    for part in reads:
        if part.op != "read":
            return "the kernel after it is not an activation that torch's kernel can apply"
        array, at = part.data
        if tuple(map(str, at)) != index:
            return "the kernel after it reads elements other than the one it writes"
        found.append(array)
    return tuple(found)


def _same(one: Scalar, other: Scalar) -> bool:
    """Whether two values are spelled in the same way."""
    if one is other:
        return True
    if (one.op, one.dtype, len(one.args)) != (other.op, other.dtype, len(other.args)):
        return False
    return str(one.data) == str(other.data) and all(map(_same, one.args, other.args))


def _fuse(place: _Place, network: Network) -> None:
    """Mutates the network."""
    state, old, sdfg = network.state, place.convolution, network.sdfg
    operands = {str(e.dst_conn): e.src for e in state.in_edges(old)}
    if place.added is not None:
        reading = (e.src for e in state.in_edges(place.loop))
        operands["Z"] = next(n for n in reading if isinstance(n, nodes.AccessNode) and n.data == place.added)
    values = {k: v for k, v in old.attribute_values().items() if k in _ATTRIBUTES and v is not None}
    kept: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    node = ConvActivation(
        inputs=tuple(operands),
        outputs=("Y",),
        onnx_name=old.onnx_name,
        module_path=old.module_path,
        source=old.source,
        position=old.position,
        activation=place.activation.name,
        low=place.activation.low,
        high=place.activation.high,
        **kept,
    )
    node.implementation = old.implementation
    state.add_node(node)
    for connector, source in operands.items():
        memlet = dace.Memlet.from_array(source.data, sdfg.arrays[source.data])
        state.add_edge(source, None, node, connector, memlet)
    memlet = dace.Memlet.from_array(place.target.data, sdfg.arrays[place.target.data])
    remove_scope(state, place.loop)
    state.add_edge(node, "Y", place.target, None, memlet)
    state.remove_nodes_from([old, place.between])
    # the convolution first: it names the step
    origins = [network.origins.get(node.data, ()) for node in (place.between, place.target)]
    network.origins[place.target.data] = tuple(dict.fromkeys(itertools.chain(*origins)))
    sdfg.remove_data(place.between.data, validate=False)
