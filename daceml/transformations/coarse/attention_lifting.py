"""lift_attention: scaled dot-product attention where it is spelled out.

softmax(q k' * scale) v                       ->   Attention(q, k, v)
softmax(q k' * scale + mask) v                ->   Attention(q, k, v, mask)
softmax(where(hidden, -inf, q k' * scale)) v  ->   Attention(q, k, v, where(hidden, -inf, 0))

The operator is ONNX's with the numbers of the steps (`daceml.onnx_ops.domain.saving`): a row of scores of
-inf, or of NaN, is NaN, and a hidden score has no gradient, whatever it was. torch's fused kernel keeps no
matrix of scores. Where one fits the caches, two products with a softmax between them are as fast, and faster
in training, where the kernel computes it again. On one thread of an AVX-512 CPU, lifted against spelled out,
[2, 12, S, 64] float32 takes 1.0, 0.87, 0.68, 0.7 of the time for S = 128, 192, 384, 512, and with gradients
1.4, 1.2, 0.94, 0.95.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import dace
import numpy as np

from daceml.onnx_ops.aten.attention import mask_strides
from daceml.onnx_ops.domain.saving import DOMAIN, saving
from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, is_nearly, rewrite_forms, rounded_once
from daceml.transformations.coarse.transpositions import order_of
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.replacement import Value

NAME = "lift_attention"


@by_place
def lift_attention(network: Network, *, training: bool = False, fewest_keys: int = 192) -> int:
    """Make one operator of each spelled-out attention. Mutates the network, which is not lowered yet.

    Args:
        training: gradients follow.
        fewest_keys: from which on the kernel is faster.
    Returns:
        how many were found.
    """
    forms = (_WithDropout(NAME), _Attention(training, fewest_keys))
    return rewrite_forms(network, forms, marks=("Softmax",))


class _WithDropout(Form):
    """Is left as it is"""

    def pattern(self, op: Any, weights: Any, ratio: Any, active: Any, v: Any) -> Any:
        return op.MatMul(op.Dropout(op.Softmax(weights), ratio, active), v)

    def check(self) -> str | None:
        return "dropout lies between the weights and the values, and the attention kernel has none"

    def rewrite(self) -> Any:
        raise AssertionError("check refuses")

    shape_of = ""


class _Attention(Form):
    """softmax(scores) v, where the scores are read back to queries and keys.

    Args:
        training, fewest_keys: those of the pass.
    """

    shape_of = ""

    def __init__(self, training: bool, fewest_keys: int) -> None:
        super().__init__(NAME)
        self.training, self.fewest_keys = training, fewest_keys

    def pattern(self, op: Any, scores: Any, v: Any) -> Any:
        return op.MatMul(op.Softmax(scores, name="softmax"), v)

    def check(self, scores: Any, v: Any, softmax: Any) -> str | None:
        if softmax.axis not in (-1, scores.rank - 1):
            return f"its softmax is over dimension {softmax.axis} of {scores.rank}, not the last one"
        read = _read_back(scores)
        if isinstance(read, str):
            return read
        return _types_and_shapes(read, v) or self._too_few(v) or _mask_refusal(read, v, self.training)

    def _too_few(self, v: Value) -> str | None:
        keys = v.shape[-2]
        assert isinstance(keys, int), "no size is symbolic"
        few = keys < self.fewest_keys
        return f"{keys} keys: below {self.fewest_keys} the products are as fast" if few else None

    def rewrite(self, op: Any, scores: Any, v: Any) -> Any:
        read = _read_back(scores)
        assert not isinstance(read, str), "check has refused"
        q, k, mask = read.q, _keys(op, read), read.mask
        if read.hidden is not None:
            minus, zero = (np.array(n, BY_DACE_TYPE[q.dtype].numpy_type) for n in (-math.inf, 0.0))
            mask = op.Where(read.hidden, *((zero, minus) if read.shown else (minus, zero)))
        attributes: dict[str, Any] = {"as_spelled": 1, "mask_hides": int(read.hidden is not None)}
        if read.scale is not None:
            attributes["scale"] = read.scale
        made = getattr(op, saving("Attention"))
        shape = (*q.shape[:-1], v.shape[-1])
        if q.rank == 4:
            return made(q, k, v, mask, domain=DOMAIN, shape=shape, dtype=q.dtype, **attributes)
        q, k, v = (op.Unsqueeze(t, [1]) for t in (q, k, v))
        if mask is not None and mask.rank == 3:
            mask = op.Unsqueeze(mask, [1])
        apart = (shape[0], 1, *shape[1:])
        y = made(q, k, v, mask, domain=DOMAIN, shape=apart, dtype=q.dtype, **attributes)
        return op.Squeeze(y, [1])


@dataclass(frozen=True, kw_only=True)
class _Scores:
    """What scores are made of.

    Attributes:
        turned: keys as they stand in the product, [..., E, S].
        source, order: they are this tensor, transposed; None and () where nothing transposes them.
        scale: of the product; None where it is 1 / sqrt(E).
        mask: is added.
        hidden: condition under which a score is -inf, or `shown`, under which it is not.
        product: q k'.
    """

    q: Value
    turned: Value
    source: Value | None = None
    order: tuple[int, ...] = ()
    scale: float | None = 1.0
    mask: Value | None = None
    hidden: Value | None = None
    shown: bool = False
    product: Value


def _read_back(scores: Value) -> _Scores | str:
    """Scores as mask, scale and product, or why they are not."""
    graph = scores.graph
    found: dict[str, Any] = {}
    node = graph.writer.get(scores.array)
    if node is not None and node.op_type == "Where" and not node.domain:
        chosen = _hidden(node, graph)
        if isinstance(chosen, str):
            return chosen
        found["hidden"], scores, found["shown"] = chosen
    elif node is not None and node.op_type == "Add":
        first, second = _values(node, graph)
        if not _is_scaled_product(first, graph):
            first, second = second, first
        scores, found["mask"] = first, second
    node = graph.writer.get(scores.array)
    if node is not None and node.op_type in ("Mul", "Div"):
        scaled = _scaled(node, graph)
        if isinstance(scaled, str):
            return scaled
        scores, found["scale"] = scaled
    node = graph.writer.get(scores.array)
    if node is None or node.op_type != "MatMul":
        return "its scores are not a matrix multiplication of queries and keys"
    q, turned = _values(node, graph)
    above = graph.writer.get(turned.array)
    if above is not None and above.op_type == "Transpose":
        (source,) = _values(above, graph)
        found |= {"source": source, "order": order_of(above, source.rank)}
    if "scale" in found and isinstance(q.shape[-1], int):
        exact = np.array(found["scale"], np.float64 if q.dtype == dace.float64 else np.float32)
        if is_nearly(exact, 1 / math.sqrt(max(q.shape[-1], 1))):
            found["scale"] = None
    made = _Scores(q=q, turned=turned, product=scores, **found)
    return _elsewhere(made, graph) or made


def _hidden(node: ONNXNode, graph: OperatorGraph) -> tuple[Value, Value, bool] | str:
    """Condition, scores and whether it shows them, of a choice between scores and -inf."""
    condition, yes, no = _values(node, graph)
    for scores, filler, shown in ((yes, no, True), (no, yes, False)):
        if filler.constant is not None and filler.constant.size == 1:
            number = float(filler.constant.reshape(()))
            if number == -math.inf:
                return condition, scores, shown
            return f"its mask makes {number:.6g} of a score, so a row of those alone has equal weights"
    return "its mask replaces scores by computed numbers"


def _scaled(node: ONNXNode, graph: OperatorGraph) -> tuple[Value, float] | str:
    first, second = _values(node, graph)
    if node.op_type == "Mul" and first.constant is not None:
        first, second = second, first
    if second.constant is None or second.constant.size != 1:
        return f"its scale {second.array} is not a constant with one element"
    number = float(second.constant.reshape(()))
    scale = number if node.op_type == "Mul" else 1 / number if number else math.inf
    if not 0 < scale < math.inf:
        return f"its scale {scale:.6g} is not positive"
    return first, scale


def _values(node: ONNXNode, graph: OperatorGraph) -> list[Value]:
    return [Value(a, graph) for a in graph.operands(node) if a is not None]


def _is_scaled_product(value: Value, graph: OperatorGraph) -> bool:
    node = graph.writer.get(value.array)
    if node is not None and node.op_type in ("Mul", "Div"):
        scaled = _scaled(node, graph)
        node = None if isinstance(scaled, str) else graph.writer.get(scaled[0].array)
    return node is not None and node.op_type == "MatMul"


def _elsewhere(read: _Scores, graph: OperatorGraph) -> str | None:
    """Whether the product is needed in any case."""
    array = read.product.array
    if graph.is_result(array) or len(graph.readers(array)) > 1:
        return "another operator also reads its scores"
    return None


def _types_and_shapes(read: _Scores, v: Value) -> str | None:
    q, turned = read.q, read.turned
    if q.rank not in (3, 4) or not q.rank == turned.rank == v.rank:
        return f"operands of {q.rank}, {turned.rank} and {v.rank} dimensions"
    if any(not isinstance(n, int) for t in (q, turned, v) for n in t.shape):
        return "a size is symbolic, so the faster form is not known"
    if q.shape[:-2] != turned.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        return "heads or batches are broadcast"
    if q.shape[-1] != v.shape[-1]:
        return "values and queries differ in width"
    if any(n == 0 for t in (q, turned, v) for n in t.shape):
        return "an operand is empty"
    return rounded_once(q)


def _mask_refusal(read: _Scores, v: Value, training: bool) -> str | None:
    mask = read.mask if read.hidden is None else read.hidden
    if mask is None:
        return None
    scores = (*read.q.shape[:-1], v.shape[-2])
    shape, apart = mask.shape, scores
    if len(scores) == 3:
        apart = (scores[0], 1, *scores[1:])
        shape = (shape[0], 1, *shape[1:]) if len(shape) == 3 else shape
    if mask_strides(shape, apart) is None:
        return f"a mask of shape {list(mask.shape)} for scores of shape {list(scores)}"
    if read.hidden is not None:
        return None
    if mask.dtype != read.q.dtype:
        return f"its mask is {mask.dtype.to_string()}, its scores are {read.q.dtype.to_string()}"
    if training and _may_have_gradient(mask.array, mask.graph):
        return "its mask may need a gradient, which the attention kernel does not compute"
    return None


def _may_have_gradient(array: str, graph: OperatorGraph) -> bool:
    """Whether an array is computed from inputs or weights of a floating type."""
    waiting, seen = [array], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name in graph.network.constants:
            continue
        seen.add(name)
        if np.dtype(graph.network.sdfg.arrays[name].dtype.type).kind != "f":
            continue
        node = graph.writer.get(name)
        if node is None:
            return True
        waiting += [a for a in graph.operands(node) if a is not None]
    return False


def _keys(op: Any, read: _Scores) -> Value:
    """Keys as [..., S, E]."""
    last = read.turned.rank - 1
    swap = (*range(last - 1), last, last - 1)
    if read.source is None:
        return op.Transpose(read.turned, perm=list(swap))
    order = [read.order[d] for d in swap]
    return read.source if order == sorted(order) else op.Transpose(read.source, perm=order)
