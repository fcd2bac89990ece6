"""Networks and blocks whose variants are predicted and then measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from benchmarks.blocks.definitions import BLOCKS
from benchmarks.blocks.definitions import spec_of as block_spec
from benchmarks.models import MODELS
from benchmarks.models.spec import ModelSpec

MANY, FEW = 12, 4
_BATCHES = (0.5, 0.25)
NETWORKS = ("mbconv", "bert", "dlrm", "resnet50")
FURTHER = ("mobilenetv2", "efficientnet_b0", "mlp_mixer", "fcn8s", "wavenet", "wide_resnet50")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network in one mode.

    Attributes:
        variants: how many are measured.
        batches: numbers of samples that calls may have, as shares of what they have.
    """

    name: str
    training: bool
    variants: int
    batches: tuple[float, ...] = ()

    @property
    def title(self) -> str:
        """As rows name it."""
        return f"{self.name}, {'training' if self.training else 'inference'}"

    def subject(self) -> tuple[nn.Module, tuple[Any, ...]]:
        """The module, and the inputs of a call."""
        spec = _spec(self.name)
        module = spec.module(0)
        inputs = spec.example(0)
        if self.training and self.name in BLOCKS:  # blocks compute gradients of their inputs
            inputs = tuple(x.requires_grad_(x.is_floating_point()) for x in inputs)
        return (module.train() if self.training else module.eval()), inputs


def cases(*, quick: bool) -> list[Case]:
    """In the order in which they run; `quick` has the smallest ones only."""
    if quick:
        return [
            Case(name="mbconv", training=False, variants=FEW),
            Case(name="mish", training=True, variants=FEW),
        ]
    # blocks alone have few different programs
    blocks = [
        Case(name=name, training=mode, variants=MANY, batches=_BATCHES)
        for name in BLOCKS
        for mode in (False, True)
    ]
    main = [Case(name=name, training=mode, variants=MANY) for name in NETWORKS for mode in (False, True)]
    further = [Case(name=name, training=False, variants=FEW) for name in FURTHER if name in MODELS]
    return [*blocks, *main, *further]


def _spec(name: str) -> ModelSpec:
    return MODELS[name] if name in MODELS and name not in BLOCKS else block_spec(name)
