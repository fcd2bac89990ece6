"""What is compiled for which devices: the blocks for three generations, networks for one."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.blocks.definitions import BLOCKS
from benchmarks.models import MODELS
from benchmarks.models.spec import ModelSpec

# Compute capability times 10 -> the device of the catalogue whose multiprocessors a launch has to fill
DEVICES = {80: "A100", 90: "H100", 100: "B200"}
ARCHITECTURES = tuple(DEVICES)
NETWORKS_FOR = (90,)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, and what its kernels are compiled for.

    Attributes:
        is_block: its kernels have to do without spills.
        train_mode: its inference is that of train mode, as the suite for devices measures it.
    """

    name: str
    spec: ModelSpec
    architectures: tuple[int, ...]
    is_block: bool = False
    train_mode: bool = False


def cases(*, quick: bool) -> list[Case]:
    """The blocks; in full, the networks, too."""
    blocks = [
        Case(
            name=f"block {name}",
            spec=block.spec,
            architectures=ARCHITECTURES,
            is_block=True,
            train_mode=block.train_mode,
        )
        for name, block in BLOCKS.items()
    ]
    networks = [Case(name=name, spec=spec, architectures=NETWORKS_FOR) for name, spec in MODELS.items()]
    return blocks if quick else blocks + networks
