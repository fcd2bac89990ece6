"""Functions with slopes of their own at special points, where lowered forms have an infinity times 0."""

from __future__ import annotations

import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.tracing.functions import maximum, where
from daceml.onnx_ops.tracing.sums import summed_to
from daceml.onnx_ops.tracing.tensor import Tensor


@vjp("Entropy", domain=DOMAIN, name="EntropyGrad")
def entropy_vjp(dresult: Tensor, data: Tensor) -> Tensor:
    """Infinite at 0, where the lowered form has an infinity times 0, and NaN for negative numbers."""
    return -dresult * (np.log(data) + 1)


@vjp("XLogY", domain=DOMAIN, wrt="first", name="XLogYGradOfFactor")
def x_log_y_factor_vjp(dresult: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """0 at 0 beside what has no finite logarithm."""
    flat = (first == 0) & (second <= 0)
    return summed_to(where(flat, 0, dresult * np.log(second)), first)


@vjp("XLogY", domain=DOMAIN, wrt="second", name="XLogYGradOfLogarithm")
def x_log_y_logarithm_vjp(dresult: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """NaN at (0, 0), before sums over what was broadcast."""
    return summed_to(dresult * first / second, second)


@vjp("XLog1PY", domain=DOMAIN, wrt="first", name="XLog1PYGradOfFactor")
def x_log1p_y_factor_vjp(dresult: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """0 at 0 beside what has no finite logarithm."""
    flat = (first == 0) & (second <= -1)
    return summed_to(where(flat, 0, dresult * np.log1p(second)), first)


@vjp("XLog1PY", domain=DOMAIN, wrt="second", name="XLog1PYGradOfLogarithm")
def x_log1p_y_logarithm_vjp(dresult: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """NaN at (0, -1), before sums over what was broadcast."""
    return summed_to(dresult * first / (second + 1), second)


@vjp("BinaryCrossEntropy", domain=DOMAIN, wrt="probability", name="BinaryCrossEntropyGrad")
def binary_cross_entropy_vjp(dresult: Tensor, probability: Tensor, target: Tensor) -> Tensor:
    """The one without bounds of logarithms, and finite at 0 and 1: torch divides by 1e-12 at least."""
    spread = maximum((1 - probability) * probability, 1e-12)
    return dresult * (probability - target) / spread


@vjp("BinaryCrossEntropy", domain=DOMAIN, wrt="target", name="BinaryCrossEntropyGradOfTarget")
def binary_cross_entropy_target_vjp(dresult: Tensor, probability: Tensor) -> Tensor:
    """Infinite at 0 and 1."""
    return dresult * (np.log1p(-probability) - np.log(probability))


@vjp("Hypot", domain=DOMAIN, wrt="first", name="HypotGradOfFirst")
def hypot_first_vjp(dresult: Tensor, first: Tensor, second: Tensor, result: Tensor) -> Tensor:
    """NaN at (0, 0), and where both are infinite."""
    return summed_to(dresult * (first / result), first)


@vjp("Hypot", domain=DOMAIN, wrt="second", name="HypotGradOfSecond")
def hypot_second_vjp(dresult: Tensor, first: Tensor, second: Tensor, result: Tensor) -> Tensor:
    """NaN at (0, 0), and where both are infinite."""
    return summed_to(dresult * (second / result), second)
