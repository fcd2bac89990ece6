"""The inverted bottleneck of EfficientNet, as one would write it in PyTorch.

Source: Tan & Le, EfficientNet (ICML 2019), table 1; squeeze and excite as in Hu et al. (CVPR 2018).
"""

from __future__ import annotations

import torch
from torch import nn


class MBConv(nn.Module):
    """x: [N, C, H, W] -> [N, C, H, W]: expand, depthwise convolution, squeeze and excite, project, add x."""

    def __init__(
        self, channels: int = 24, expansion: int = 6, kernel: int = 3, squeeze_ratio: float = 0.25
    ) -> None:
        super().__init__()
        wide, squeezed = channels * expansion, max(1, int(channels * squeeze_ratio))
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, kernel, padding=kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(),
        )
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, wide, 1),
            nn.Sigmoid(),
        )
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.depthwise(self.expand(x))
        return self.project(wide * self.excite(wide)) + x
