"""lift_rms_normalization: a division by the root of the mean square, where it is spelled out.

x / sqrt(mean(x ** 2) + epsilon)   ->   RMSNormalization(x)
RMSNormalization(x) * scale        ->   RMSNormalization(x, scale)

Means run over the last dimensions. The operator's gradient needs x and one number of each row.
"""

from __future__ import annotations

from typing import Any

from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms, rounded_once
from daceml.transformations.coarse.last_dimensions import first_of_last, ones
from daceml.transformations.coarse.normalization_scale import NormalizationScale

NAME = "lift_rms_normalization"


@by_place
def lift_rms_normalization(network: Network) -> int:
    """Make one operator of each spelled-out root-mean-square normalization. Mutates the network.

    Args:
        network: not lowered yet; its layer normalizations have been found.
    Returns:
        how many rewrites that took: up to two for each.
    """
    spelled = [_Spelled(power, reciprocal) for power in (False, True) for reciprocal in (False, True)]
    return rewrite_forms(
        network, (*spelled, NormalizationScale(NAME, "RMSNormalization")), marks=("Sqrt", "RMSNormalization")
    )


class _Spelled(Form):
    """Without a scale.

    Args:
        power: the square is written as a power, not as a product.
        reciprocal: the quotient is a product with a reciprocal.
    """

    def __init__(self, power: bool, reciprocal: bool) -> None:
        super().__init__(NAME)
        self.power, self.reciprocal = power, reciprocal

    def pattern(self, op: Any, x: Any, axes: Any, epsilon: Any) -> Any:
        squares = op.Pow(x, 2) if self.power else op.Mul(x, x)
        root = op.Sqrt(op.Add(op.ReduceMean(squares, axes, keepdims=1), epsilon))
        return op.Mul(x, op.Reciprocal(root)) if self.reciprocal else op.Div(x, root)

    def check(self, x: Any, axes: Any, epsilon: Any) -> str | None:
        if isinstance(first := first_of_last(axes, x.rank), str):
            return first
        if epsilon.constant is None or epsilon.constant.size != 1:
            return f"{epsilon.array} is not a constant with one element"
        return rounded_once(x)

    def rewrite(self, op: Any, x: Any, axes: Any, epsilon: Any) -> Any:
        first, number = first_of_last(axes, x.rank), float(epsilon.constant.reshape(()))
        assert isinstance(first, int), "check has refused"
        return op.RMSNormalization(x, ones(x, first), axis=first, epsilon=number, shape=x.shape)
