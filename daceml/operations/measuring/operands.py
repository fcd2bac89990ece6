"""Operands with random values: on zeros, a device draws less power and some kernels take shorter ways."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from daceml.errors import MeasurementError
from daceml.operations.measuring.calls import Tensor

_SHARE = 4  # of the memory that is free, operands take at most this part


def draw(
    wanted: Sequence[Tensor], *, sets: int = 1, device: str = "cpu", seed: int = 0
) -> tuple[tuple[torch.Tensor, ...], ...]:
    """`sets` of operands, each in memory of its own, with the strides that are wanted.

    Values are normal, whole numbers and signs within the range that the call minds.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    return tuple(tuple(_draw(one, generator) for one in wanted) for _ in range(sets))


def check_room(bytes_needed: int, bytes_free: int) -> None:
    """Refuse operands that fill the memory: the process would be killed without a word.

    Raises:
        MeasurementError: they take more than a quarter of what is free.
    """
    if bytes_needed > bytes_free // _SHARE:
        raise MeasurementError(
            "the operands do not fit into memory",
            why=f"they take {bytes_needed / 1e9:.1f} GB; {bytes_free / 1e9:.1f} GB are free, of which a "
            "quarter is for them",
            fix="measure smaller sizes",
        )


def _draw(wanted: Tensor, generator: torch.Generator) -> torch.Tensor:
    if any(stride < 0 for stride in wanted.strides):
        raise MeasurementError("a tensor with a negative stride is not measured", why="torch makes none")
    kind = getattr(torch, wanted.dtype)
    device = generator.device
    if kind is torch.bool:
        values = torch.randint(0, 2, (wanted.span,), generator=generator, device=device, dtype=kind)
    elif kind.is_floating_point:
        values = torch.randn((wanted.span,), generator=generator, device=device).to(kind)
        if wanted.low is not None:
            # not below zero, and no square root's or division's worst case either
            values = values.abs_() + 0.1
    elif kind.is_complex:
        values = torch.randn((wanted.span,), generator=generator, device=device, dtype=kind)
    else:
        low = 0 if wanted.low is None else wanted.low
        high = max(low, 1 if wanted.high is None else wanted.high)
        values = torch.randint(low, high + 1, (wanted.span,), generator=generator, device=device, dtype=kind)
    return values.as_strided(wanted.shape, wanted.strides)
