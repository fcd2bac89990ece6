"""Powers: x^-2 is lowered to a quotient, whose slope is an infinity times 0 at 0 and at infinity."""

from __future__ import annotations

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.tracing.tensor import Tensor


def _negative(X: Tensor, Y: Tensor) -> str | None:
    if Y.value is None or Y.value.size != 1 or Y.rank > X.rank:
        return "the exponent is not a constant number"
    return None if float(Y.value.reshape(())) < 0 else "a power that is not negative is not a quotient"


@vjp("Pow", wrt="X", name="NegativePowGrad", when=_negative)
def pow_vjp(dZ: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    """p x^(p - 1)."""
    assert Y.value is not None
    power = float(Y.value.reshape(()))
    return dZ * power * X ** (power - 1)
