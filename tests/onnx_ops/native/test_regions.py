"""Regions of interest; where they leave the image, and where their size decides the samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from daceml.errors import ExecutionError
from tests.onnx_ops.native.single_node import Case, Outcome, random
from tests.support.golden import raises
from tests.support.operator_programs import program

X = random(2, 3, 8, 7)
ROIS = np.array(
    [[0, 0, 6, 5], [1.5, 2, 3.2, 7], [-3, 4, 12, 20], [2, 2, 2.1, 2.1], [30, 30, 40, 40]], np.float32
)
BATCH = np.array([0, 1, 1, 0, 1])


def regions(version: int = 16, **attributes: object) -> Case:
    return Case(
        op="RoiAlign",
        inputs=[X, ROIS, BATCH],
        version=version,
        rtol=1e-4,
        atol=1e-5,
        attributes={"output_height": 3, "output_width": 2, "spatial_scale": 0.9, **attributes},
    )


def before_half_pixels() -> Case:
    case = regions(10, sampling_ratio=2)
    case.expected = regions(coordinate_transformation_mode="output_half_pixel", sampling_ratio=2).reference()
    return case


CASES = {
    "average": regions(sampling_ratio=2),
    "as many samples as fit": regions(),
    "whole pixels": regions(coordinate_transformation_mode="output_half_pixel", sampling_ratio=3),
    "before version 16": before_half_pixels(),
    "largest": regions(mode="max", sampling_ratio=2),
    "largest, as many samples as fit": regions(mode="max"),
    "one bin": regions(output_height=1, output_width=1),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_an_image_that_is_not_there_is_an_error() -> None:
    text = (
        "g (float[2, 3, 8, 7] X, float[5, 4] R, int64[5] B) => (float[5, 3, 2, 2] Y) "
        "{ Y = RoiAlign <output_height = 2, output_width = 2> (X, R, B) }"
    )
    compiled = program(text, ("native",))
    tensors = [torch.from_numpy(v) for v in (X, ROIS, BATCH)]
    assert compiled(tensors)[0].isfinite().all()
    with raises(ExecutionError, "[0, 2)"):
        compiled([*tensors[:2], torch.tensor([0, 1, 2, 0, 1])])
