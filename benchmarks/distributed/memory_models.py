"""Models whose memory is predicted and measured on a processor, and ways to make a step of one hold less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.interleave import Step
from benchmarks.whatif.jobs import Perceptrons

REGIONS = r"^blocks\.\d+"
"""What of each model is recomputed: every block for itself."""
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.01),
    "adam": torch.optim.Adam,
}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model and what it is called with.

    Attributes:
        make: the model with its loss: a call returns one number.
        inputs: of so many samples.
        samples: of a step whose memory is predicted from shapes.
        batch: of a step that is recorded, and made to hold less; 0 where the model is not.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], torch.Tensor]
    samples: int
    batch: int = 0


class _Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
        self.net = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).square().mean()


class _Residual(nn.Module):
    """x + scale * down(gelu(up(norm(x)))), several times, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Perceptrons(blocks=6, width=256, hidden=1024).blocks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class _ConvolutionBlock(nn.Module):
    def __init__(self, channels: int, results: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, results, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(results)
        self.second = nn.Conv2d(results, results, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(results)
        same = stride == 1 and channels == results
        self.beside = nn.Identity() if same else nn.Conv2d(channels, results, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.beside(x))


class _Convolutions(nn.Module):
    """A residual network of a stem and blocks, with cross entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)
        )
        sizes = [(32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        self.blocks = nn.ModuleList(_ConvolutionBlock(*size) for size in sizes)
        self.head = nn.Linear(128, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        classes = torch.zeros(x.shape[0], dtype=torch.int64)
        return functional.cross_entropy(self.head(x.mean((2, 3))), classes)


class _PlainConvolutions(nn.Module):
    """Channels that are no multiples of 16, group norms, pooling, dropout."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, behind in ((3, 16), (16, 24), (24, 40), (40, 64)):
            layers += [
                nn.Conv2d(before, behind, 3, padding=1),
                nn.GroupNorm(4, behind),
                nn.SiLU(),
                nn.MaxPool2d(2),
            ]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * 16, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x)).square().mean()


class _Separable(nn.Module):
    """Depthwise, pointwise and transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 1),
            nn.ReLU6(),
            nn.Conv2d(32, 32, 3, padding=1, groups=32),
            nn.Conv2d(32, 64, 1),
            nn.BatchNorm2d(64),
            nn.Hardswish(),
            nn.ConvTranspose2d(64, 32, 2, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean()


class _Encoder(nn.Module):
    """torch's own encoder, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(self.layers(self.embed(x))).flatten(0, 1), x.flatten())


class _AttentionBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.gather = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, words, width = x.shape
        heads = self.attend(self.norm(x)).view(n, words, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + self.gather(seen.transpose(1, 2).reshape(n, words, width))
        return x + self.perceptron(self.second_norm(x))


class _Decoder(nn.Module):
    """Blocks of causal attention and perceptrons, with cross entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(2000, 192)
        self.blocks = nn.ModuleList(_AttentionBlock(192, 6) for _ in range(6))
        self.head = nn.Linear(192, 2000, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.embed(x)
        for block in self.blocks:
            y = block(y)
        return functional.cross_entropy(self.head(y).flatten(0, 1), x.flatten())


class _Recurrent(nn.Module):
    """Not promised: oneDNN says nowhere what memory its recurrent layers keep."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers, self.head = nn.Embedding(500, 64), nn.LSTM(64, 128, 2), nn.Linear(128, 500)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(self.layers(self.embed(x))[0]).flatten(0, 1), x.flatten())


def _words(kinds: int, length: int) -> Callable[[int], torch.Tensor]:
    return lambda samples: torch.randint(0, kinds, (samples, length))


def _images(size: int) -> Callable[[int], torch.Tensor]:
    return lambda samples: torch.randn(samples, 3, size, size)


MODELS: dict[str, Model] = {
    "perceptron": Model(make=_Perceptron, inputs=lambda n: torch.randn(n, 512), samples=256),
    "residual perceptrons": Model(
        make=_Residual, inputs=lambda n: torch.randn(n, 256), samples=512, batch=2048
    ),
    "residual convolutions": Model(make=_Convolutions, inputs=_images(48), samples=8, batch=16),
    "plain convolutions": Model(make=_PlainConvolutions, inputs=_images(64), samples=12),
    "separable convolutions": Model(make=_Separable, inputs=_images(64), samples=4),
    "encoder": Model(make=_Encoder, inputs=_words(1000, 64), samples=16),
    "decoder": Model(make=_Decoder, inputs=_words(2000, 64), samples=8, batch=16),
    "recurrent": Model(make=_Recurrent, inputs=_words(500, 32), samples=16),
}


class _Checkpointed(nn.Module):
    """A block that keeps its input only."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


def checkpointed(model: nn.Module) -> nn.Module:
    """With every block of it recomputed; changes the model."""
    blocks: nn.ModuleList = model.get_submodule("blocks")  # pyright: ignore[reportAssignmentType]
    model.blocks = nn.ModuleList(_Checkpointed(block) for block in blocks)
    return model


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, *, parts: int = 1
) -> Step:
    """Forward, backward and update of a batch, in so many parts."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for part in x.chunk(parts):
            loss = model(part)
            (loss / parts if parts > 1 else loss).backward()
        optimizer.step()

    return step
