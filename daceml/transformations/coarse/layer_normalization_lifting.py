"""lift_layer_normalization: a layer normalization where it is spelled out, and what is done to its result.

(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon)   ->   LayerNormalization(x)
LayerNormalization(x) * scale                              ->   LayerNormalization(x, scale)
LayerNormalization(x, scale) + bias                        ->   LayerNormalization(x, scale, bias)

Means run over the last dimensions. The operator's gradient needs x and two numbers of each row, where the
steps keep arrays as large as x. A mean that is computed twice, for the variance and for what it divides, has
to be one operator by now: see `common_subexpressions`.
"""

from __future__ import annotations

from typing import Any

from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms, rounded_once
from daceml.transformations.coarse.last_dimensions import first_of_last, fits_rows, ones
from daceml.transformations.coarse.normalization_scale import NormalizationScale
from daceml.transformations.rewriting.replacement import Value

NAME = "lift_layer_normalization"


@by_place
def lift_layer_normalization(network: Network) -> int:
    """Make one operator of each spelled-out layer normalization. Mutates the network, not lowered yet.

    Returns:
        how many rewrites that took: up to three for each.
    """
    ways = [(power, reciprocal) for power in (False, True) for reciprocal in (False, True)]
    spelled = [made(*way) for made in (_Spelled, _ScaledBefore) for way in ways]
    return rewrite_forms(
        network,
        (*spelled, NormalizationScale(NAME, "LayerNormalization"), _Bias(NAME)),
        marks=("Sqrt", "LayerNormalization"),
    )


class _Division(Form):
    """What is centred, by the standard deviation.

    Args:
        power: the square is written as a power, not as a product.
        reciprocal: the quotient is a product with a reciprocal.
    """

    def __init__(self, power: bool, reciprocal: bool) -> None:
        super().__init__(NAME)
        self.power, self.reciprocal = power, reciprocal

    def parts(self, op: Any, x: Any, axes: Any, same_axes: Any, epsilon: Any) -> Any:
        """x without its mean, and the standard deviation."""
        centred = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
        squares = op.Pow(centred, 2) if self.power else op.Mul(centred, centred)
        return centred, op.Sqrt(op.Add(op.ReduceMean(squares, same_axes, keepdims=1), epsilon))

    def quotient(self, op: Any, above: Any, deviation: Any) -> Any:
        """Of both, as it is written."""
        return op.Mul(above, op.Reciprocal(deviation)) if self.reciprocal else op.Div(above, deviation)


class _Spelled(_Division):
    """Without scale and bias."""

    def pattern(self, op: Any, x: Any, axes: Any, same_axes: Any, epsilon: Any) -> Any:
        return self.quotient(op, *self.parts(op, x, axes, same_axes, epsilon))

    def check(self, x: Any, axes: Any, same_axes: Any, epsilon: Any) -> str | None:
        return _refusal(x, axes, same_axes, epsilon)

    def rewrite(self, op: Any, x: Any, axes: Any, epsilon: Any) -> Any:
        attributes = _attributes(x, axes, epsilon)
        return op.LayerNormalization(x, ones(x, attributes["axis"]), **attributes)


class _ScaledBefore(_Division):
    """scale * (x - mean) / deviation, from left to right"""

    def pattern(self, op: Any, x: Any, axes: Any, same_axes: Any, epsilon: Any, scale: Any) -> Any:
        centred, deviation = self.parts(op, x, axes, same_axes, epsilon)
        return self.quotient(op, op.Mul(centred, scale), deviation)

    def check(self, x: Any, axes: Any, same_axes: Any, epsilon: Any, scale: Any) -> str | None:
        reason = _refusal(x, axes, same_axes, epsilon)
        return reason or fits_rows(scale, x, first_of_last(axes, x.rank))

    def rewrite(self, op: Any, x: Any, axes: Any, epsilon: Any, scale: Any) -> Any:
        return op.LayerNormalization(x, scale, **_attributes(x, axes, epsilon))


def _refusal(x: Value, axes: Value, same_axes: Value, epsilon: Value) -> str | None:
    first, again = first_of_last(axes, x.rank), first_of_last(same_axes, x.rank)
    if isinstance(first, str):
        return first
    if again != first:
        return "mean and variance are taken over different dimensions"
    if epsilon.constant is None or epsilon.constant.size != 1:
        return f"{epsilon.array} is not a constant with one element"
    return rounded_once(x)


def _attributes(x: Any, axes: Any, epsilon: Any) -> dict[str, Any]:
    number = float(epsilon.constant.reshape(()))
    return {"axis": first_of_last(axes, x.rank), "epsilon": number, "shape": x.shape}


class _Bias(Form):
    """LayerNormalization(x, scale) + bias -> LayerNormalization(x, scale, bias)"""

    def pattern(self, op: Any, x: Any, scale: Any, bias: Any) -> Any:
        return op.Add(op.LayerNormalization(x, scale, name="normal"), bias)

    def check(self, x: Any, bias: Any, normal: Any) -> str | None:
        return fits_rows(bias, x, normal.axis % x.rank) or rounded_once(x)

    def rewrite(self, op: Any, x: Any, scale: Any, bias: Any, normal: Any) -> Any:
        return op.LayerNormalization(x, scale, bias, axis=normal.axis, epsilon=normal.epsilon, shape=x.shape)
