"""Fourier transforms against numpy: any length, cut and filled, one-sided and inverse."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises


def parts(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], -1).astype(np.float32)


def transform(
    x: np.ndarray, axis: int, length: int | None = None, *, version: int = 20, **flags: int
) -> Case:
    z = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0].astype(np.complex128)
    numpy_axis = axis + 1 if axis < 0 else axis
    if flags.get("inverse") and flags.get("onesided"):
        expected = np.fft.irfft(z, length, numpy_axis)[..., None].astype(np.float32)
    else:
        full = (np.fft.ifft if flags.get("inverse") else np.fft.fft)(z, length, numpy_axis)
        if flags.get("onesided"):
            full = full.take(range(full.shape[numpy_axis] // 2 + 1), numpy_axis)
        expected = parts(full)
    lengths = None if length is None else np.array(length)
    inputs = [x, lengths, np.array(axis)] if version >= 20 else [x, lengths]
    attributes = dict(flags) if version >= 20 else {**flags, "axis": axis}
    return Case(
        op="DFT",
        inputs=inputs,
        constants=[i for i in (1, 2) if i < len(inputs) and inputs[i] is not None],
        attributes=attributes,
        expected=[expected],
        version=version,
        atol=1e-5,
    )


def along_data(case: Case) -> Case:
    """The same with the axis as an operand of the call."""
    case.constants = []
    return case


def frames(x: np.ndarray, step: int, window: np.ndarray | None, length: int, onesided: int) -> Case:
    starts = range(0, x.shape[1] - length + 1, step)
    weight = np.ones(length) if window is None else window
    cut = np.stack([x[:, s : s + length, 0] * weight for s in starts], 1)
    z = np.fft.rfft(cut) if onesided else np.fft.fft(cut)
    return Case(
        op="STFT",
        inputs=[x, np.array(step), window, np.array(length)],
        constants=[1, 3],
        attributes={"onesided": onesided},
        expected=[parts(z)],
        atol=1e-5,
    )


REAL, COMPLEX = random(2, 7, 3, 1), random(2, 6, 3, 2)
CASES = {
    "real": transform(REAL, 1),
    "complex": transform(COMPLEX, 1),
    "negative axis": transform(COMPLEX, -2),
    "cut": transform(COMPLEX, 1, 4),
    "filled": transform(REAL, 1, 9),
    "one side": transform(REAL, 1, onesided=1),
    "inverse": transform(COMPLEX, 2, inverse=1),
    "back to real, even": transform(COMPLEX, 1, inverse=1, onesided=1),
    "back to real, odd": transform(COMPLEX, 1, 9, inverse=1, onesided=1),
    "length 1": transform(COMPLEX[:, :1], 1),
    "axis of the call": along_data(transform(COMPLEX, 1)),
    "axis of the call, from the end, inverse": along_data(transform(COMPLEX, -2, inverse=1)),
    "axis of the call, real": along_data(transform(REAL, 0)),
    "version 17": transform(COMPLEX, 1, version=17),
    "frames": frames(random(2, 20, 1), 4, np.hanning(8).astype(np.float32), 8, 1),
    "frames, both sides": frames(random(1, 11, 1), 3, None, 5, 0),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_long_transforms_are_refused_here() -> None:
    with raises(NoImplementationError, "DFT", "2048"):
        lowered(transform(random(1, 2048, 1), 1))
