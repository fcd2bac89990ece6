"""What each kind of optimizer keeps and is told; `optimizer_updates.py` has the formulas.

Apart from them, so that a stored program can be used without DaCe.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OptimizerRule:
    """The interface of one kind of optimizer.

    Attributes:
        state: names of its tensors for each parameter, of the parameter's shape and type.
        numbers: what is read from a row of numbers, in order.
    """

    state: tuple[str, ...]
    numbers: tuple[str, ...]


_ADAM = ("mean_share", "beta2", "square_share", "square_correction", "eps", "step_size")
_MOMENTS = ("exp_avg", "exp_avg_sq")
_MOMENTUM = OptimizerRule(state=("momentum_buffer",), numbers=("lr", "weight_decay", "momentum", "share"))
RULES: dict[str, OptimizerRule] = {
    "SGD": OptimizerRule(state=(), numbers=("lr", "weight_decay")),
    "SGD momentum": _MOMENTUM,
    "SGD nesterov": _MOMENTUM,
    "Adam": OptimizerRule(state=_MOMENTS, numbers=("weight_decay", *_ADAM)),
    "AdamW": OptimizerRule(state=_MOMENTS, numbers=("kept", *_ADAM)),
    "Adam amsgrad": OptimizerRule(state=(*_MOMENTS, "max_exp_avg_sq"), numbers=("weight_decay", *_ADAM)),
    "AdamW amsgrad": OptimizerRule(state=(*_MOMENTS, "max_exp_avg_sq"), numbers=("kept", *_ADAM)),
}
