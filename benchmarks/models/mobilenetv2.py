"""MobileNetV2 as pytorchcv defines it."""

from __future__ import annotations

from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec


def mobilenetv2() -> nn.Module:
    """Width 1, random weights."""
    from pytorchcv.models.mobilenetv2 import mobilenetv2_w1

    return mobilenetv2_w1(pretrained=False)


MOBILENETV2 = ModelSpec(
    name="mobilenetv2",
    build=mobilenetv2,
    inputs=shapes.normal(*shapes.IMAGENET),
    # 53 convolutions with a batch norm each but the last, 35 activations, 10 skips, the mean
    depth=53 + 52 + 35 + 10 + 1,
    source="Sandler et al., MobileNetV2 (CVPR 2018), table 2; pytorchcv",
)
