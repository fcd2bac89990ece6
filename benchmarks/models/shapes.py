"""Input shapes of the benchmarked networks, in one place, so that tables can quote them."""

from __future__ import annotations

import torch

from benchmarks.models.spec import Inputs

MISH = (8, 32, 112, 112)
MBCONV = (8, 32, 112, 112)
RESNET50 = (2, 3, 224, 224)
RESNET50_SINGLE = (1, 3, 224, 224)
BERT = (2, 128, 1024)


def normal(*shape: int) -> Inputs:
    """One input of this shape, standard normal."""

    def inputs(generator: torch.Generator, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        # Drawn in float32 and then converted, so that float64 runs see exactly the float32 numbers.
        return (torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype),)

    return inputs
