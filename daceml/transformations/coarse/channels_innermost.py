"""ChannelsInnermost: convolutions of a training step, and what lies between them, keep channels innermost.

Conv(X[n, c, h, w])                 ->   Transpose(ChannelsLastConv(Transpose(X)[n, h, w, c]))
BatchNormalization, Relu, Add, …    ->   the same between transposes
GlobalAveragePool, Pad              ->   the same of [n, h, w, c]

Between two changed operators both transposes go, so arrays of a whole region are [n, h, w, c] in row-major
order: what the backward pass keeps, and its gradients, follow from that without further ado. A region changes
where its convolutions gain more than the transposes at its border cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import dace
import numpy as np
from dace.sdfg import nodes
from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.domain.channels_last import TO_CHANNELS_FIRST, TO_CHANNELS_LAST
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.sizes import Size, product
from daceml.transformations.coarse.channels_innermost_gain import convolution_gain_ns, transpose_cost_ns
from daceml.transformations.coarse.regions import Region
from daceml.transformations.coarse.spatial_flattening import ELEMENTWISE
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_node
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "ChannelsInnermost"
_SPATIAL = (2, 3)


def keep_channels_innermost(network: Network, *, always: bool = False) -> int:
    """Let regions of convolutions and batch norms in training keep their channels innermost. Mutates the
    network, which is not lowered yet.

    Args:
        always: also where nothing was measured to gain.
    Returns:
        how many operators were changed.
    """
    change = _Change(network, always)
    change.explore()
    change.decide()
    for place in change.places:
        change.apply(place)
    change.finish()
    network.sdfg.reset_cfg_list()
    network.passes.append(
        PassRecord(
            level="coarse",
            name=NAME,
            applied={"operators": change.count} if change.count else {},
            refused=tuple(change.refused),
        )
    )
    return change.count


@dataclass(eq=False)
class _Region(Region):
    """Operators that hand arrays over.

    Attributes:
        gain_ns: of its convolutions in a training step.
        moved: arrays that are transposed at its border.
    """

    gain_ns: float = 0.0
    moved: dict[str, None] = field(default_factory=dict[str, None])

    def take(self, other: Self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.gain_ns += other.gain_ns


@dataclass(frozen=True, kw_only=True)
class _Place:
    """An operator of a region.

    Attributes:
        given: operands that are images.
        result: an image, or what is left of one.
    """

    node: ONNXNode
    given: tuple[str, ...]
    result: str
    region: _Region


class _Change:
    """Two ways through a network, operands before what reads them: what to change, and the change."""

    def __init__(self, network: Network, always: bool) -> None:
        self.network, self.always, self.graph = network, always, OperatorGraph(network)
        self.places: list[_Place] = []
        self.regions: dict[str, _Region] = {}  # image that an operator of a region writes -> the region
        self.last: dict[str, str] = {}  # image -> the same with its channels innermost
        self.borders: list[str] = []  # images that an operator of a region writes, transposed back
        self.count = 0
        self.refused: list[Refusal] = []

    # ---- which

    def explore(self) -> None:
        """Find convolutions, batch norms, and what goes through the same elements."""
        for node in dfs_topological_sort(self.network.state):
            if isinstance(node, ONNXNode) and not (node.implementation or node.shapes_declared):
                self._visit(node)

    def _visit(self, node: ONNXNode) -> None:
        operands = [a for a in self.graph.operands(node) if a is not None]
        result = next((a for a in self.graph.results(node) if a is not None), None)
        if result is None or not operands or self.graph.network.sdfg.arrays[result].dtype not in _FLOATS:
            return
        kind = (node.domain, node.op_type)
        gain: float | str = 0.0
        given = operands[:1]
        if kind == ("", "Conv"):
            x, w, y = (Value(a, self.graph) for a in (*operands[:2], result))
            gain = convolution_gain_ns(node, x, w, y, always=self.always)
        elif kind == ("", "BatchNormalization"):
            if not node.attribute_values().get("training_mode") or not self._is_image(operands[0]):
                return
        elif not any(a in self.regions for a in operands):
            return
        elif kind == ("", "GlobalAveragePool"):
            pass
        elif kind == ("", "Pad"):
            gain = self._pad_refusal(node, operands) or 0.0
        elif kind == ("daceml", "HardTanh") or (not node.domain and node.op_type in ELEMENTWISE):
            given = list(dict.fromkeys(a for a in operands if not self._is_small(a)))
            gain = self._broadcast_refusal(given, result) or 0.0
        else:
            return
        if isinstance(gain, str):
            self._refuse(node, result, gain)
            return
        region = _Region(gain_ns=gain)
        for image in given:
            if image in self.regions:
                self.regions[image].join(region)
        if node.op_type != "GlobalAveragePool":
            self.regions[result] = region
        self.places.append(_Place(node=node, given=tuple(given), result=result, region=region))

    def _is_image(self, array: str) -> bool:
        shape = Value(array, self.graph).shape
        return len(shape) == 4 and all(isinstance(n, int) and n for n in shape[1:]) and shape[0] != 0

    def _is_small(self, array: str) -> bool:
        """Whether an operand is one number, which has no dimensions to permute."""
        shape = Value(array, self.graph).shape
        return len(shape) <= 1 and product(shape) == 1

    def _broadcast_refusal(self, operands: Sequence[str], result: str) -> str | None:
        if not self._is_image(result):
            return "its result is not an image of known size"
        for array in operands:
            shape = Value(array, self.graph).shape
            if len(shape) != 4:
                return f"{array} of shape {list(map(str, shape))} is broadcast to images"
        return None

    def _pad_refusal(self, node: ONNXNode, operands: Sequence[str]) -> str | None:
        amounts = Value(operands[1], self.graph).constant
        if "axes" in node.in_connectors or amounts is None or amounts.size != 8:
            return "the padded dimensions are not known"
        return None if self._is_image(operands[0]) else "its operand is not an image of known size"

    def decide(self) -> None:
        """Leave out regions that gain nothing."""
        inside: dict[ONNXNode, _Region] = {p.node: p.region.whole() for p in self.places}
        for place in self.places:
            region = place.region.whole()
            for image in place.given:
                if image not in self.regions and self._is_image(image):
                    region.moved[image] = None
            readers = self.graph.readers(place.result)
            known = place.result in self.regions
            if known and (self.graph.is_result(place.result) or any(r not in inside for r in readers)):
                region.moved[place.result] = None
        kept: list[_Place] = []
        for place in self.places:
            region = place.region.whole()
            cost = sum(transpose_cost_ns(Value(image, self.graph).shape) for image in region.moved)
            if self.always or region.gain_ns > cost:
                kept.append(place)
            elif place.node.op_type == "Conv":
                reason = (
                    f"convolutions around it gain {region.gain_ns * 1e-3:.0f} us with their channels "
                    f"innermost, and transposes cost {cost * 1e-3:.0f} us"
                )
                self._refuse(place.node, place.result, reason)
        self.places = kept

    # ---- how

    def apply(self, place: _Place) -> None:
        """Let one operator read and write images with their channels innermost."""
        match place.node.op_type:
            case "Conv":
                self._convolution(place)
            case "GlobalAveragePool":
                self._mean(place)
            case "BatchNormalization":
                self._batch_norm(place)
            case _:
                self._same(place)
        self.count += 1

    def _ops(self, place: _Place) -> ReplacementOps:
        return ReplacementOps(self.graph, place.node, NAME)

    def _innermost(self, place: _Place, image: str) -> Value:
        """An operand with its channels innermost."""
        if image not in self.last:
            value = Value(image, self.graph)
            self.last[image] = self._permuted(self._ops(place), value, TO_CHANNELS_LAST).array
        return Value(self.last[image], self.graph)

    def _permuted(self, op: ReplacementOps, value: Value, order: Sequence[int]) -> Value:
        shape = tuple(value.shape[d] for d in order)
        spatial = _SPATIAL if order == TO_CHANNELS_LAST else (1, 2)
        if all(value.shape[d] == 1 for d in spatial):
            return op.Reshape(value, [n if isinstance(n, int) else -1 for n in shape], shape=shape)
        return op.Transpose(value, perm=list(order), shape=shape)

    def _replace(self, place: _Place, made: Value) -> None:
        """Let a result stand for the one of an operator, which goes."""
        op, node = self._ops(place), place.node
        self.last[place.result] = made.array
        given = self._permuted(op, made, TO_CHANNELS_FIRST)
        operands = [a for a in self.graph.operands(node) if a is not None]
        self.borders.append(place.result)
        take_place(self.graph, place.result, given.array)
        remove_unread(self.graph, [node], operands)

    def _convolution(self, place: _Place) -> None:
        op, node = self._ops(place), place.node
        x, w, *bias = (Value(a, self.graph) for a in self.graph.operands(node) if a is not None)
        values = node.attribute_values()
        made = op.ChannelsLastConv(
            self._innermost(place, x.array),
            w,
            *bias,
            domain="daceml",
            shape=self._last_shape(place.result),
            strides=list(values.get("strides") or (1, 1)),
            dilations=list(values.get("dilations") or (1, 1)),
            pads=list(values.get("pads") or (0, 0, 0, 0)),
            group=int(values.get("group") or 1),
        )
        self._replace(place, made)

    def _mean(self, place: _Place) -> None:
        op = self._ops(place)
        made = op.ReduceMean(
            self._innermost(place, place.given[0]), [1, 2], keepdims=1, shape=self._last_shape(place.result)
        )
        self._replace(place, made)

    def _batch_norm(self, place: _Place) -> None:
        """The operator with an attribute that says where channels are."""
        node, state = place.node, self.network.state
        for image in place.given:  # while the node is there, which new ones are named after
            self._innermost(place, image)
        cls = node_class("BatchNormalizationSaving", domain="daceml")
        values = {n: v for n, v in node.attribute_values().items() if n in cls.schema.attributes}
        made = cls(
            node.label,
            inputs=list(node.in_connectors),
            outputs=list(node.out_connectors),
            onnx_name=node.onnx_name,
            module_path=node.module_path,
            source=node.source,
            position=node.position,
            **{**{n: v for n, v in values.items() if v is not None}, "channel_axis": 3},
        )
        made.lowest_index = node.lowest_index
        state.add_node(made)
        self.graph.forget(node)
        for edge in state.in_edges(node):
            state.add_edge(edge.src, None, made, edge.dst_conn, edge.data)
        for edge in state.out_edges(node):
            state.add_edge(made, edge.src_conn, edge.dst, None, edge.data)
        state.remove_node(node)
        self.graph.learn(made)
        self._rewire(made, place)

    def _same(self, place: _Place) -> None:
        if place.node.op_type == "Pad":
            (edge,) = [e for e in self.network.state.in_edges(place.node) if e.dst_conn == "pads"]
            amounts = Value(str(edge.data.data), self.graph).constant
            assert amounts is not None
            order = [*TO_CHANNELS_LAST, *(4 + d for d in TO_CHANNELS_LAST)]
            pads = self._ops(place).constant(np.ascontiguousarray(amounts.reshape(-1)[order]))
            self._read(place.node, str(edge.data.data), pads.array)
        self._rewire(place.node, place)

    def _rewire(self, node: ONNXNode, place: _Place) -> None:
        """Let a node read and write other images."""
        state, sdfg = self.network.state, self.network.sdfg
        for image in place.given:
            self._read(node, image, self._innermost(place, image).array)
        shape = self._last_shape(place.result)
        name, _ = sdfg.add_transient(
            f"{place.result}_channels_last", shape, sdfg.arrays[place.result].dtype, find_new_name=True
        )
        access = nodes.AccessNode(name)
        state.add_node(access)
        self.graph.access[name] = access
        (edge,) = [e for e in state.out_edges(node) if e.data.data == place.result]
        state.remove_edge(edge)
        state.add_edge(node, edge.src_conn, access, None, self._whole(name))
        self.graph.writer[name] = node
        self.last[place.result] = name
        op = ReplacementOps(self.graph, node, NAME)
        made = self._permuted(op, Value(name, self.graph), TO_CHANNELS_FIRST)
        self.borders.append(place.result)
        take_place(self.graph, place.result, made.array)

    def _read(self, node: ONNXNode, old: str, new: str) -> None:
        state = self.network.state
        for edge in list(state.in_edges(node)):
            if edge.data.data == old:
                state.remove_edge(edge)
                state.add_edge(self.graph.access[new], None, node, edge.dst_conn, self._whole(new))

    def finish(self) -> None:
        """Remove transposes that nobody reads."""
        for image in self.borders:
            made = self.graph.writer.get(image)
            if made is not None:
                remove_unread(self.graph, [made])

    def _last_shape(self, image: str) -> tuple[Size, ...]:
        shape = Value(image, self.graph).shape
        return tuple(shape[d] for d in TO_CHANNELS_LAST)

    def _whole(self, array: str) -> dace.Memlet:
        return dace.Memlet.from_array(array, self.network.sdfg.arrays[array])

    def _refuse(self, node: ONNXNode, result: str, reason: str) -> None:
        self.refused.append(refused_node(node, reason, Value(result, self.graph).size_bytes))


_FLOATS = (dace.float32, dace.float64, dace.float16, dace.bfloat16)
