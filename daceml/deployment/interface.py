"""The tensors of an exported model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or a result: an array in row-major order.

    Attributes:
        dtype: as torch calls it, "float32".
        code: torch's number of it.
        shape: ints, or texts over the sizes of inputs.
    """

    name: str
    dtype: str
    code: int
    shape: tuple[int | str, ...]


def interface_text(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """Types and ranks, as a library holds them: what its caller makes room for has to be the same."""
    told = (", ".join(f"{t.dtype} of rank {len(t.shape)}" for t in tensors) for tensors in (inputs, outputs))
    return " -> ".join(f"({part})" for part in told)
