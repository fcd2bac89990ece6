"""ResNet-50 as pytorchcv defines it, and ResNet-152, which has the same units more often."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec


def resnet50() -> nn.Module:
    """Random weights: nothing is downloaded."""
    # Not pytorchcv.model_provider, which imports every model and with them torchvision.
    from pytorchcv.models.resnet import resnet50 as build

    return build(pretrained=False)


def resnet152() -> nn.Module:
    """Random weights: nothing is downloaded."""
    from pytorchcv.models.resnet import resnet152 as build

    return build(pretrained=False)


RESNET50 = ModelSpec(
    name="resnet50",
    build=resnet50,
    inputs=shapes.normal(*shapes.RESNET50),
    depth=50 * 3 + 18,
    source="He et al., Deep Residual Learning for Image Recognition (CVPR 2016), table 1; pytorchcv",
)

RESNET152 = replace(RESNET50, name="resnet152", build=resnet152, depth=152 * 3 + 52)
