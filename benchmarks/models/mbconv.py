"""EfficientNet-B0's first MBConv block: depthwise convolution, squeeze and excite, projection."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec


class StaticSamePadConv2d(nn.Conv2d):
    """A convolution that pads its input beforehand, by zeros, so that stride 1 keeps height and width.

    The padding is a layer of its own, as in efficientnet_pytorch: a compiler has to find out that both can be
    one.
    """

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, *, groups: int = 1, bias: bool = False
    ):
        super().__init__(channels_in, channels_out, kernel, groups=groups, bias=bias)
        before, after = (kernel - 1) // 2, kernel // 2
        self.static_padding: nn.Module = (
            nn.ZeroPad2d((before, after, before, after)) if kernel > 1 else nn.Identity()
        )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        padded = self.static_padding(input)
        return functional.conv2d(
            padded, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Swish(nn.Module):
    """x * sigmoid(x), as two operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


class MBConv1(nn.Module):
    """MBConv with expand ratio 1, which therefore has no expansion, and no skip as the channel count changes.

    x: [N, channels_in, H, W] -> [N, channels_out, H, W]
    """

    def __init__(
        self, channels_in: int = 32, channels_out: int = 16, kernel: int = 3, squeeze_ratio: float = 0.25
    ) -> None:
        super().__init__()
        squeezed = max(1, int(channels_in * squeeze_ratio))
        self._depthwise_conv = StaticSamePadConv2d(channels_in, channels_in, kernel, groups=channels_in)
        self._bn1 = nn.BatchNorm2d(channels_in, momentum=0.01, eps=1e-3)
        self._se_reduce = StaticSamePadConv2d(channels_in, squeezed, 1, bias=True)
        self._se_expand = StaticSamePadConv2d(squeezed, channels_in, 1, bias=True)
        self._project_conv = StaticSamePadConv2d(channels_in, channels_out, 1)
        self._bn2 = nn.BatchNorm2d(channels_out, momentum=0.01, eps=1e-3)
        self._swish = Swish()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self._swish(self._bn1(self._depthwise_conv(x)))
        squeezed = functional.adaptive_avg_pool2d(x, 1)
        squeezed = self._se_expand(self._swish(self._se_reduce(squeezed)))
        x = torch.sigmoid(squeezed) * x
        return self._bn2(self._project_conv(x))


MBCONV = ModelSpec(
    name="mbconv",
    build=MBConv1,
    inputs=shapes.normal(*shapes.MBCONV),
    depth=14,
    source="Tan & Le, EfficientNet (ICML 2019), table 1, stage 2; layers as in efficientnet_pytorch",
)
