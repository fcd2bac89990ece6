"""What a machine does with usual operators, before anything of a model has been measured here.

Some modules have operators of each kind, as loops of their own or as a vendor's calls: their steps are
measured once for each machine and are in the library from then on, so that the first exploration knows what
such steps take here, whatever the compiler makes of them.
Source: Tianshu builds its operator database ahead of time, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from daceml.errors import DacemlError, first_line
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant

if TYPE_CHECKING:
    from daceml.tuning.step_features import StepFacts

log = logging.getLogger(__name__)

_SHAPE = 4, 48, 64, 80
_NARROW = 24  # channels of convolutions and features of products that are loops
_FEW = 32  # channels of the largest images
_WIDE = 768  # features of products that are calls
_MANY, _SOME = 8, 3  # of images, as whose rows these products have


class Elementwise(nn.Module):
    """Functions that activations consist of, and arithmetic between arrays."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        f = nn.functional
        plain = torch.tanh, torch.sigmoid, torch.erf, torch.exp, torch.relu, torch.sin, torch.reciprocal
        activations = f.softplus, f.gelu, f.silu, f.mish, f.hardswish
        return (
            *(function(x) for function in (*plain, *activations)),
            *(torch.log1p(y * y), torch.sqrt(y * y + 1), x * y, x + 1.5, torch.where(x > 0, x, y)),
        )


class Rows(nn.Module):
    """Sums, statistics and copies along and across rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(_SHAPE[-1])
        self.batch_norm = nn.BatchNorm2d(_SHAPE[1])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        f = nn.functional
        return (
            *(torch.softmax(x, dim=-1), torch.log_softmax(x, dim=1), self.layer_norm(x), self.batch_norm(y)),
            *(x.sum(dim=-1), y.sum(dim=(2, 3)), x.mean(dim=0), y.amax(dim=1)),
            *(x.flatten(0, 2).sum(dim=0), y.flatten(2).flatten(0, 1).sum(dim=0)),
            *(f.avg_pool2d(x, 2), f.max_pool2d(y, 3, stride=2, padding=1), torch.cat([x, y], dim=1)),
            *(x.permute(0, 2, 3, 1) * 2.0, f.pad(y, (1, 1, 1, 1))),
        )


class Contractions(nn.Module):
    """Products and convolutions, which may be loops."""

    def __init__(self) -> None:
        super().__init__()
        channels = _SHAPE[1]
        self.linear = nn.Linear(_SHAPE[-1], _NARROW)
        self.point = nn.Conv2d(channels, _NARROW, 1)
        self.window = nn.Conv2d(channels, _NARROW, 3, padding=1)
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *(self.linear(x), self.point(x), self.window(y), self.depthwise(y)),
            x @ y.transpose(2, 3),
        )


class Products(nn.Module):
    """Products of some hundred rows with wide weights, as between the layers of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(_SHAPE[-1], _WIDE)
        self.across = nn.Linear(_WIDE, _WIDE)
        self.narrow = nn.Linear(_WIDE, _WIDE // 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        many, some = (z.flatten(0, 1)[:images] for z, images in ((x, _MANY), (y, _SOME)))
        wide = torch.relu(self.widen(many)), torch.tanh(self.widen(some))
        across = tuple(map(self.across, wide))
        return (*across, *(self.narrow(z * z) for z in across))


class Images(nn.Module):
    """Convolutions of every kind, with statistics, activations and gates behind them."""

    def __init__(self) -> None:
        super().__init__()
        channels = [_FEW * 2**stage for stage in range(4)]
        activations = nn.SiLU, nn.ReLU6, nn.ReLU, nn.SiLU
        taps = (3, 5), (5, 3), (3, 3), (5, 5)
        self.stages = nn.ModuleList(map(_Stage, channels, activations, taps))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found: list[torch.Tensor] = []
        x = torch.cat([x, y])[:, :_FEW]
        for stage in self.stages:
            x, aside = stage(x)
            found += [x.mean(dim=(2, 3)), aside]
            x = x[: max(len(x) // 2, 1)]  # arrays of many sizes
        return (*found, x)


class _Stage(nn.Module):
    """A wide part with a gate, and a narrow one beside an identity; an image of a quarter of the size."""

    def __init__(self, channels: int, activation: type[nn.Module], taps: tuple[int, int]) -> None:
        super().__init__()
        wide, narrow = 3 * channels, channels // 4
        self.widen = nn.Sequential(_convolution(channels, wide, 1), activation())
        self.filter = nn.Sequential(_convolution(wide, wide, taps[0], groups=wide), activation())
        self.gate = nn.Sequential(
            nn.Conv2d(wide, narrow, 1), activation(), nn.Conv2d(narrow, wide, 1), nn.Sigmoid()
        )
        self.narrow = _convolution(wide, channels, 1)
        self.window = nn.Sequential(_convolution(channels, channels, 3), activation())
        shrink = _convolution(channels, wide, taps[1], groups=channels, stride=2)
        self.last = nn.Sequential(shrink, activation())
        self.aside = _convolution(wide, channels, 1)
        self.out = _convolution(wide, 2 * channels, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = self.filter(self.widen(x))
        x = x + self.narrow(wide * self.gate(wide.mean(dim=(2, 3), keepdim=True)))
        # results are rows, whatever lies before them
        return self.out(self.last(self.window(x))), self.aside(wide)


def _convolution(
    channels: int, results: int, taps: int, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    window = nn.Conv2d(channels, results, taps, stride=stride, padding=taps // 2, groups=groups, bias=False)
    return nn.Sequential(window, nn.BatchNorm2d(results))


@dataclass(frozen=True, kw_only=True)
class Part:
    """One module of the course.

    Attributes:
        variants: whose steps are measured.
        functions: it is measured where a model's standard variant calls one of them; empty: for every model.
    """

    module: type[nn.Module]
    training: bool
    variants: tuple[Variant, ...]
    functions: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """Name of it, for a reader and for the library."""
        return f"{self.module.__name__}, {'training' if self.training else 'inference'}"

    def serves(self, steps: Iterable[StepFacts]) -> bool:
        """Whether it says something of the variants of a program."""
        return not self.functions or any(step.function in self.functions for step in steps)


_UNOPTIMISED = Variant(unoptimised=True)
_LOOPS = Variant(choices=("convolutions in loops", "products in loops"))
_CONVOLUTIONS = frozenset({"convolution", "pointwise", "depthwise"})
_PRODUCTS = frozenset({"packed_product", "addmm_out", "mm_out"})
_LEFT_OUT = "pack_weights", "use_channels_last", "fold_batch_norms", "fuse_activations", "sum_columns"
COURSE: Sequence[Part] = (
    Part(module=Elementwise, training=False, variants=(_UNOPTIMISED,)),
    Part(module=Elementwise, training=True, variants=(_UNOPTIMISED,)),
    Part(module=Rows, training=False, variants=(_UNOPTIMISED,)),
    Part(module=Rows, training=True, variants=(_UNOPTIMISED, Variant())),
    Part(module=Contractions, training=False, variants=(Variant(), _LOOPS)),
    Part(module=Contractions, training=True, variants=(Variant(), _LOOPS)),
    Part(
        module=Products,
        training=False,
        variants=(Variant(), Variant(without=("pack_weights",))),
        functions=_PRODUCTS,
    ),
    Part(
        module=Images,
        training=False,
        variants=(
            Variant(), Variant(choices=("columns everywhere",)),
            *(Variant(without=(name,)) for name in _LEFT_OUT),
        ),
        functions=_CONVOLUTIONS,
    ),
)  # fmt: skip
_ROUNDS = 2  # all variants of a part one after the other: a machine that slows down recovers


def measured(part: Part) -> list[tuple[StepFacts, float]]:
    """Steps of a part and their microseconds; none where daceml or torch refuses it here, which is logged."""
    try:
        return _measured(part)
    except (DacemlError, RuntimeError) as error:
        log.warning("%s was left out of what is measured first: %s", part.title, first_line(error))
        return []


def _measured(part: Part) -> list[tuple[StepFacts, float]]:
    generator = torch.Generator().manual_seed(0)
    inputs: tuple[Any, ...] = tuple(torch.randn(_SHAPE, generator=generator) for _ in range(2))
    inputs = tuple(x.requires_grad_(part.training) for x in inputs)
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(0)
        module = part.module().train(part.training)
        subject = Subject(module, inputs, {}, training=part.training)
    lowered = [subject.lower(variant) for variant in part.variants]
    runs = [subject.compile(one) for one in lowered]
    rounds = [[run.steps_us(run.call_us()) for run in runs] for _ in range(_ROUNDS)]
    found: list[tuple[StepFacts, float]] = []
    for one, seen in zip(lowered, zip(*rounds, strict=True), strict=True):
        found += zip(one.facts, map(min, zip(*seen, strict=True)), strict=True)
    return found
