"""keep_images: rows of tokens that become images, and images that become rows, keep their four dimensions.

Reshape(Transpose(x[n, h w, c])[n, c, h w])   ->   Transpose(Reshape(x)[n, h, w, c])[n, c, h, w]
Transpose(Reshape(y[n, c, h, w])[n, c, h w])  ->   Reshape(Transpose(y)[n, h, w, c])

for operands and results of convolutions. The view goes to the side of the rows, where it costs nothing, so
that the image is a separate array: if it has channels innermost, the transposition is a copy along memory.
"""

from __future__ import annotations

from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.sdfg.sizes import Size, product
from daceml.transformations.coarse.transpositions import order_of
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "keep_images"
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_IMAGE = 4  # dimensions
# Between a convolution and the view of its result; batch norms are folded later
_BETWEEN = frozenset({"BatchNormalization", "Relu", "Clip", "HardSwish", "Sigmoid", "Mul", "Add", "Gelu"})

_ACTIVATIONS = frozenset(
    {
        *("Celu", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu"),
        *("Selu", "Sigmoid", "Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu"),
    }
)


def keep_images(network: Network) -> int:
    """Move views between rows and images to the side of the rows. Mutates the network, which is not lowered.

    Returns:
        how many were moved.
    """
    graph = OperatorGraph(network)
    count = 0
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        if graph.holds(node) and (_move_before(graph, node) or _move_behind(graph, node)):
            count += 1
    network.sdfg.reset_cfg_list()
    applied = {"views of images": count} if count else {}
    network.passes.append(PassRecord(level="coarse", name=NAME, applied=applied))
    return count


def _move_before(graph: OperatorGraph, view: ONNXNode) -> bool:
    """Reshape(Transpose(x)) -> Transpose(Reshape(x)), for the operand of a convolution."""
    if not _is_view(view) or (transpose := _only_reader_of(graph, view, {"Transpose"})) is None:
        return False
    image = _result(graph, view)
    if image.rank != _IMAGE or not any(_convolves(reader) for reader in graph.readers(image.array)):
        return False
    source, middle = _operand(graph, transpose), _result(graph, transpose)
    groups = _groups(middle.shape, image.shape)
    if groups is None or not _one_reshape(image.shape):
        return False
    order = order_of(transpose, source.rank)
    # of each dimension of the source, those that it is split into, in the image's numbering
    split = [groups[order.index(d)] for d in range(source.rank)]
    flat = [d for group in split for d in group]
    rows = tuple(image.shape[d] for d in flat)
    op = ReplacementOps(graph, view, NAME)
    viewed = op.Reshape(source, _sizes(rows), shape=rows)
    made = op.Transpose(viewed, perm=[flat.index(d) for d in range(_IMAGE)], shape=image.shape)
    take_place(graph, image.array, made.array)
    remove_unread(graph, [view])
    return True


def _move_behind(graph: OperatorGraph, transpose: ONNXNode) -> bool:
    """Transpose(Reshape(y)) -> Reshape(Transpose(y)), for the result of a convolution."""
    if transpose.op_type != "Transpose" or (view := _only_reader_of(graph, transpose, _VIEWS)) is None:
        return False
    image, middle, rows = _operand(graph, view), _result(graph, view), _result(graph, transpose)
    if image.rank != _IMAGE or not _is_convolved(graph, image.array):
        return False
    groups = _groups(middle.shape, image.shape)
    if groups is None or not _one_reshape(rows.shape):
        return False
    order = [d for place in order_of(transpose, middle.rank) for d in groups[place]]
    shape = tuple(image.shape[d] for d in order)
    turned = ReplacementOps(graph, transpose, NAME).Transpose(image, perm=order, shape=shape)
    # activations of the rows follow: with the transposition they are one loop, which a view would part
    last = transpose
    while (activation := _activation(graph, last)) is not None:
        _, *others = (None if a is None else Value(a, graph) for a in graph.operands(activation))
        op = ReplacementOps(graph, activation, NAME)
        apply = getattr(op, activation.op_type)
        turned = apply(turned, *others, **activation.attribute_values(), shape=shape)
        last = activation
    result = _result(graph, last)
    made = ReplacementOps(graph, last, NAME).Reshape(turned, _sizes(rows.shape), shape=rows.shape)
    take_place(graph, result.array, made.array)
    remove_unread(graph, [last])
    return True


def _activation(graph: OperatorGraph, node: ONNXNode) -> ONNXNode | None:
    """The only reader of a result, if it computes each element from the one at its place."""
    value = _result(graph, node)
    if graph.is_result(value.array) or len(readers := graph.readers(value.array)) != 1:
        return None
    (reader,) = readers
    if not isinstance(reader, ONNXNode) or reader.op_type not in _ACTIVATIONS or reader.domain:
        return None
    (first, *others) = graph.operands(reader)
    alone = first == value.array and all(a is None or Value(a, graph).rank == 0 for a in others)
    return reader if alone and not (reader.implementation or reader.shapes_declared) else None


def _is_view(node: ONNXNode) -> bool:
    return node.op_type in _VIEWS and not node.domain


def _only_reader_of(
    graph: OperatorGraph, node: ONNXNode, kinds: set[str] | frozenset[str]
) -> ONNXNode | None:
    """What writes the first operand, if it is of these kinds and nothing else reads its result."""
    (array, *_) = graph.operands(node)
    before = graph.writer.get(array or "")
    if before is None or array is None or before.op_type not in kinds or before.domain:
        return None
    if before.implementation or before.shapes_declared or node.shapes_declared:
        return None
    return before if len(graph.readers(array)) == 1 and not graph.is_result(array) else None


def _convolves(node: object) -> bool:
    return isinstance(node, ONNXNode) and node.op_type == "Conv" and not node.domain


def _is_convolved(graph: OperatorGraph, array: str) -> bool:
    """Whether a convolution gives an array, through operators that keep its layout."""
    seen: set[str] = set()
    waiting = [array]
    while waiting:
        writer = graph.writer.get(waiting.pop())
        if writer is None or writer.domain:
            continue
        if _convolves(writer):
            return True
        if writer.op_type in _BETWEEN:
            new = [a for a in graph.operands(writer) if a is not None and a not in seen]
            seen.update(new)
            waiting += new
    return False


def _groups(merged: tuple[Size, ...], split: tuple[Size, ...]) -> list[list[int]] | None:
    """For each dimension of one shape, those of the other that it is made of; None where it is not so."""
    found: list[list[int]] = []
    place = 0
    for extent in merged:
        group: list[int] = []
        while place < len(split) and (not group or product(split[d] for d in group) != extent):
            group.append(place)
            place += 1
        if not group or product(split[d] for d in group) != extent:
            return None
        found.append(group)
    return found if place == len(split) else None


def _one_reshape(shape: tuple[Size, ...]) -> bool:
    """Whether a Reshape can say a shape: one size may be found from the others, and 0 has another meaning."""
    return 0 not in shape and sum(not isinstance(n, int) for n in shape) < 2


def _sizes(shape: tuple[Size, ...]) -> list[int]:
    return [n if isinstance(n, int) else -1 for n in shape]


def _operand(graph: OperatorGraph, node: ONNXNode) -> Value:
    (array, *_) = graph.operands(node)
    assert array is not None
    return Value(array, graph)


def _result(graph: OperatorGraph, node: ONNXNode) -> Value:
    (array, *_) = graph.results(node)
    assert array is not None
    return Value(array, graph)
