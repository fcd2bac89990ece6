"""Windows of signal processing, and the matrix of mel filters."""

from __future__ import annotations

import math

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import maximum, where
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, index_value, literal

_COEFFICIENTS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


def _window(coefficients: tuple[float, float, float], output: Output, periodic: int) -> None:
    """a - b cos(2 pi i / n) + c cos(4 pi i / n), n the size, or one less where the window is symmetric."""
    length = output.shape[0] if periodic else output.shape[0] - 1
    if same(length, 0) and not same(output.shape[0], 0):
        raise Refused("a symmetric window of one element divides by zero")
    constant, once, twice = coefficients

    def element(i: Index) -> Scalar:
        turn = 2 * math.pi * index_value(i).astype(dace.float64) / index_value(length, dace.float64)
        value = constant - once * np.cos(turn)
        return value + twice * np.cos(2 * turn) if twice else value

    output[:] = compute(output.shape, element)


@implements("HannWindow")
def hann(size: Tensor, output: Output, *, periodic: int = 1, output_datatype: int = 1) -> None:
    _window(_COEFFICIENTS["HannWindow"], output, periodic)


@implements("HammingWindow")
def hamming(size: Tensor, output: Output, *, periodic: int = 1, output_datatype: int = 1) -> None:
    _window(_COEFFICIENTS["HammingWindow"], output, periodic)


@implements("BlackmanWindow")
def blackman(size: Tensor, output: Output, *, periodic: int = 1, output_datatype: int = 1) -> None:
    _window(_COEFFICIENTS["BlackmanWindow"], output, periodic)


@implements("MelWeightMatrix")
def mel_weight_matrix(
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    output: Output,
    *,
    output_datatype: int = 1,
) -> None:
    """Triangles over the bins of a spectrum, spread evenly on the mel scale: [bins, filters]."""

    def number(tensor: Tensor) -> Scalar:
        return tensor.reshape(()).at(()).astype(dace.float64)

    def mel(hertz: Scalar) -> Scalar:
        return 2595 / math.log(10) * np.log(1 + hertz / 700)

    filters = output.shape[1]
    low = mel(number(lower_edge_hertz))
    step = (mel(number(upper_edge_hertz)) - low) / index_value(filters + 2, dace.float64)

    def edge(i: Index) -> Scalar:
        hertz = 700 * (np.exp((index_value(i).astype(dace.float64) * step + low) * (math.log(10) / 2595)) - 1)
        return np.floor((number(dft_length) + 1) * hertz / number(sample_rate))

    edges = compute((filters + 2,), edge).materialize()

    def element(row: Index, column: Index) -> Scalar:
        j = index_value(row).astype(dace.float64)
        lower, center, upper = edges[(column,)], edges[(column + 1,)], edges[(column + 2,)]
        one, zero = literal(1, dace.float64), literal(0, dace.float64)
        rising = where((j >= lower) & (j <= center), (j - lower) / maximum(center - lower, 1), zero)
        peak = where(j == center, one, zero)
        left = where(center == lower, peak, rising)
        falling = (upper - j) / maximum(upper - center, 1)
        return where((j >= center) & (j < upper), falling, left)

    output[:] = compute(output.shape, element)
