"""Operators that go through elements one by one, of any number of operands, singly or by lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.work_rule import (
    Rules,
    WorkRule,
    as_first,
    bytes_of,
    like,
    per_operand,
    per_result,
)


def broadcast(operation: Operation) -> Sequence[Operand] | None:
    """One result of the shape to which all operands stretch, in the widest of their types."""
    if not operation.operands:
        return None
    try:
        shape = np.broadcast_shapes(*(one.shape for one in operation.operands))
    except ValueError:
        return None
    # a tensor without dimensions does not widen: torch's rules of promotion
    wide = [one for one in operation.operands if one.shape] or operation.operands
    floating = [one for one in wide if one.dtype.startswith(("float", "bfloat", "complex"))] or list(wide)
    widest = max(floating, key=lambda one: like(one, shape=()).size_bytes)
    return [like(widest, shape=shape)]


def _compared(operation: Operation) -> Sequence[Operand] | None:
    stretched = broadcast(operation)
    return None if stretched is None else [like(stretched[0], dtype="bool")]


def _dropped(operation: Operation) -> Sequence[Operand] | None:
    return (
        [like(operation.operands[0]), like(operation.operands[0], dtype="bool")]
        if operation.operands
        else None
    )


def _of_backward(operation: Operation) -> Sequence[Operand] | None:
    """Like the gradient, which is the first operand."""
    return as_first(operation)


# flops for an element, with a function of the hardware or of libm as about eight
_COSTS: dict[float, str] = {
    1: "add sub mul neg abs relu maximum minimum clamp clamp_min clamp_max rsub fmod remainder floor ceil "
    "round sign square where lerp bitwise_and bitwise_or bitwise_xor bitwise_not logical_not masked_fill "
    "hardtanh threshold tril triu __and__ __or__ dropout alpha_dropout nan_to_num trunc frac logit "
    "__lshift__ __rshift__ bitwise_left_shift bitwise_right_shift prelu leaky_relu relu6 floor_divide",
    2: "addcmul",
    4: "div reciprocal sqrt rsqrt addcdiv true_divide hardsigmoid hardswish",
    8: "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid erf erfc erfinv pow elu celu selu atan "
    "asin acos sinh cosh atan2 polar xlogy lgamma digamma",
    10: "gelu silu softplus logaddexp log_sigmoid mish glu _softmax_tail",
}
_GRADIENTS: dict[float, str] = {
    1: "threshold_backward native_dropout_backward _dropout_backward hardtanh_backward leaky_relu_backward",
    3: "tanh_backward sigmoid_backward hardswish_backward hardsigmoid_backward elu_backward",
    16: "gelu_backward silu_backward softplus_backward mish_backward log_sigmoid_backward",
}
_COMPARISONS = "eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_xor isin"

# lists of tensors of equal sizes: how many lists are read with the first, which is written or taken after
_FOREACH = (
    "add sub mul div neg abs sqrt rsqrt reciprocal exp log pow maximum minimum clamp_min clamp_max clamp "
    "sign addcmul addcdiv lerp sigmoid"
)
# operator -> lists that are written, and flops for an element of a parameter
_OPTIMIZERS: dict[str, tuple[tuple[str, ...], float]] = {
    "_fused_adam": (("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"), 16),
    "_fused_adamw": (("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"), 17),
    "_fused_sgd": (("self", "momentum_buffer_list"), 6),
    "_fused_adagrad": (("self", "state_sums"), 8),
}
# the order of the lists, each as long as `self`, in the operator's signature
_LISTS: dict[str, tuple[str, ...]] = {
    "_fused_adam": ("self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"),
    "_fused_adamw": ("self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"),
    "_fused_sgd": ("self", "grads", "momentum_buffer_list"),
    "_fused_adagrad": ("self", "grads", "state_sums", "state_steps"),
}


def _listed(operation: Operation) -> int:
    """Tensors of the first list: as the attribute says, else as long as tensors are all of a kind."""
    count = operation.attributes.get("self")
    if isinstance(count, int) and count > 0:
        return min(count, len(operation.operands))
    return len(operation.operands)


def _first_list(operation: Operation) -> Sequence[Operand] | None:
    return [like(one) for one in operation.operands[: _listed(operation)]] or None


def _list_flops(flops: float) -> WorkRule:
    return WorkRule(
        results=_first_list, flops=lambda operation, results: flops * sum(one.elements for one in results)
    )


def _optimizer(name: str) -> WorkRule:
    written, cost = _OPTIMIZERS[name]

    def results(operation: Operation) -> Sequence[Operand] | None:
        """The lists that are written; one that is not used is empty, and `self` says how long others are."""
        places = [place for place, one in enumerate(_LISTS[name]) if operation.attributes.get(one) != 0]
        present = [_LISTS[name][place] for place in places]
        count = operation.attributes.get("self")
        if not isinstance(count, int) or count <= 0:
            return None
        lists = len(operation.operands) // count
        if lists < len(present):
            # those that may be absent are: maxima without amsgrad, momentum without momentum
            optional = ("max_exp_avg_sqs", "momentum_buffer_list")
            present = [one for one in present if one not in optional or operation.attributes.get(one)]
        return [
            like(operand)
            for place, one in enumerate(present[:lists])
            if one in written
            for operand in operation.operands[place * count : (place + 1) * count]
        ]

    def flops(operation: Operation, results: Sequence[Operand]) -> float:
        return cost * sum(one.elements for one in operation.operands[: _listed(operation)])

    return WorkRule(results=results, flops=flops)


def _norms(operation: Operation) -> Sequence[Operand] | None:
    return [like(one, shape=()) for one in operation.operands] or None


def _all_flops(operation: Operation, results: Sequence[Operand]) -> float:
    return 2.0 * sum(one.elements for one in operation.operands)


def _second(operation: Operation, results: Sequence[Operand]) -> float:
    """What a copy reads: the first operand is written only."""
    return sum(map(bytes_of, operation.operands[1:]))


ELEMENTWISE: Rules = {
    **{
        name: WorkRule(results=broadcast, flops=per_result(cost))
        for cost, names in _COSTS.items()
        for name in names.split()
    },
    **{
        name: WorkRule(results=_of_backward, flops=per_operand(cost))
        for cost, names in _GRADIENTS.items()
        for name in names.split()
    },
    **{name: WorkRule(results=_compared, flops=per_result(1)) for name in _COMPARISONS.split()},
    "native_dropout": WorkRule(results=_dropped, flops=per_result(4)),
    "copy": WorkRule(results=as_first, reads=_second),
    **{f"_foreach_{name}": _list_flops(2) for name in _FOREACH.split()},
    "_foreach_zero": WorkRule(results=_first_list, reads=lambda operation, results: 0.0),
    "_foreach_copy": WorkRule(
        results=_first_list,
        reads=lambda operation, results: sum(map(bytes_of, operation.operands[_listed(operation) :])),
    ),
    "_foreach_norm": WorkRule(results=_norms, flops=_all_flops),
    **{name: _optimizer(name) for name in _OPTIMIZERS},
}
