"""fuse_contractions: transpositions in front of products and behind them become part of the products.

MatMul(A, Transpose(B))   ->   Gemm(A, B, transB)              matrices
MatMul(A, Transpose(B))   ->   Einsum(A, B, "abc,adc->abd")    with batches
Transpose(MatMul(A, B))   ->   Einsum(A, B, "abc,acd->bad")

Vendor kernels take strides, so a copy in another order disappears, and in training two more: those of the
gradients. It is done where the product and both of its gradients are one call over views; else the Transpose
stays. On one thread [2, 12, 128, 64] times its like transposed takes 0.8 of the time, with gradients, too,
and one row each with 1,024 keys 0.15.

Products of one input with several weights that may change stay apart: to copy the weights side by side first
takes 1.17 of the time of three products of 256 rows, 768 to 768. For others there is `product_joining.py`.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from daceml.onnx_ops.aten.einsum import LabelledShape, product_dims
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.sizes import product as elements
from daceml.transformations.coarse.transpositions import order_of
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_result
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "fuse_contractions"


@dataclass(frozen=True, kw_only=True)
class _Side:
    """An operand or the result of a product.

    Attributes:
        value: what the new product reads or writes.
        labels: of its dimensions.
        transposes: the operator that disappears.
    """

    value: Value
    labels: str
    transposes: ONNXNode | None = None


def fuse_contractions(network: Network) -> int:
    """Take transpositions into products. Mutates the network, which is not lowered yet.

    Returns:
        how many transpositions went.
    """
    fusion = _Fusion(network)
    for node in list(fusion.graph.by_type.get(("", "MatMul"), ())):
        fusion.visit(node)
    network.sdfg.reset_cfg_list()
    applied = {"transpositions": fusion.taken} if fusion.taken else {}
    network.passes.append(
        PassRecord(level="coarse", name=NAME, applied=applied, refused=tuple(fusion.refused))
    )
    return fusion.taken


@dataclass
class _Fusion:
    """One way through a network."""

    network: Network
    taken: int = 0
    refused: list[Refusal] = field(default_factory=list[Refusal])

    def __post_init__(self) -> None:
        self.graph = OperatorGraph(self.network)

    def visit(self, node: ONNXNode) -> None:
        """Take as many of a product's transpositions as a vendor's kernel can."""
        sides = self._sides(node)
        if isinstance(sides, str):
            return
        ways = sorted(product(*sides), key=lambda way: -sum(s.transposes is not None for s in way))
        reason = ""
        for left, right, result in ways:
            if all(s.transposes is None for s in (left, right, result)):
                break
            found = _refusal(left, right, result)
            if found is None:
                self._put(node, left, right, result)
                return
            reason = reason or found
        if reason:
            self._refuse(node, reason)

    def _sides(self, node: ONNXNode) -> tuple[list[_Side], list[_Side], list[_Side]] | str:
        """Each operand and the result, as it is and with the transposition next to it."""
        values = [Value(a, self.graph) for a in self.graph.operands(node) if a is not None]
        (y,) = (Value(a, self.graph) for a in self.graph.results(node) if a is not None)
        if any(v.rank < 2 for v in values) or any(not isinstance(n, int) for v in values for n in v.shape):
            return "an operand is a vector, or a size is symbolic"
        letters = iter(string.ascii_lowercase)
        batch = "".join(next(letters) for _ in range(y.rank - 2))
        m, k, n = next(letters), next(letters), next(letters)
        labels = [
            batch[len(batch) - (v.rank - 2) :] + pair for v, pair in zip(values, (m + k, k + n), strict=True)
        ]
        found = [
            [_Side(value=v, labels=term), *self._before(v, term)]
            for v, term in zip(values, labels, strict=True)
        ]
        return found[0], found[1], [_Side(value=y, labels=batch + m + n), *self._behind(y, batch + m + n)]

    def _before(self, value: Value, labels: str) -> Iterator[_Side]:
        node = self.graph.writer.get(value.array)
        if node is None or node.op_type != "Transpose" or node.domain or node.implementation:
            return
        if self.graph.is_result(value.array) or len(self.graph.readers(value.array)) > 1:
            self._refuse(node, "what Transpose returns has another reader")
            return
        (source,) = (Value(a, self.graph) for a in self.graph.operands(node) if a is not None)
        named = dict(zip(order_of(node, source.rank), labels, strict=True))
        yield _Side(value=source, labels="".join(named[d] for d in range(source.rank)), transposes=node)

    def _behind(self, value: Value, labels: str) -> Iterator[_Side]:
        readers = self.graph.readers(value.array)
        if self.graph.is_result(value.array) or len(readers) != 1:
            return
        (node,) = readers
        if (
            not isinstance(node, ONNXNode)
            or node.op_type != "Transpose"
            or node.domain
            or node.implementation
        ):
            return
        (result,) = (Value(a, self.graph) for a in self.graph.results(node) if a is not None)
        order = order_of(node, value.rank)
        yield _Side(value=result, labels="".join(labels[d] for d in order), transposes=node)

    def _put(self, node: ONNXNode, left: _Side, right: _Side, result: _Side) -> None:
        """The product that does what its neighbours did."""
        op = ReplacementOps(self.graph, node, NAME)
        if left.value.rank == right.value.rank == 2:
            rows, inner, columns = _matrix_labels(left, right, result)
            first, second = (left, right) if rows in left.labels else (right, left)
            made = op.Gemm(
                first.value,
                second.value,
                transA=int(first.labels != rows + inner),
                transB=int(second.labels != inner + columns),
                shape=result.value.shape,
            )
        else:
            equation = f"{left.labels},{right.labels}->{result.labels}"
            made = op.Einsum(left.value, right.value, equation=equation, shape=result.value.shape)
        take_place(self.graph, result.value.array, made.array)
        gone = [s.transposes for s in (left, right, result) if s.transposes is not None]
        remove_unread(self.graph, [node, *gone])
        self.taken += len(gone)

    def _refuse(self, node: ONNXNode, reason: str) -> None:
        self.refused.append(refused_result(node, reason, self.graph))


def _matrix_labels(left: _Side, right: _Side, result: _Side) -> tuple[str, str, str]:
    rows, columns = result.labels
    (inner,) = set(left.labels) & set(right.labels)
    return rows, inner, columns


def _refusal(left: _Side, right: _Side, result: _Side) -> str | None:
    """Why the product or one of its gradients is not one call over views."""
    if any(elements(s.value.shape) == 0 for s in (left, right, result)):
        return "an operand is empty"
    if len({s.value.dtype for s in (left, right, result)}) > 1:
        return "its operands differ in type"
    y, a, b = (_labelled(s) for s in (result, left, right))
    for what, target, first, second in (
        ("", y, a, b),
        ("its gradients: ", a, y, b),
        ("its gradients: ", b, y, a),
    ):
        found = product_dims(target, first, second)
        if isinstance(found, str):
            return what + found
    return None


def _labelled(side: _Side) -> LabelledShape:
    return side.labels, side.value.shape
