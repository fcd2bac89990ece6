"""What kind of work a device did, by what vendors, PyTorch and compilers call their kernels.

One vocabulary for all vendors: a product of matrices is "GEMM" whether cuBLAS, CUTLASS, rocBLAS or hipBLASLt
computes it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

from daceml.profiling.kernel_names import function_of

KernelClass = Literal[
    "GEMM", "convolution", "attention", "normalisation", "elementwise", "reduction", "copy", "collective",
    "compiled", "other",
]  # fmt: skip
CLASSES: tuple[KernelClass, ...] = get_args(KernelClass)
# computed by vendors' libraries, which choose another kernel on another device
PRODUCTS: tuple[KernelClass, ...] = ("GEMM", "convolution", "attention")

# The first that is found counts: a convolution by implicit products is a convolution, a normalisation that
# PyTorch wrote with its elementwise loop is a normalisation.
_NAMES: tuple[tuple[KernelClass, str], ...] = (
    ("collective", r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|alltoall"),
    ("attention", r"flash|fmha|attn|attention|mha_"),
    (
        "normalisation",
        r"bn_(fw|bw)|batch_?norm|layer_?norm|group_?norm|rms_?norm|RowwiseMoments|GammaBeta|cuComputePartGrad",
    ),
    (
        "convolution",
        r"conv|winograd|dgrad|wgrad|fprop|igemm_(fwd|bwd|wrw)|gemm_xdlops_bwd_weight|miopen.*(fwd|bwd|wrw)",
    ),
    # helpers of libraries that only move data from one layout to another
    (
        "copy",
        r"batched_transpose|nchwToNhwc|nhwcToNchw|SubTensorOp|im2col|col2im|CatArray|direct_copy|copy_kernel"
        r"|copyBuffer|memcpy|index_?select|indexing_backward|gather|scatter|index_elementwise|embedding|transpose"
        r"|index_kernel|index_put",
    ),
    (
        "GEMM",
        r"(?<!fb)gemm|gemv|cutlass|Cijk_|xmma|hmma|cublas|nvjet|matmul|splitK|dot_kernel|tensile|triton_tem",
    ),
    (
        "reduction",
        r"reduce|softmax|triton_(red|per)|cunn_|nll_loss|sort|topk|scan|arg_?m(ax|in)|multi_tensor.*norm",
    ),
    (
        "elementwise",
        r"elementwise|pointwise|vectorized|unrolled|triton_poi|multi_tensor|clamp|relu|dropout|Fill|pool",
    ),
)  # fmt: skip
_OPERATORS: tuple[tuple[KernelClass, str], ...] = (
    ("attention", r"attention"),
    ("convolution", r"conv"),
    ("GEMM", r"(^|::)_?(addmm|mm|bmm|baddbmm|matmul|linear|scaled_mm|mv|addmv|dot)(\b|_|$)"),
    ("normalisation", r"norm"),
    ("elementwise", r"pool|upsample"),
    ("reduction", r"softmax|loss|(^|::)_?(sum|mean|max|min|argmax|argmin|topk|sort|all|any|cumsum)_?\b"),
    (
        "copy",
        r"(^|::)_?(copy|cat|stack|index|gather|scatter|embedding|clone|contiguous|to_copy|index_select)",
    ),
)
_Patterns = list[tuple[KernelClass, re.Pattern[str]]]
_BY_NAME: _Patterns = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _NAMES]
_BY_OPERATOR: _Patterns = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _OPERATORS]


@lru_cache(maxsize=4096)
def kernel_class(name: str, operator: str = "") -> KernelClass:
    """The class of a kernel.

    Args:
        name: as the profiler has it, mangled or not.
        operator: of the framework that led to it ("aten::conv2d"), "" where nobody knows: it tells products
            that are convolutions, and what kernels do whose names say nothing.
    """
    if function_of(name) is not None:
        return "compiled"
    found = _first(_BY_NAME, name)
    asked = _first(_BY_OPERATOR, operator)
    if found == "GEMM" and asked in ("convolution", "attention"):
        return asked
    return found or asked or "other"


def _first(patterns: _Patterns, text: str) -> KernelClass | None:
    return next((kind for kind, pattern in patterns if pattern.search(text)), None)
