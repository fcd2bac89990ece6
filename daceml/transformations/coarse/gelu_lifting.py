"""lift_gelu: the Gaussian error linear unit where it is spelled out.

x / 2 * (1 + erf(x / sqrt 2))                              ->   Gelu(x)
x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x ** 3)))   ->   Gelu(x, approximate="tanh")

The operator computes the same steps. Its gradient needs x only, where the steps keep three arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, is_nearly, rewrite_forms, rounded_once

NAME = "lift_gelu"
_CUBIC = 0.044715
Written = Callable[[Any, Any, Any], Any]
# (what erf or tanh is taken of, the operator's attribute, the factor)
_INNER: tuple[tuple[Written, str, float], ...] = (
    (lambda op, x, factor: op.Erf(op.Div(x, factor)), "none", math.sqrt(2)),
    (lambda op, x, factor: op.Erf(op.Mul(x, factor)), "none", math.sqrt(0.5)),
    *(
        (
            lambda op, x, factor, cube=cube: op.Tanh(op.Mul(op.Add(x, op.Mul(cube(op, x), _CUBIC)), factor)),
            "tanh",
            math.sqrt(2 / math.pi),
        )
        for cube in (lambda op, x: op.Pow(x, 3), lambda op, x: op.Mul(x, op.Mul(x, x)))
    ),
)
# how x is multiplied by a half and by 1 + erf or 1 + tanh
_OUTER: tuple[Written, ...] = (
    lambda op, x, share: op.Mul(op.Mul(x, 0.5), share),
    lambda op, x, share: op.Mul(x, op.Mul(share, 0.5)),
    lambda op, x, share: op.Mul(op.Mul(x, share), 0.5),
)


@by_place
def lift_gelu(network: Network) -> int:
    """Make one operator of each spelled-out GELU. Mutates the network, which is not lowered yet.

    Returns:
        how many were found.
    """
    forms = [_Gelu(outer, inner) for outer in _OUTER for inner in _INNER]
    return rewrite_forms(network, forms, marks=("Erf", "Tanh"))


class _Gelu(Form):
    """One way to write it."""

    def __init__(self, outer: Written, inner: tuple[Written, str, float]) -> None:
        super().__init__(NAME)
        self.outer = outer
        self.inner, self.approximate, self.number = inner

    def pattern(self, op: Any, x: Any, factor: Any) -> Any:
        return self.outer(op, x, op.Add(self.inner(op, x, factor), 1.0))

    def check(self, x: Any, factor: Any) -> str | None:
        if not is_nearly(factor.constant, self.number):
            return f"its factor {factor.array} is not {self.number:.6g}"
        return rounded_once(x)

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Gelu(x, approximate=self.approximate, shape=x.shape)
