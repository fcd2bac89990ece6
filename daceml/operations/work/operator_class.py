"""What kind of operation an operator is: ATen's and ONNX's names."""

from __future__ import annotations

import re
from typing import Literal

OperatorClass = Literal[
    "product", "convolution", "attention", "normalization", "softmax", "pooling", "lookup", "reduction",
    "optimizer", "copy", "elementwise",
]  # fmt: skip

# The first one of whose patterns one is found in the operator's name, without what stands before "::".
_CLASSES: tuple[tuple[OperatorClass, tuple[str, ...]], ...] = (
    ("optimizer", (r"^_?foreach", r"^_fused_(adam|adamw|sgd|adagrad)")),
    ("attention", (r"attention",)),
    ("convolution", (r"conv",)),
    ("normalization", (r"(batch|layer|group|instance|rms)_?norm", r"normalization$")),
    ("product", (
        r"^(add|badd)?b?mm$", r"^_(scaled|grouped|int)_mm$", r"^(add)?mv$", r"^linear$", r"^matmul",
        r"^gemm$", r"^einsum", r"^dot$", r"^(lstm|gru|rnn)$", r"rnn",
    )),
    ("softmax", (r"softmax", r"cross_?entropy", r"nll_loss")),
    ("pooling", (r"pool",)),
    ("lookup", (r"embedding", r"gather", r"scatter", r"index", r"one_?hot", r"^take", r"^_?put")),
    ("reduction", (
        r"^_?(sum|mean|var|std|prod|amax|amin|max|min|all|any|cumsum|topk|sort)(_mean|_dim)?$", r"^reduce",
        r"^arg(max|min)$", r"vector_norm$", r"loss",
    )),
    ("copy", (
        r"^_?(to_)?copy_?$", r"clone", r"^_?(cat|concat|stack|pad|tile|repeat|expand|transpose|split|slice)$",
        r"(slice|select)_backward", r"constant_pad", r"^(zero|fill|full|empty|ones|new)(_|s|$)",
    )),
)  # fmt: skip
_COMPILED: list[tuple[OperatorClass, re.Pattern[str]]] = [
    (name, re.compile("|".join(patterns))) for name, patterns in _CLASSES
]


def operator_class(operator: str) -> OperatorClass:
    """The kind of an operator ("aten::addmm", "Gemm"); what none of the patterns finds works by element."""
    bare = operator.rpartition("::")[2].lower()
    for name, pattern in _COMPILED:
        if pattern.search(bare):
            return name
    return "elementwise"
