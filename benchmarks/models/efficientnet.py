"""EfficientNet-B0 as efficientnet_pytorch defines it."""

from __future__ import annotations

from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec


def efficientnet_b0() -> nn.Module:
    """Random weights; the package's own Swish, an autograd.Function that keeps only its input."""
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0")


EFFICIENTNET_B0 = ModelSpec(
    name="efficientnet_b0",
    build=efficientnet_b0,
    inputs=shapes.normal(*shapes.IMAGENET),
    # the first block has 14 operators, the fifteen others four more for their expansion; 10 in stem and head
    depth=14 + 15 * 18 + 10,
    source="Tan & Le, EfficientNet (ICML 2019), table 1; efficientnet_pytorch",
)
