"""Cropping and padding about the centre."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random


def centred(x: np.ndarray, *sizes: int, axes: list[int] | None = None) -> Case:
    attributes = {} if axes is None else {"axes": axes}
    return Case(
        op="CenterCropPad", inputs=[x, np.array(sizes)], constants=[1], attributes=attributes, version=18
    )


CASES = {
    "crop": centred(random(7, 6), 4, 3),
    "pad": centred(random(3, 4), 6, 5),
    "both": centred(random(7, 3, 2), 4, 6, axes=[-3, 1]),
    "as it is": centred(random(3, 4), 3, 4),
    "to nothing": centred(random(3, 4), 0, 4),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
