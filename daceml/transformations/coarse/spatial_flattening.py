"""flatten_spatial_dimensions: batch norms, and elementwise operators behind them, go along all positions.

BatchNormalization(X[n, c, h, w])   ->   Reshape(BatchNormalization(Reshape(X)[n, c, h w]))
Relu, Add, …(flattened)             ->   the same of [n, c, h w]

Both reshapes are views. A row of 7 elements is too short for a vector, and its sums go one element after the
other; the 49 of its image are not. Every other reader gets a view of its own, so that gradients that meet are
added in the flat shape, in the same loop as what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import dace
from dace.sdfg import nodes
from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.domain.custom_gradients import CUSTOM
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.sizes import Size, product
from daceml.transformations.coarse.regions import Region
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_node
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "flatten_spatial_dimensions"
# Rows of this many elements keep the vectors busy by themselves
_LONG_ROW = 64
ELEMENTWISE = frozenset(
    {
        *("Abs", "Add", "Celu", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish"),
        *("LeakyRelu", "Max", "Min", "Mish", "Mul", "Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt"),
        *("Sub", "Swish", "Tanh"),
    }
)


def flatten_spatial_dimensions(network: Network) -> int:
    """Let batch norms in training, and what is elementwise behind them, see one spatial dimension. Mutates
    the network, which is not lowered yet.

    Returns:
        how many operators were changed.
    """
    flattening = _Flattening(network)
    flattening.explore()
    for place in flattening.places:
        flattening.flatten(place)
    flattening.finish()
    network.sdfg.reset_cfg_list()
    network.passes.append(
        PassRecord(
            level="coarse",
            name=NAME,
            applied={"operators": flattening.count} if flattening.count else {},
            refused=tuple(flattening.refused),
        )
    )
    return flattening.count


@dataclass(eq=False)
class _Region(Region):
    """Operators that hand flat arrays over.

    Attributes:
        refusal: why all of it stays as it is.
    """

    refusal: str | None = None

    def take(self, other: Self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.refusal = self.refusal or other.refusal


@dataclass(frozen=True, kw_only=True)
class _Place:
    """An operator of a region.

    Attributes:
        wanted: the operands to flatten.
    """

    node: ONNXNode
    result: str
    shape: tuple[Size, ...]
    wanted: tuple[str, ...]
    region: _Region


class _Flattening:
    """Two ways through a network, operands before what reads them: what to change, and the change."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph = network, OperatorGraph(network)
        self.places: list[_Place] = []
        self.regions: dict[str, _Region] = {}  # result of an operator of a region -> the region
        self.flat: dict[str, str] = {}  # result of a changed operator -> what it is a view of
        self.views: dict[str, str] = {}  # any other operand of one -> its flat view
        self.count = 0
        self.refused: list[Refusal] = []

    def explore(self) -> None:
        """Find batch norms, and elementwise operators of what is flat."""
        for node in dfs_topological_sort(self.network.state):
            if isinstance(node, ONNXNode) and not (
                node.domain or node.implementation or node.shapes_declared
            ):
                self._visit(node)

    def _visit(self, node: ONNXNode) -> None:
        operands = [a for a in self.graph.operands(node) if a is not None]
        starts = node.op_type == "BatchNormalization" and bool(node.attribute_values().get("training_mode"))
        before = [self.regions[a] for a in operands if a in self.regions]
        if not starts and not (node.op_type in ELEMENTWISE and before):
            return
        result = next(a for a in self.graph.results(node) if a is not None)
        shape = Value(result, self.graph).shape
        if len(shape) < 4 or _is_long(shape[-1]):
            return
        given = operands[:1] if starts else operands
        wanted = tuple(dict.fromkeys(a for a in given if not self._is_small(a)))
        if (reason := self._refusal(shape, wanted)) is not None:
            self._refuse(node, result, reason)
            return
        region = _Region()
        for other in [self.regions[a] for a in wanted if a in self.regions]:
            other.join(region)
        if any(self._is_given(a) and Value(a, self.graph).shape == shape for a in wanted):
            region.refusal = "an operand is the caller's, and its gradient would have to be a copy"
        if self.graph.is_result(result):
            region.refusal = "a result is the caller's, so a view of it would have to be a copy"
        if any(isinstance(n, ONNXNode) and n.op_type in CUSTOM for n in self.graph.readers(result)):
            region.refusal = "a function with a gradient of its own reads it"
        self.regions[result] = region
        self.places.append(_Place(node=node, result=result, shape=shape, wanted=wanted, region=region))

    def flatten(self, place: _Place) -> None:
        """Let one operator read and write flat arrays, unless its region stays."""
        node, state = place.node, self.network.state
        if (reason := place.region.whole().refusal) is not None:
            self._refuse(node, place.result, reason)
            return
        for edge in list(state.in_edges(node)):
            if str(edge.data.data) in place.wanted:
                flat = self._flattened(node, str(edge.data.data), len(place.shape))
                state.remove_edge(edge)
                state.add_edge(self.graph.access[flat], None, node, edge.dst_conn, self._whole(flat))
        self._write_flat(node, place.result, place.shape)
        self.count += 1

    def finish(self) -> None:
        """Remove views that nobody reads, and give every reader its own."""
        for array in self.flat:
            view = self.graph.writer[array]
            readers = self.network.state.out_edges(self.graph.access[array])
            for edge in readers[1:]:
                shape = Value(array, self.graph).shape
                op = ReplacementOps(self.graph, view, NAME)
                flat = Value(self.flat[array], self.graph)
                made = op.Reshape(flat, _sizes(shape), shape=shape)
                self.network.state.remove_edge(edge)
                source = self.graph.access[made.array]
                self.network.state.add_edge(source, None, edge.dst, edge.dst_conn, self._whole(made.array))
            remove_unread(self.graph, [view])

    def _refusal(self, shape: tuple[Size, ...], operands: Sequence[str]) -> str | None:
        if any(not isinstance(n, int) for n in shape[1:]):
            return "a size other than the batch is symbolic"
        if 0 in shape:
            return "it has no elements"
        spatial = len(shape) - 2
        for array in operands:
            given = Value(array, self.graph).shape
            if given != shape and (len(given) <= spatial or any(n != 1 for n in given[-spatial:])):
                return f"{array} of shape {list(map(str, given))} differs along spatial dimensions"
        return None

    def _is_given(self, array: str) -> bool:
        """Whether an array is an input or a weight."""
        return array in self.network.inputs or array in self.network.weights

    def _is_small(self, array: str) -> bool:
        """Whether an operand is one number, which has no dimensions to flatten."""
        shape = Value(array, self.graph).shape
        return len(shape) <= 1 and product(shape) == 1

    def _flattened(self, node: ONNXNode, array: str, rank: int) -> str:
        """The array with its last `rank - 2` dimensions as one."""
        known = self.flat.get(array) or self.views.get(array)
        if known is not None:
            return known
        value = Value(array, self.graph)
        kept = value.shape[: value.rank - (rank - 2)]
        shape = (*kept, product(value.shape[len(kept) :]))
        made = ReplacementOps(self.graph, node, NAME).Reshape(value, _sizes(shape), shape=shape)
        self.views[array] = made.array
        return made.array

    def _write_flat(self, node: ONNXNode, result: str, shape: Sequence[Size]) -> None:
        """Let a node write a flat array, and a view of it stand for its result."""
        sdfg, state = self.network.sdfg, self.network.state
        rows = (*shape[:2], product(shape[2:]))
        flat, _ = sdfg.add_transient(f"{result}_flat", rows, sdfg.arrays[result].dtype, find_new_name=True)
        access = nodes.AccessNode(flat)
        state.add_node(access)
        self.graph.access[flat] = access
        (edge,) = [e for e in state.out_edges(node) if e.data.data == result]
        state.remove_edge(edge)
        state.add_edge(node, edge.src_conn, access, None, self._whole(flat))
        self.graph.writer[flat] = node
        made = ReplacementOps(self.graph, node, NAME).Reshape(
            Value(flat, self.graph), _sizes(shape), shape=tuple(shape)
        )
        take_place(self.graph, result, made.array)
        self.flat[result] = flat

    def _whole(self, array: str) -> dace.Memlet:
        return dace.Memlet.from_array(array, self.network.sdfg.arrays[array])

    def _refuse(self, node: ONNXNode, result: str, reason: str) -> None:
        self.refused.append(refused_node(node, reason, Value(result, self.graph).size_bytes))


def _is_long(extent: Size) -> bool:
    return not isinstance(extent, int) or extent >= _LONG_ROW


def _sizes(shape: Sequence[Size]) -> list[int]:
    """What Reshape is given: a symbolic batch is what is left."""
    return [n if isinstance(n, int) else -1 for n in shape]
