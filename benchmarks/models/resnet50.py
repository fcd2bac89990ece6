"""ResNet-50 as pytorchcv defines it."""

from __future__ import annotations

from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec


def resnet50() -> nn.Module:
    """Random weights: nothing is downloaded."""
    # Not pytorchcv.model_provider, which imports every model and with them torchvision.
    from pytorchcv.models.resnet import resnet50 as build

    return build(pretrained=False)


RESNET50 = ModelSpec(
    name="resnet50",
    build=resnet50,
    inputs=shapes.normal(*shapes.RESNET50),
    depth=50 * 3 + 18,
    source="He et al., Deep Residual Learning for Image Recognition (CVPR 2016), table 1; pytorchcv",
)
