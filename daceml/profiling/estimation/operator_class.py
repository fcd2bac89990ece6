"""What kind of operation an operator is: ATen's and ONNX's names."""

from __future__ import annotations

import re
from typing import Literal

OperatorClass = Literal[
    "product", "convolution", "attention", "normalization", "softmax", "pooling", "lookup", "reduction",
    "optimizer", "copy", "elementwise",
]  # fmt: skip

# The first one whose pattern is found in the operator's name, without what stands before "::".
_CLASSES: tuple[tuple[OperatorClass, str], ...] = (
    ("optimizer", r"^_?foreach|^_fused_(adam|adamw|sgd|adagrad)"),
    ("attention", r"attention"),
    ("convolution", r"conv"),
    ("normalization", r"norm(_|$|al)|normalization$"),
    ("product", r"^_?(add|ba?dd)?b?mm(_|$)|^addm[mv]|^baddbmm|^_?(scaled_|grouped_)?mm(_|$)|^linear|^matmul|^gemm"
                r"|^einsum|^dot$|^mv$|^addbmm|^ger$|^matmulinteger|^(lstm|gru|rnn)$|rnn"),
    ("softmax", r"softmax|cross_entropy|nll_loss"),
    ("pooling", r"pool"),
    ("lookup", r"embedding|gather|scatter|index|onehot|one_hot|take|put"),
    ("reduction", r"^_?(sum|mean|var|std|prod|amax|amin|max|min|argmax|argmin|all|any|norm|cumsum|topk|sort)(_|$)"
                  r"|^reduce|^arg(max|min)|loss"),
    ("copy", r"^_?(to_)?copy|clone|^_?cat$|^concat|^stack|^contiguous|^transpose$|^pad$|constant_pad|^expand$"
             r"|^tile$|^repeat|^split$|^slice|slice_backward|select_backward|^zero|^fill|^full|^empty|^ones|^new_"),
)  # fmt: skip
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)


def operator_class(operator: str) -> OperatorClass:
    """The kind of an operator ("aten::addmm", "Gemm"); what none of the patterns finds works by element."""
    bare = operator.rpartition("::")[2].lower()
    return next((name for name, pattern in _COMPILED if pattern.search(bare)), "elementwise")
