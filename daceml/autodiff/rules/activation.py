"""Activations with kinks, where torch says which side counts; by their result where that tells the sides.

Smooth activations need no rule: their lowered form is differentiated.
"""

from __future__ import annotations

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.sums import summed_to
from daceml.onnx_ops.tracing.tensor import Tensor


@vjp("Relu")
def relu_vjp(dY: Tensor, Y: Tensor) -> Tensor:
    """0 at 0; NaN keeps its gradient."""
    return where(Y <= 0, 0, dY)


def _tells_sides(alpha: float | None) -> str | None:
    return None if alpha is None or alpha > 0 else "a slope that is not positive hides the input's sign"


@vjp("LeakyRelu", name="LeakyReluGrad", when=_tells_sides)
def leaky_relu_vjp(dY: Tensor, Y: Tensor, *, alpha: float = 0.01) -> Tensor:
    """The slope at 0."""
    return where(Y > 0, dY, alpha * dY)


@vjp("LeakyRelu", name="LeakyReluGradOfInput")
def leaky_relu_of_input_vjp(dY: Tensor, X: Tensor, *, alpha: float = 0.01) -> Tensor:
    """The slope at 0."""
    return where(X > 0, dY, alpha * dY)


@vjp("HardSigmoid")
def hard_sigmoid_vjp(dY: Tensor, X: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Flat at both ends of the slope."""
    rising = (alpha * X + beta > 0) & (alpha * X + beta < 1)
    return where(rising, alpha * dY, 0)


@vjp("HardSwish")
def hard_swish_vjp(dY: Tensor, X: Tensor) -> Tensor:
    """0 up to -3, 1 from 3 on."""
    return where(X <= -3, 0, where(X < 3, dY * (X / 3.0 + 0.5), dY))


def _constant_bounds(min: Tensor | None, max: Tensor | None) -> str | None:
    if any(b is not None and b.value is None for b in (min, max)):
        return "a bound is not constant, and may have a gradient of its own"
    return None


@vjp("Clip", wrt="input", name="ClipGrad", when=_constant_bounds)
def clip_vjp(doutput: Tensor, input: Tensor, min: Tensor | None, max: Tensor | None) -> Tensor:
    """1 at the bounds, as torch.clamp has it."""
    gradient = doutput
    if max is not None:
        gradient = where(input <= max.reshape(()), gradient, 0)
    if min is not None:
        gradient = where(input >= min.reshape(()), gradient, 0)
    return gradient


@vjp("HardTanh", domain=DOMAIN, wrt="data", name="HardTanhGrad")
def hard_tanh_vjp(dresult: Tensor, result: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """0 at the bounds, as torch.nn.Hardtanh and ReLU6 have it, and at NaN, as in eager's vector loop."""
    return where((result > low) & (result < high), dresult, 0)


@vjp("PRelu", wrt="X", name="PReluGrad_X")
def prelu_vjp(dY: Tensor, X: Tensor, slope: Tensor) -> Tensor:
    """The slope at 0."""
    return where(X > 0, dY, slope * dY)


@vjp("PRelu", wrt="slope", name="PReluGrad_slope")
def prelu_slope_vjp(dY: Tensor, X: Tensor, slope: Tensor) -> Tensor:
    """Summed over what the slope was broadcast to."""
    return summed_to(where(X > 0, 0, X * dY), slope)
