"""lift_mish: x tanh(softplus(x)) -> Mish(x), whose gradient needs x only."""

from __future__ import annotations

from typing import Any

from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms, rounded_once

NAME = "lift_mish"


@by_place
def lift_mish(network: Network) -> int:
    """Make one operator of each spelled-out Mish. Mutates the network, which is not lowered yet.

    log(1 + exp x) is no softplus where exp overflows: torch's gradient is NaN there, and so is ours.

    Returns:
        how many were found.
    """
    return rewrite_forms(network, (_Mish(NAME),), marks=("Softplus",))


class _Mish(Form):
    """x tanh(softplus(x))"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Mul(x, op.Tanh(op.Softplus(x)))

    def check(self, x: Any) -> str | None:
        return rounded_once(x)

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Mish(x, shape=x.shape)
