"""Operators that go through rows: reductions, normalisations, softmax and losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.work_rule import Results, Rules, WorkRule, as_first, axes, like, per_operand


def _reduced(*dtypes: str | None) -> Results:
    """One result for each type (None is that of the operand), without the dimensions that `dim` names."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        if not operation.operands:
            return None
        first, told = operation.operands[0], operation.attributes
        gone = axes(told.get("dim", told.get("axis")), len(first.shape))
        kept = told.get("keepdim") is True
        shape = [1 if at in gone else n for at, n in enumerate(first.shape) if kept or at not in gone]
        return [like(first, shape=shape, dtype=dtype) for dtype in dtypes]

    return results


def _normalised(*statistics: Callable[[Operation], Sequence[int]]) -> Results:
    """The operand again, and statistics of it in float32."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        if not operation.operands:
            return None
        first = operation.operands[0]
        return [like(first), *(like(first, shape=one(operation), dtype="float32") for one in statistics)]

    return results


def _rows(operation: Operation) -> Sequence[int]:
    """Of a layer normalisation: what is before the dimensions of `normalized_shape`."""
    first = operation.operands[0].shape
    shape = operation.attributes.get("normalized_shape")
    inner = len(shape) if isinstance(shape, tuple) else 1
    return first[: len(first) - inner]


def _channels(operation: Operation) -> Sequence[int]:
    return operation.operands[0].shape[1:2]


def _groups(operation: Operation) -> Sequence[int]:
    group = operation.attributes.get("group", operation.attributes.get("num_groups", 1))
    return (*operation.operands[0].shape[:1], group if isinstance(group, int) else 1)


def _norm_gradients(place: int) -> Results:
    """Of the operand at `place`, and of weights and biases as long as the smallest parameter."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        if len(operation.operands) <= place:
            return None
        x = operation.operands[place]
        weights = [one for one in operation.operands[place + 1 :] if one.dtype == x.dtype]
        parameter = min(weights, key=lambda one: one.elements, default=None)
        found = [like(x)] + ([like(parameter)] * 2 if parameter is not None else [])
        mask = operation.attributes.get("output_mask")
        asked = mask if isinstance(mask, tuple) else (True, True, True)
        return [one for one, yes in zip(found, asked, strict=False) if yes]

    return results


def _loss(per_row: bool = False) -> Results:
    """One number, or with reduction "none" (0) one for each element or row."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        if not operation.operands:
            return None
        first = operation.operands[0]
        none = operation.attributes.get("reduction", 1) in (0, "none")
        whole = (*first.shape[:1], *first.shape[2:]) if per_row else first.shape
        return [like(first, shape=whole if none else ())]

    return results


def _weighted_loss(operation: Operation) -> Sequence[Operand] | None:
    """A loss of each row, and the sum of the weights."""
    loss = _loss(per_row=True)(operation)
    return None if loss is None else [*loss, like(loss[0], shape=())]


def _picked(operation: Operation, results: Sequence[Operand]) -> float:
    """One element of each row, and which one: the rest of the operand is not read."""
    first, target = operation.operands[:2]
    return float(target.size_bytes + target.elements * like(first, shape=()).size_bytes)


def _positions(operation: Operation, results: Sequence[Operand]) -> float:
    return float(sum(one.size_bytes for one in operation.operands[2:3]))


def _like_operand(place: int) -> Results:
    def results(operation: Operation) -> Sequence[Operand] | None:
        return [like(operation.operands[place])] if len(operation.operands) > place else None

    return results


def _most(operation: Operation) -> Sequence[Operand] | None:
    """`max.dim` has values and positions; `max` without one has a value, and `max.other` goes by element."""
    if "dim" in operation.attributes:
        return _reduced(None, "int64")(operation)
    return _reduced(None)(operation) if len(operation.operands) == 1 else as_first(operation)


def _chosen(operation: Operation) -> Sequence[Operand] | None:
    """The k largest of each row, and where they are."""
    k, dim = operation.attributes.get("k"), operation.attributes.get("dim", -1)
    if not operation.operands or not isinstance(k, int) or not isinstance(dim, int):
        return None
    shape = list(operation.operands[0].shape)
    if shape:
        shape[dim] = k
    return [like(operation.operands[0], shape=shape, dtype=dtype) for dtype in (None, "int64")]


def _ordered(operation: Operation) -> Sequence[Operand] | None:
    first = operation.operands[:1]
    return [like(one, dtype=dtype) for one in first for dtype in (None, "int64")] or None


def _sorting(operation: Operation, results: Sequence[Operand]) -> float:
    """Comparisons: n log2 n of each row."""
    first = operation.operands[0]
    dim = operation.attributes.get("dim", -1)
    length = first.shape[dim] if first.shape and isinstance(dim, int) else prod(first.shape)
    return float(first.elements * max(length, 1).bit_length())


def _total(operation: Operation) -> Sequence[Operand] | None:
    """Sums of whole numbers, and of truth values, are of int64."""
    whole = bool(operation.operands) and not operation.operands[0].dtype.startswith(
        ("float", "bfloat", "complex")
    )
    return _reduced("int64" if whole else None)(operation)


_SUM = WorkRule(results=_total, flops=per_operand(1))
_LARGEST = WorkRule(results=_reduced(None), flops=per_operand(1))
_SPREAD = WorkRule(results=_reduced(None), flops=per_operand(4))
_SAME = WorkRule(results=as_first, flops=per_operand(1))
_SOFTMAX = WorkRule(
    results=as_first, flops=per_operand(12)
)  # maximum, difference, exponential, sum, quotient
_MEAN_AND_SPREAD = 8.0

REDUCTIONS: Rules = {
    **dict.fromkeys(("sum", "mean", "prod", "nansum", "count_nonzero"), _SUM),
    **dict.fromkeys(("amax", "amin"), _LARGEST),
    **dict.fromkeys(("max", "min"), WorkRule(results=_most, flops=per_operand(1))),
    **dict.fromkeys(("all", "any"), WorkRule(results=_reduced("bool"), flops=per_operand(1))),
    **dict.fromkeys(("argmax", "argmin"), WorkRule(results=_reduced("int64"), flops=per_operand(1))),
    **dict.fromkeys(("var", "std", "norm", "linalg_vector_norm", "logsumexp"), _SPREAD),
    "var_mean": WorkRule(results=_reduced(None, None), flops=per_operand(4)),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "flip", "roll"), _SAME),
    **dict.fromkeys(("sort", "argsort"), WorkRule(results=_ordered, flops=_sorting)),
    "topk": WorkRule(results=_chosen, flops=per_operand(2)),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax"), _SOFTMAX),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data"),
        WorkRule(results=as_first, flops=per_operand(4)),
    ),
    **dict.fromkeys(
        ("layer_norm", "rms_norm"), WorkRule(results=_normalised(), flops=per_operand(_MEAN_AND_SPREAD))
    ),
    "native_layer_norm": WorkRule(results=_normalised(_rows, _rows), flops=per_operand(_MEAN_AND_SPREAD)),
    "_fused_rms_norm": WorkRule(results=_normalised(_rows), flops=per_operand(4)),
    **dict.fromkeys(
        ("batch_norm", "group_norm", "instance_norm"),
        WorkRule(results=_normalised(), flops=per_operand(_MEAN_AND_SPREAD)),
    ),
    **dict.fromkeys(
        (
            "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_impl_index", "cudnn_batch_norm",
            "miopen_batch_norm", "_batch_norm_with_update", "_native_batch_norm_legit_functional",
        ),
        WorkRule(results=_normalised(_channels, _channels), flops=per_operand(_MEAN_AND_SPREAD)),
    ),
    "native_group_norm": WorkRule(results=_normalised(_groups, _groups), flops=per_operand(_MEAN_AND_SPREAD)),
    **dict.fromkeys(
        (
            "native_layer_norm_backward", "native_batch_norm_backward", "native_group_norm_backward",
            "batch_norm_backward", "_fused_rms_norm_backward",
        ),
        WorkRule(results=_norm_gradients(1), flops=per_operand(12)),
    ),
    # these two have the operand before the gradient
    **dict.fromkeys(
        ("cudnn_batch_norm_backward", "miopen_batch_norm_backward"),
        WorkRule(results=_norm_gradients(0), flops=per_operand(12)),
    ),
    **dict.fromkeys(
        ("nll_loss", "nll_loss_nd", "nll_loss2d"), WorkRule(results=_loss(per_row=True), reads=_picked)
    ),
    **dict.fromkeys(
        ("nll_loss_forward", "nll_loss2d_forward"), WorkRule(results=_weighted_loss, reads=_picked)
    ),
    **dict.fromkeys(
        ("nll_loss_backward", "nll_loss2d_backward"),
        # zeros everywhere and one element a row
        WorkRule(results=_like_operand(1), reads=_positions),
    ),
    "cross_entropy_loss": WorkRule(results=_loss(per_row=True), flops=per_operand(12)),
    **dict.fromkeys(
        ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
        WorkRule(results=_loss(), flops=per_operand(3)),
    ),
    **dict.fromkeys(
        ("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss"),
        WorkRule(results=_loss(), flops=per_operand(20)),
    ),
    **dict.fromkeys(
        (
            "mse_loss_backward", "l1_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward",
            "binary_cross_entropy_backward", "soft_margin_loss_backward",
        ),
        WorkRule(results=_like_operand(1), flops=per_operand(4)),
    ),
}  # fmt: skip
