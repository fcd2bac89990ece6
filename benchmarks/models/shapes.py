"""Input shapes of the benchmarked networks, in one place, so that tables can quote them."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.models.spec import Inputs

MISH = (8, 32, 112, 112)
MBCONV = (8, 32, 112, 112)
RESNET50 = (2, 3, 224, 224)
RESNET50_SINGLE = (1, 3, 224, 224)
IMAGENET = (2, 3, 224, 224)
MLP_MIXER = (4, 3, 224, 224)
BERT = (2, 128, 1024)
FCN8S = (2, 3, 224, 224)
WAVENET = (1, 8000)
DLRM_BATCH = 2048
YOLOV4 = (1, 3, 416, 416)


def normal(*shape: int) -> Inputs:
    """One input of this shape, standard normal; the first size is the batch."""

    def inputs(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None) -> tuple[Any, ...]:
        sizes = (shape[0] if batch is None else batch, *shape[1:])
        # Drawn in float32 and then converted, so that float64 runs see exactly the float32 numbers.
        return (_normal(sizes, generator).to(dtype),)

    return inputs


def classes(count: int, *shape: int) -> Inputs:
    """One input of this shape, int64 numbers below `count`; the first size is the batch."""

    def inputs(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None) -> tuple[Any, ...]:
        sizes = (shape[0] if batch is None else batch, *shape[1:])
        return (torch.randint(count, sizes, generator=generator, device=generator.device),)

    return inputs


def _normal(sizes: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(sizes, generator=generator, device=generator.device, dtype=torch.float32)
