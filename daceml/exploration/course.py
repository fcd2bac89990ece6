"""What a machine does with usual operators, before anything of a model has been measured here.

Some modules have each operator as a loop of its own: their steps are measured once for each machine and are
in the library from then on, so that the first exploration knows what loops of such kinds take here, whatever
the compiler makes of them.
Source: Tianshu builds its operator database ahead of time, too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from daceml.errors import first_line
from daceml.exploration.variant import Variant

if TYPE_CHECKING:
    from daceml.frontend.search.prediction import StepFacts

log = logging.getLogger(__name__)

_SHAPE = 4, 48, 64, 80
_NARROW = 24  # channels of convolutions and features of products that are loops


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


_LOOPS = Variant(choices=("convolutions in loops", "products in loops"))
COURSE: Sequence[tuple[type[nn.Module], bool, tuple[Variant, ...]]] = (
    (Elementwise, False, (Variant(unoptimised=True),)),
    (Elementwise, True, (Variant(unoptimised=True),)),
    (Rows, False, (Variant(unoptimised=True),)),
    (Rows, True, (Variant(unoptimised=True), Variant())),
    (Contractions, False, (Variant(), _LOOPS)),
    (Contractions, True, (Variant(), _LOOPS)),
)
"""Module, whether it is trained, and the variants whose steps are measured."""


def measured_course() -> list[tuple[StepFacts, float]]:
    """Steps of the course and their microseconds; what a machine cannot run is left out, and logged."""
    found: list[tuple[StepFacts, float]] = []
    for kind, training, variants in COURSE:
        try:
            found += _measured(kind, training, variants)
        except Exception as error:  # whatever a pass, an operator or the compiler refuses here
            log.warning("%s was left out of what is measured first: %s", kind.__name__, first_line(error))
    return found


def _measured(
    kind: type[nn.Module], training: bool, variants: Sequence[Variant]
) -> list[tuple[StepFacts, float]]:
    from daceml.exploration.subject import Subject

    generator = torch.Generator().manual_seed(0)
    inputs: tuple[Any, ...] = tuple(torch.randn(_SHAPE, generator=generator) for _ in range(2))
    inputs = tuple(x.requires_grad_(training) for x in inputs)
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(0)
        subject = Subject(kind().train(training), inputs, {}, training=training)
    found: list[tuple[StepFacts, float]] = []
    for variant in variants:
        lowered = subject.lower(variant)
        run = subject.compile(lowered)
        found += zip(lowered.facts, run.steps_us(run.call_us()), strict=True)
    return found
