"""Updates of parameters by an optimizer, as formulas over one element of each tensor.

Each formula follows torch's own, operation by operation. What may change from step to step (learning rates,
bias corrections) is read from a table of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import dace
import numpy as np

from daceml.autodiff.optimizers.optimizer_rules import RULES
from daceml.sdfg.builder import parameters
from daceml.sdfg.outline import Kernel
from daceml.sdfg.scalar import DType, Scalar, apply, cast, compute_type, read
from daceml.sdfg.tensor_lists import ELEMENTS, list_kernel

PARAMETER, GRADIENT = "parameter", "gradient"

Numbers = Mapping[str, Scalar]
# (parameter, gradient, state, numbers) -> new parameter, and new state by name
Update = Callable[[Scalar, Scalar, Mapping[str, Scalar], Numbers], tuple[Scalar, dict[str, Scalar]]]


def _sgd(p: Scalar, g: Scalar, state: Mapping[str, Scalar], n: Numbers) -> tuple[Scalar, dict[str, Scalar]]:
    g = g + n["weight_decay"] * p
    return p - n["lr"] * g, {}


def _momentum(nesterov: bool) -> Update:
    def update(
        p: Scalar, g: Scalar, state: Mapping[str, Scalar], n: Numbers
    ) -> tuple[Scalar, dict[str, Scalar]]:
        g = g + n["weight_decay"] * p
        velocity = n["momentum"] * state["momentum_buffer"] + n["share"] * g
        direction = g + n["momentum"] * velocity if nesterov else velocity
        return p - n["lr"] * direction, {"momentum_buffer": velocity}

    return update


def _adam(*, decoupled: bool, amsgrad: bool) -> Update:
    def update(
        p: Scalar, g: Scalar, state: Mapping[str, Scalar], n: Numbers
    ) -> tuple[Scalar, dict[str, Scalar]]:
        if decoupled:
            p = p * n["kept"]
        else:
            g = g + n["weight_decay"] * p
        mean = state["exp_avg"] + n["mean_share"] * (g - state["exp_avg"])
        square = state["exp_avg_sq"] * n["beta2"] + n["square_share"] * g * g
        after = {"exp_avg": mean, "exp_avg_sq": square}
        if amsgrad:
            square = after["max_exp_avg_sq"] = apply("nan_max", state["max_exp_avg_sq"], square)
        size = np.sqrt(square) / n["square_correction"] + n["eps"]
        return p - n["step_size"] * (mean / size), after

    return update


UPDATES: dict[str, Update] = {
    "SGD": _sgd,
    "SGD momentum": _momentum(nesterov=False),
    "SGD nesterov": _momentum(nesterov=True),
    "Adam": _adam(decoupled=False, amsgrad=False),
    "AdamW": _adam(decoupled=True, amsgrad=False),
    "Adam amsgrad": _adam(decoupled=False, amsgrad=True),
    "AdamW amsgrad": _adam(decoupled=True, amsgrad=True),
}


def update_kernel(
    rule: str, *, maximize: bool, dtype: DType, gradient_dtype: DType, width: int
) -> tuple[Kernel, tuple[int | None, ...], tuple[int, ...]]:
    """The kernel of a rule: itself, the columns of its arguments, and those that it writes.

    Columns are the parameter, its gradient, and the rule's state in order.

    Args:
        width: numbers in a row of the table; the rule's come first.
    """
    (i,) = parameters(1)
    elements = dace.symbol(ELEMENTS, dace.int64)
    wide = compute_type(dtype)
    columns = [(PARAMETER, dtype), (GRADIENT, gradient_dtype), *((name, dtype) for name in RULES[rule].state)]
    table = "numbers"
    known = {
        name: cast(read(table, dace.float64, (place,), (width,)), wide)
        for place, name in enumerate(RULES[rule].numbers)
    }
    held = {name: cast(read(name, kind, (i,), (elements,)), wide) for name, kind in columns}
    gradient = -held[GRADIENT] if maximize else held[GRADIENT]
    value, state = UPDATES[rule](held[PARAMETER], gradient, held, known)
    results = [
        (PARAMETER, cast(value, dtype)),
        *((name, cast(state[name], dtype)) for name in RULES[rule].state),
    ]
    kernel, arguments = list_kernel(columns, table, width, results)
    return kernel, arguments, (0, *range(2, len(columns)))
