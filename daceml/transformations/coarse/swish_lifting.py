"""lift_swish: x sigmoid(x) and x sigmoid(alpha x) -> Swish(x), whose gradient needs x only.

So does torch's SiLU, which comes as a product and a sigmoid: ONNX has no operator for it before opset 24.
"""

from __future__ import annotations

from typing import Any

from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms, rounded_once

NAME = "lift_swish"


@by_place
def lift_swish(network: Network) -> int:
    """Make one operator of each spelled-out Swish. Mutates the network, which is not lowered yet.

    Returns:
        how many were found.
    """
    return rewrite_forms(network, (_Swish(NAME), _ScaledSwish(NAME)), marks=("Sigmoid",))


class _Swish(Form):
    """x sigmoid(x)"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Mul(x, op.Sigmoid(x))

    def check(self, x: Any) -> str | None:
        return rounded_once(x)

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Swish(x, shape=x.shape)


class _ScaledSwish(Form):
    """x sigmoid(alpha x), as in the sigmoid approximation of GELU"""

    def pattern(self, op: Any, x: Any, alpha: Any) -> Any:
        return op.Mul(x, op.Sigmoid(op.Mul(x, alpha)))

    def check(self, x: Any, alpha: Any) -> str | None:
        if alpha.constant is None or alpha.constant.size != 1:
            return f"{alpha.array} is not a constant with one element"
        return rounded_once(x)

    def rewrite(self, op: Any, x: Any, alpha: Any) -> Any:
        return op.Swish(x, alpha=float(alpha.constant.reshape(())), shape=x.shape)
