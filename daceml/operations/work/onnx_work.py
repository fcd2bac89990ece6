"""What nodes of ONNX graphs compute and move, from the shapes of their inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from daceml.devices.roofline import Work
from daceml.operations.database.records import Operand, Operation

Flops = Callable[[Operation, Sequence[Operand]], float]

_ARITHMETIC = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float32"}


def _matmul(node: Operation, results: Sequence[Operand]) -> float:
    return 2.0 * results[0].elements * node.operands[0].shape[-1]


def _gemm(node: Operation, results: Sequence[Operand]) -> float:
    return 2.0 * results[0].elements * node.operands[0].shape[0 if node.attributes.get("transA") else 1]


def _conv(node: Operation, results: Sequence[Operand]) -> float:
    return 2.0 * results[0].elements * prod(node.operands[1].shape[1:])


def _conv_transpose(node: Operation, results: Sequence[Operand]) -> float:
    return 2.0 * node.operands[0].elements * prod(node.operands[1].shape[1:])


def _einsum(node: Operation, results: Sequence[Operand]) -> float:
    """Every combination of all labels once; an ellipsis counts as the axes it stands for."""
    terms = str(node.attributes.get("equation", "")).replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    ellipsis = 1
    for term, operand in zip(terms, node.operands, strict=False):
        before, dots, behind = term.partition("...")
        sizes |= dict(zip(before, operand.shape, strict=False))
        if dots:
            sizes |= dict(zip(reversed(behind), reversed(operand.shape), strict=False))
            ellipsis = max(ellipsis, prod(operand.shape[len(before) : len(operand.shape) - len(behind)]))
    return 2.0 * prod(sizes.values()) * ellipsis


def _recurrent(node: Operation, results: Sequence[Operand]) -> float:
    """Each step multiplies with both weights of each direction; X [steps, batch, inputs]."""
    steps, batch, *_ = node.operands[0].shape
    return 2.0 * steps * batch * sum(one.elements for one in node.operands[1:3])


def _attention(node: Operation, results: Sequence[Operand]) -> float:
    """Two products for each pair of a query and a key; 4 axes, or 3 with the heads side by side."""
    query, key = node.operands[:2]
    return 4.0 * query.elements * key.shape[-2]


CONTRACTIONS: dict[str, Flops] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Attention": _attention,
}

FREE = (
    "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Constant", "Dropout",
    "OptionalGetElement", "OptionalHasElement",
)  # fmt: skip
"""What only looks at memory, or is known before anything runs; Dropout is so outside of training."""


def _by_name(groups: Mapping[float, tuple[str, ...]]) -> dict[str, float]:
    return {name: flops for flops, names in groups.items() for name in names}


# Operations an element of the result; a division or a root counts as one, a transcendental function as eight.
ELEMENTWISE = _by_name({
    1.0: (
        "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Min", "Max", "Relu", "Not", "And", "Or", "Xor", "Equal",
        "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Where", "Sign", "Floor", "Ceil", "Round", "Sqrt",
        "Reciprocal", "Mod", "IsNaN", "IsInf", "BitShift", "Sum", "Mean",
    ),
    3.0: (
        "Clip", "LeakyRelu", "PRelu", "HardSigmoid", "ThresholdedRelu", "Shrink", "HardSwish",
        "QuantizeLinear", "DequantizeLinear",
    ),
    8.0: (
        "Exp", "Log", "Tanh", "Sigmoid", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Tan", "Asin", "Acos",
        "Atan", "Sinh", "Cosh", "Pow", "Elu", "Selu", "Celu", "Resize", "Upsample", "GridSample",
    ),
    12.0: ("Gelu", "Mish", "Swish"),
})  # fmt: skip

# Operations an element of the first operand.
BY_OPERAND = _by_name({
    1.0: (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin", "CumSum",
        "GlobalAveragePool", "GlobalMaxPool",
    ),
    2.0: ("ReduceL1", "ReduceL2", "ReduceSumSquare", "LpNormalization", "BatchNormalization"),
    5.0: ("RMSNormalization", "SimplifiedLayerNormalization", "TopK"),
    8.0: ("LayerNormalization", "GroupNormalization", "InstanceNormalization"),
    12.0: ("ReduceLogSum", "ReduceLogSumExp", "Softmax", "LogSoftmax", "Hardmax"),
})  # fmt: skip

MOVEMENTS = (
    "Transpose", "Concat", "Split", "Pad", "Expand", "Tile", "Cast", "CastLike", "Trilu", "DepthToSpace",
    "SpaceToDepth", "ReverseSequence", "ConstantOfShape", "Range", "OneHot", "EyeLike", "ScatterElements",
    "ScatterND", "TensorScatter",
)  # fmt: skip
PICKED = ("Slice", "Gather", "GatherElements", "GatherND", "Compress")
"""Of the first operand, only as much is read as is written."""


def onnx_work(node: Operation, results: Sequence[Operand]) -> Work | None:
    """Flops and bytes of one node; None of an operator that no table has.

    Args:
        node: inputs that are there, in their order; attributes as the file has them.
        results: outputs that are there.
    Raises:
        EntryError: a type without a size.
    """
    name = node.operator
    if name in FREE or not results:
        return Work(flops=0.0, bytes_moved=0.0)
    written = float(sum(one.size_bytes for one in results))
    read = float(sum(one.size_bytes for one in node.operands))
    arithmetic = "float32"
    if name in CONTRACTIONS:
        flops = CONTRACTIONS[name](node, results)
        arithmetic = _ARITHMETIC.get(node.operands[0].dtype, "")
        if not arithmetic:
            return None
    elif name in ELEMENTWISE:
        flops = ELEMENTWISE[name] * results[0].elements
    elif name in BY_OPERAND:
        flops = BY_OPERAND[name] * node.operands[0].elements
    elif name in ("MaxPool", "AveragePool", "LpPool"):
        window = node.attributes.get("kernel_shape", ())
        flops = float(results[0].elements * (prod(map(int, window)) if isinstance(window, tuple) else 1))
    elif name in MOVEMENTS:
        flops = 0.0
    elif name in PICKED:
        flops, read = 0.0, written + sum(one.size_bytes for one in node.operands[1:])
    else:
        return None
    return Work(flops=float(flops), bytes_moved=read + written, arithmetic=arithmetic)
