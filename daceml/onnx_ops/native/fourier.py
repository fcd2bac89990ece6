"""Discrete Fourier transforms as contractions with a table of one turn, for sizes that are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import dace
import numpy as np

from daceml.onnx_ops.native.axes import along_axis
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal

# Quadratic in the length: 64 times what a fast transform of this length takes
_LONGEST = 1024


class _Turn:
    """cos and sin of 2 pi p / n for p from 0 to n - 1, in an array each."""

    def __init__(self, length: Index, like: Tensor) -> None:
        if not isinstance(length, int) or length < 1:
            raise Refused(
                "the length of the transform is symbolic" if length != 0 else "a transform of length 0"
            )
        if length > _LONGEST:
            raise Refused(f"{length} sums of {length} terms each")
        self.length = length
        dtype = compute_type(like.dtype)

        def table(function: Callable[[Scalar], Scalar]) -> Tensor:
            def element(p: Index) -> Scalar:
                angle = index_value(p).astype(dace.float64) * (2 * math.pi / length)
                return function(angle).astype(dtype)

            return compute((length,), element).materialize()

        self.cosines, self.sines = table(np.cos), table(np.sin)

    def at(self, frequency: Index, place: Index) -> tuple[Scalar, Scalar]:
        """cos and sin of 2 pi frequency place / n."""
        steps = (index_value(frequency) * index_value(place)) % self.length
        return self.cosines[(steps,)], self.sines[(steps,)]


def _constant(tensor: Tensor | None, what: str) -> int | None:
    if tensor is None or same(tensor.size, 0):
        return None
    if tensor.value is None:
        raise Refused(f"{what} is not constant")
    return int(np.asarray(tensor.value).reshape(-1)[0])


@implements("DFT")
def dft(
    input: Tensor,
    dft_length: Tensor | None,
    axis: Tensor | None,
    output: Output,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> None:
    length = _constant(dft_length, "dft_length")
    if inverse and onesided:
        known = _constant(axis, "axis")
        along = axis_of(-2 if known is None else known, input.rank)
        _real_inverse(input, along, 2 * (input.shape[along] - 1) if length is None else length, output)
        return
    complex_input = same(input.shape[-1], 2)
    turns: dict[Index, _Turn] = {}

    def part(along: int, imaginary: bool) -> Tensor:
        if along == input.rank - 1:
            if axis is None or axis.value is not None:
                raise Refused("the last axis holds real and imaginary parts")
            return full((*output.shape[:-1], 1), np.nan, output.dtype)
        held = input.shape[along]
        points = held if length is None else length
        if points not in turns:
            turns[points] = _Turn(points, input)
        turn = turns[points]
        terms = min(held, turn.length) if isinstance(held, int) else held

        def element(*index: Index) -> Scalar:
            def term(n: Index) -> Scalar:
                place = (*index[:along], n, *index[along + 1 : -1])
                cosine, sine = turn.at(index[along], n)
                sine = sine if inverse else -sine
                real = input[(*place, 0)]
                if not complex_input:
                    return real * sine if imaginary else real * cosine
                other = input[(*place, 1)]
                return real * sine + other * cosine if imaginary else real * cosine - other * sine

            total = sum_over((terms,), term)
            return total / turn.length if inverse else total

        return compute((*output.shape[:-1], 1), element)

    for place, imaginary in enumerate((False, True)):
        if axis is None:
            result = part(axis_of(-2, input.rank), imaginary)
        else:
            result = along_axis(axis, input.rank, partial(part, imaginary=imaginary))
        output[..., place : place + 1] = result


def _real_inverse(input: Tensor, along: int, length: Index, output: Output) -> None:
    """The real signal of which half a spectrum is given: the other half is its mirror image."""
    turn = _Turn(length, input)
    held = input.shape[along]
    if not isinstance(held, int):
        raise Refused("the number of frequencies is symbolic")
    terms = min(held, turn.length // 2 + 1)
    if not same(input.shape[-1], 2):
        raise Refused("half a spectrum of real numbers")

    def element(*index: Index) -> Scalar:
        def term(k: Index) -> Scalar:
            place = (*index[:along], k, *index[along + 1 : -1])
            cosine, sine = turn.at(k, index[along])
            value = input[(*place, 0)] * cosine - input[(*place, 1)] * sine
            alone = index_value(k) == 0
            if turn.length % 2 == 0:
                alone = alone | (index_value(k) == turn.length // 2)
            return where(alone, value, value + value)

        return sum_over((terms,), term) / turn.length

    output[:] = compute(output.shape, element)


@implements("STFT")
def stft(
    signal: Tensor,
    frame_step: Tensor,
    window: Tensor | None,
    frame_length: Tensor | None,
    output: Output,
    *,
    onesided: int = 1,
) -> None:
    step, length = _constant(frame_step, "frame_step"), _constant(frame_length, "frame_length")
    if window is not None:
        length = window.shape[0]
    if step is None or length is None:
        raise Refused("neither a window nor the length of a frame is given")
    turn = _Turn(length, signal)
    complex_input = signal.rank == 3 and same(signal.shape[2], 2)

    def part(imaginary: bool) -> Callable[..., Scalar]:
        def element(b: Index, frame: Index, frequency: Index, _: Index) -> Scalar:
            def term(n: Index) -> Scalar:
                place = (b, frame * step + n)
                cosine, sine = turn.at(frequency, n)
                weight = literal(1, compute_type(signal.dtype)) if window is None else window[(n,)]
                real = signal[(*place, 0) if signal.rank == 3 else place] * weight
                if not complex_input:
                    return -real * sine if imaginary else real * cosine
                other = signal[(*place, 1)] * weight
                return other * cosine - real * sine if imaginary else real * cosine + other * sine

            return sum_over((length,), term)

        return element

    shape = (*output.shape[:-1], 1)
    output[..., 0:1] = compute(shape, part(False))
    output[..., 1:2] = compute(shape, part(True))
