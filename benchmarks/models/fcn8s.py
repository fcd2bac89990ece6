"""FCN-8s: VGG-16 made fully convolutional, and three scores upsampled and added."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec, he_normal, with_weights

# Channels of VGG-16's 3x3 convolutions; each group ends in a pooling. Simonyan & Zisserman, table 1, D.
VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
PADDING = 100


class FCN8s(nn.Module):
    """x: [N, 3, H, W] -> [N, classes, H, W].

    The first convolution pads by 100, so that any image is large enough for the 7x7 convolution; crops by
    fixed offsets bring the scores of the three depths over one another.
    """

    def __init__(
        self, *, groups: Sequence[Sequence[int]] = VGG16, hidden: int = 4096, classes: int = 21
    ) -> None:
        super().__init__()
        channels = 3
        self.groups = nn.ModuleList()
        for number, widths in enumerate(groups):
            layers: list[nn.Module] = []
            for place, width in enumerate(widths):
                padding = PADDING if number == place == 0 else 1
                layers += [nn.Conv2d(channels, width, 3, padding=padding), nn.ReLU(inplace=True)]
                channels = width
            self.groups.append(nn.Sequential(*layers, nn.MaxPool2d(2, 2, ceil_mode=True)))
        self.classifier = nn.Sequential(
            nn.Conv2d(channels, hidden, 7),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Conv2d(hidden, hidden, 1),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Conv2d(hidden, classes, 1),
        )
        self.score_pool4 = nn.Conv2d(groups[3][-1], classes, 1)
        self.score_pool3 = nn.Conv2d(groups[2][-1], classes, 1)
        self.upscore2 = nn.ConvTranspose2d(classes, classes, 4, stride=2, bias=False)
        self.upscore_pool4 = nn.ConvTranspose2d(classes, classes, 4, stride=2, bias=False)
        self.upscore8 = nn.ConvTranspose2d(classes, classes, 16, stride=8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled: list[torch.Tensor] = []
        features = x
        for group in self.groups:
            features = group(features)
            pooled.append(features)
        score = self.upscore2(self.classifier(features))
        score = score + crop(self.score_pool4(pooled[3]), 5, score)
        score = self.upscore_pool4(score)
        score = score + crop(self.score_pool3(pooled[2]), 9, score)
        return crop(self.upscore8(score), 31, x)


def crop(x: torch.Tensor, offset: int, like: torch.Tensor) -> torch.Tensor:
    """As many rows and columns as `like` has, from `offset` on."""
    height, width = like.shape[2:]
    return x[:, :, offset : offset + height, offset : offset + width]


def fill(module: nn.Module) -> None:
    """Weights of one layer: bilinear interpolation with some noise for upsampling, He's for the others.

    The noise mixes classes, which pure interpolation keeps apart, so that mistaken channels would show.
    """
    he_normal(module)
    if isinstance(module, nn.ConvTranspose2d):
        size = module.kernel_size[0]
        centre = (size - 1) / 2
        ramp = 1 - (torch.arange(size) - centre).abs() / ((size + 1) // 2)
        nn.init.normal_(module.weight, 0.0, 0.05)
        for channel in range(min(module.in_channels, module.out_channels)):
            module.weight[channel, channel] += torch.outer(ramp, ramp)


FCN8S = ModelSpec(
    name="fcn8s",
    build=with_weights(FCN8s, fill),
    inputs=shapes.normal(*shapes.FCN8S),
    # convolutions with a rectifier each but the last, poolings, upsamplings, sums
    depth=len(list(itertools.chain(*VGG16))) * 2 + 5 + 5 + 3 + 2,
    source="Long et al., Fully Convolutional Networks (CVPR 2015), section 4; crops of the release",
)
