"""Wide ResNet-50-2, put together from pytorchcv's residual units."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec

STAGES = ((256,) * 3, (512,) * 4, (1024,) * 6, (2048,) * 3)


def wide_resnet(
    stages: Sequence[Sequence[int]] = STAGES,
    *,
    first_channels: int = 64,
    classes: int = 1000,
    bottleneck_factor: int = 2,
) -> nn.Module:
    """A ResNet whose 3x3 convolutions are twice as wide as usual; random weights.

    Not pytorchcv.models.wrn, whose wrn50_2 has no batch norms: they are folded into its weights, so that it
    cannot be trained.

    Args:
        stages: channels of each unit, stage by stage; every stage but the first halves height and width.
        first_channels: of the stem.
        classes: of the classifier.
        bottleneck_factor: a unit's channels over those of its 3x3 convolution; 4 in a ResNet.
    """
    from pytorchcv.models.resnet import ResBottleneck, ResNet, ResUnit

    network = ResNet(
        channels=[list(stage) for stage in stages],
        init_block_channels=first_channels,
        bottleneck=True,
        conv1_stride=False,
        num_classes=classes,
    )
    units = iter([child for child in network.modules() if isinstance(child, ResUnit)])
    channels = first_channels
    for number, stage in enumerate(stages):
        for place, width in enumerate(stage):
            next(units).body = ResBottleneck(
                in_channels=channels,
                out_channels=width,
                stride=2 if number > 0 and place == 0 else 1,
                bottleneck_factor=bottleneck_factor,
            )
            channels = width
    return network


WIDE_RESNET50 = ModelSpec(
    name="wide_resnet50",
    build=wide_resnet,
    inputs=shapes.normal(*shapes.IMAGENET),
    depth=50 * 3 + 18,
    source="Zagoruyko & Komodakis, Wide Residual Networks (BMVC 2016), table 8, WRN-50-2; pytorchcv",
)
