"""Products of matrices, convolutions and attention: what they compute and write.

Flops are those of `torch.utils.flop_counter`, with two differences: gradients of the weights of a grouped
convolution are divided by the groups, and causal attention is half of the full one, as its kernels skip what
is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.work_rule import Flops, Results, Rules, WorkRule, integers, like

_FLASH_BACKWARD = 2.5  # scores again, and the gradients of scores, query, key and value: 5 products for 2


def _product(first: int) -> WorkRule:
    """A matrix times a matrix or a batch of both: operands [.., m, k] and [.., k, n] from `first` on."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        if len(operation.operands) < first + 2:
            return None
        a, b = operation.operands[first : first + 2]
        return [like(a, shape=(*a.shape[:-1], b.shape[-1]))] if len(a.shape) == len(b.shape) >= 2 else None

    def flops(operation: Operation, results: Sequence[Operand]) -> float:
        return 2.0 * operation.operands[first].elements * operation.operands[first + 1].shape[-1]

    return WorkRule(results=results, flops=flops, unit="matrix")


def _matmul(operation: Operation) -> Sequence[Operand] | None:
    """As numpy has it: a vector is a row on the left and a column on the right."""
    if len(operation.operands) < 2:
        return None
    a, b = operation.operands[:2]
    if not a.shape or not b.shape:
        return None
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        return None
    rows, columns = a.shape[-2:-1], b.shape[-1:] if len(b.shape) > 1 else ()
    return [like(a, shape=(*batch, *rows, *columns))]


def _times_depth(operation: Operation, results: Sequence[Operand]) -> float:
    return 2.0 * results[0].elements * operation.operands[0].shape[-1]


def _linear(operation: Operation) -> Sequence[Operand] | None:
    """Operands [.., k] and [n, k]."""
    if len(operation.operands) < 2 or not operation.operands[0].shape:
        return None
    x, weight = operation.operands[:2]
    return [like(x, shape=(*x.shape[:-1], *weight.shape[:-1]))]


def _convolution(x: int, weight: int, rank: int | None = None, transposed: bool = False) -> Results:
    """Operands [N, C, ...] and [out, in / groups, ...], of a transposed one [in, out / groups, ...]."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        if len(operation.operands) <= max(x, weight):
            return None
        image, kernel = operation.operands[x], operation.operands[weight]
        sizes = len(kernel.shape) - 2
        if sizes < 1 or len(image.shape) != sizes + 2 or (rank is not None and sizes != rank):
            return None
        told = operation.attributes
        stride, padding, dilation, after = (
            integers(told.get(name), sizes, default)
            for name, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
        )
        groups = integers(told.get("groups"), 1, 1)[0]
        if told.get("padding") == "same":
            spatial = [-(-n // s) for n, s in zip(image.shape[2:], stride, strict=True)]
        elif transposed or told.get("transposed") is True:
            spatial = [
                (n - 1) * s - 2 * p + d * (k - 1) + 1 + o
                for n, s, p, d, k, o in zip(
                    image.shape[2:], stride, padding, dilation, kernel.shape[2:], after, strict=True
                )
            ]
            return [like(image, shape=(image.shape[0], kernel.shape[1] * groups, *spatial))]
        else:
            spatial = [
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, s, p, d, k in zip(
                    image.shape[2:], stride, padding, dilation, kernel.shape[2:], strict=True
                )
            ]
        return [like(image, shape=(image.shape[0], kernel.shape[0], *spatial))]

    return results


def _convolution_flops(transposed: bool = False) -> Flops:
    """Every element of the weight meets every position of the result, or of a transposed one's operand."""

    def flops(operation: Operation, results: Sequence[Operand]) -> float:
        image, weight = operation.operands[:2]
        met = image if transposed or operation.attributes.get("transposed") is True else results[0]
        return 2.0 * met.shape[0] * prod(met.shape[2:]) * weight.elements

    return flops


def _gradient_mask(operation: Operation) -> tuple[bool, ...]:
    mask = operation.attributes.get("output_mask")
    return tuple(map(bool, mask)) if isinstance(mask, tuple) else (True, True, True)


def _convolution_gradients(operation: Operation) -> Sequence[Operand] | None:
    """Operands (gradient, input, weight)."""
    if len(operation.operands) < 3:
        return None
    gradient, image, weight = operation.operands[:3]
    every = [like(image), like(weight), like(gradient, shape=gradient.shape[1:2])]
    return [one for one, asked in zip(every, _gradient_mask(operation), strict=False) if asked]


def _convolution_gradient_flops(operation: Operation, results: Sequence[Operand]) -> float:
    gradient, image, weight = operation.operands[:3]
    met = image if operation.attributes.get("transposed") is True else gradient
    one = 2.0 * met.shape[0] * prod(met.shape[2:]) * weight.elements
    return one * sum(_gradient_mask(operation)[:2])


def _attention(query: int, *, heads_inside: bool = False, gradients: bool = False) -> WorkRule:
    """Operands [batch, heads, length, depth] from `query` on; lengths before heads where `heads_inside`."""
    length = 1 if heads_inside else 2

    def results(operation: Operation) -> Sequence[Operand] | None:
        if len(operation.operands) < query + 3 or len(operation.operands[query].shape) < 3:
            return None
        q, k, v = operation.operands[query : query + 3]
        if any(len(one.shape) != 4 for one in (q, k, v)):
            return None
        if gradients:
            return [like(q), like(k), like(v)]
        rows = (*(n for at, n in enumerate(q.shape[:3]) if at != length), q.shape[length])
        return [like(q, shape=(*q.shape[:-1], v.shape[-1])), like(q, shape=rows, dtype="float32")]

    def flops(operation: Operation, results: Sequence[Operand]) -> float:
        q, k, v = operation.operands[query : query + 3]
        pairs = q.elements // max(q.shape[-1], 1) * k.shape[length]
        causal = operation.attributes.get("is_causal") is True and q.shape[length] == k.shape[length]
        products = 3 * q.shape[-1] + 2 * v.shape[-1] if gradients else q.shape[-1] + v.shape[-1]
        return 2.0 * pairs * products * (0.5 if causal else 1.0)

    return WorkRule(results=results, flops=flops, unit="matrix", backward=_FLASH_BACKWARD)


def _broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    rank = max(len(a), len(b))
    padded = [(1,) * (rank - len(one)) + tuple(one) for one in (a, b)]
    if any(m != n and 1 not in (m, n) for m, n in zip(*padded, strict=True)):
        return None
    return tuple(n if m == 1 else m for m, n in zip(*padded, strict=True))


_MATMUL = WorkRule(results=_matmul, flops=_times_depth, unit="matrix")
_LINEAR = WorkRule(results=_linear, flops=_times_depth, unit="matrix")
_CONVOLUTION = WorkRule(results=_convolution(0, 1), flops=_convolution_flops(), unit="matrix")
_TRANSPOSED = WorkRule(
    results=_convolution(0, 1, transposed=True), flops=_convolution_flops(transposed=True), unit="matrix"
)

CONTRACTIONS: Rules = {
    **dict.fromkeys(("mm", "bmm", "_scaled_mm", "_int_mm"), _product(0)),
    **dict.fromkeys(("addmm", "baddbmm", "_addmm_activation"), _product(1)),
    **dict.fromkeys(("matmul", "mv", "dot"), _MATMUL),
    "linear": _LINEAR,
    **dict.fromkeys(
        (
            "convolution", "_convolution", "conv1d", "conv2d", "conv3d", "cudnn_convolution",
            "miopen_convolution", "mkldnn_convolution", "convolution_overrideable", "_slow_conv2d_forward",
            "conv_depthwise3d", "_conv_depthwise2d", "miopen_depthwise_convolution",
        ),
        _CONVOLUTION,
    ),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cudnn_convolution_transpose"),
        _TRANSPOSED,
    ),
    "convolution_backward": WorkRule(
        results=_convolution_gradients, flops=_convolution_gradient_flops, unit="matrix"
    ),
    **dict.fromkeys(
        (
            "scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math",
            "_scaled_dot_product_fused_attention_overrideable",
        ),
        _attention(0),
    ),
    **dict.fromkeys(
        ("_flash_attention_forward", "_efficient_attention_forward"), _attention(0, heads_inside=True)
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        _attention(1, gradients=True),
    ),
    **dict.fromkeys(
        ("_flash_attention_backward", "_efficient_attention_backward"),
        _attention(1, heads_inside=True, gradients=True),
    ),
}  # fmt: skip
