"""ResNet-50 and an encoder of BERT's size in plain torch: what a machine with a GPU need not download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, added to their input (He et al. 2015, Figure 5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.third, self.third_norm = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        same = stride == 1 and inputs == 4 * width
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.first_norm(self.first(x)))
        inner = functional.relu(self.second_norm(self.second(inner)))
        return functional.relu(self.third_norm(self.third(inner)) + self.shortcut(x))


def resnet50(blocks: tuple[int, ...] = (3, 4, 6, 3)) -> nn.Module:
    """[N, 3, H, W] -> [N, 1000]."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, count in enumerate(blocks):
        for number in range(count):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage and not number else 1))
            inputs = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Bert(nn.Module):
    """Token ids [N, T] -> [N, T, vocabulary]: 12 layers of width 768 (Devlin et al. 2018, base)."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 30522) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.encoder(self.tokens(ids) + self.positions(positions)))


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network, and batches for it.

    Attributes:
        make: the module.
        batch: of so many samples on a device: inputs, and classes.
        samples: in a batch of the benchmark.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[int, str], tuple[torch.Tensor, torch.Tensor]]
    samples: int


def _images(samples: int, device: str, size: int = 224) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(samples, 3, size, size, device=device)
    return images, torch.randint(1000, (samples,), device=device)


def _texts(
    samples: int, device: str, length: int = 128, words: int = 30522
) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(words, (samples, length), device=device)
    return ids, ids.clone()


NETWORKS: dict[str, Network] = {
    "resnet50": Network(make=resnet50, batch=_images, samples=64),
    "bert": Network(make=Bert, batch=_texts, samples=32),
}
SMALL: dict[str, Network] = {
    "resnet50": Network(
        make=lambda: resnet50((1, 1)), batch=lambda n, device: _images(n, device, 32), samples=2
    ),
    "bert": Network(
        make=lambda: Bert(1, 32, 2, 100), batch=lambda n, device: _texts(n, device, 8, 100), samples=2
    ),
}
