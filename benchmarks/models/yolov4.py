"""YOLOv4: CSPDarknet53, spatial pyramid pooling, path aggregation, three heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec, he_normal_leaky, with_weights

# Residual blocks of CSPDarknet53's five stages.
BLOCKS = (1, 2, 8, 8, 4)
# Three anchors, each with a box of four numbers, an objectness and 80 classes of COCO.
HEAD_CHANNELS = 3 * (4 + 1 + 80)


def conv(
    channels_in: int, channels_out: int, kernel: int, *, stride: int = 1, mish: bool = False
) -> nn.Module:
    """Convolution, batch norm, and Mish (in the backbone) or leaky ReLU (elsewhere)."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.Mish(inplace=True) if mish else nn.LeakyReLU(0.1, inplace=True),
    )


class Residual(nn.Module):
    """x + a 1x1 and a 3x3 convolution of x."""

    def __init__(self, channels: int, middle: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, middle, 1, mish=True), conv(middle, channels, 3, mish=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class CrossStage(nn.Module):
    """Half the height and width; residual blocks on one part of the channels, which the other part passes by.

    x: [N, C, H, W] -> [N, 2 C, H/2, W/2]
    """

    def __init__(self, channels: int, blocks: int, *, first: bool) -> None:
        super().__init__()
        wide = 2 * channels
        part = wide if first else channels  # the first stage splits by copying
        middle = channels if first else part
        self.down = conv(channels, wide, 3, stride=2, mish=True)
        self.aside = conv(wide, part, 1, mish=True)
        self.before = conv(wide, part, 1, mish=True)
        self.blocks = nn.Sequential(*(Residual(part, middle) for _ in range(blocks)))
        self.after = conv(part, part, 1, mish=True)
        self.merge = conv(2 * part, wide, 1, mish=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        through = self.after(self.blocks(self.before(x)))
        return self.merge(torch.cat([through, self.aside(x)], dim=1))


class PyramidPooling(nn.Module):
    """The largest values of 5x5, 9x9 and 13x13 surroundings, beside the values themselves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = [functional.max_pool2d(x, size, 1, size // 2) for size in (13, 9, 5)]
        return torch.cat([*pooled, x], dim=1)


def alternating(channels_in: int, narrow: int, count: int) -> nn.Sequential:
    """`count` convolutions, 1x1 to `narrow` channels and 3x3 to twice as many in turn."""
    layers: list[nn.Module] = []
    channels = channels_in
    for number in range(count):
        width, kernel = (2 * narrow, 3) if number % 2 else (narrow, 1)
        layers.append(conv(channels, width, kernel))
        channels = width
    return nn.Sequential(*layers)


class Up(nn.Module):
    """Deep features, twice as large, beside those of one stage above."""

    def __init__(self, deep: int, shallow: int) -> None:
        super().__init__()
        narrow = deep // 2
        self.reduce = conv(deep, narrow, 1)
        self.lateral = conv(shallow, narrow, 1)
        self.mix = alternating(2 * narrow, narrow, 5)

    def forward(self, deep: torch.Tensor, shallow: torch.Tensor) -> torch.Tensor:
        enlarged = functional.interpolate(self.reduce(deep), scale_factor=2.0, mode="nearest")
        return self.mix(torch.cat([self.lateral(shallow), enlarged], dim=1))


class Down(nn.Module):
    """Shallow features, half as large, beside those of one stage below."""

    def __init__(self, shallow: int) -> None:
        super().__init__()
        self.down = conv(shallow, 2 * shallow, 3, stride=2)
        self.mix = alternating(4 * shallow, 2 * shallow, 5)

    def forward(self, shallow: torch.Tensor, deep: torch.Tensor) -> torch.Tensor:
        return self.mix(torch.cat([self.down(shallow), deep], dim=1))


class YOLOv4(nn.Module):
    """x: [N, 3, H, W], H and W multiples of 32 -> raw heads [N, 255, H/8, W/8], then of H/16 and H/32.

    With another number of stages than five, heads are at the last three of them.
    """

    def __init__(
        self, *, width: int = 32, blocks: Sequence[int] = BLOCKS, head_channels: int = HEAD_CHANNELS
    ) -> None:
        super().__init__()
        self.stem = conv(3, width, 3, mish=True)
        self.stages = nn.ModuleList(
            CrossStage(width * 2**stage, count, first=stage == 0) for stage, count in enumerate(blocks)
        )
        middle = width * 2 ** (len(blocks) - 1)  # channels of the second deepest stage
        self.pyramid = nn.Sequential(
            alternating(2 * middle, middle, 3), PyramidPooling(), alternating(4 * middle, middle, 3)
        )
        self.up4, self.up3 = Up(middle, middle), Up(middle // 2, middle // 2)
        self.down4, self.down5 = Down(middle // 4), Down(middle // 2)
        self.heads = nn.ModuleList(
            nn.Sequential(conv(channels, 2 * channels, 3), nn.Conv2d(2 * channels, head_channels, 1))
            for channels in (middle // 4, middle // 2, middle)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.stem(x)
        found: list[torch.Tensor] = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        deep = self.pyramid(found[-1])
        middle = self.up4(deep, found[-2])
        fine = self.up3(middle, found[-3])
        middle = self.down4(fine, middle)
        deep = self.down5(middle, deep)
        return tuple(head(features) for head, features in zip(self.heads, (fine, middle, deep), strict=True))


YOLOV4 = ModelSpec(
    name="yolov4",
    build=with_weights(YOLOv4, he_normal_leaky),
    inputs=shapes.normal(*shapes.YOLOV4),
    # convolutions on the longest path, of three operators each: stem, stages, pyramid, up, down, head; sums
    depth=(1 + 4 * 5 + 2 * sum(BLOCKS) + 6 + 12 + 12 + 2) * 3 + sum(BLOCKS),
    source="Bochkovskiy, Wang & Liao, YOLOv4 (2020), section 3.4; layers of its release, yolov4.cfg",
)
