"""The tensors of an exported model."""

from __future__ import annotations

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
