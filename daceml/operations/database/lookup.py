"""Which rows a question is about, and how far apart operations are that differ in sizes only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.operations.database.records import Entry, Mode, Operation, Provenance


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A row of a like operation.

    Attributes:
        distance: as `distances` says; 0 for the operation itself.
    """

    entry: Entry
    distance: float


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Rows that agree with every field that is not None; `dtype` is that of some operand."""

    operator: str | None = None
    device: str | None = None
    dtype: str | None = None
    mode: Mode | None = None
    provenance: Provenance | None = None

    def condition(self) -> tuple[str, list[str]]:
        """SQL over `e` entries, `o` operations and `v` environments, and what stands for its `?`."""
        wanted = {
            "o.operator = ?": self.operator,
            "v.device = ?": self.device,
            "EXISTS (SELECT 1 FROM operands WHERE operation = o.digest AND dtype = ?)": self.dtype,
            "e.mode = ?": self.mode,
            "e.provenance = ?": self.provenance,
        }
        chosen = {text: value for text, value in wanted.items() if value is not None}
        return " AND ".join(chosen) or "1", list(chosen.values())


def distances(operation: Operation, shapes: Sequence[str], *, rows: int) -> list[float]:
    """How far each of some operations is from this one: the length of the logarithms of their sizes' ratios.

    Every size of every operand counts, so a size that two operands share counts twice. A size of 0 counts
    as a half, which is as far from 1 as 1 is from 2.

    Args:
        shapes: of the operands of these operations, one after the other, each as in "[2,3]".
        rows: how many operations these are.
    Raises:
        ValueError: these are other operands than the operation's.
    """
    own = _logarithms([size for operand in operation.operands for size in operand.shape])
    sizes = [int(word) for text in shapes for word in text[1:-1].split(",") if word]
    others = _logarithms(sizes).reshape(rows, own.size)
    return np.sqrt(((others - own) ** 2).sum(axis=1)).tolist()


def _logarithms(sizes: list[int]) -> NDArray[np.float64]:
    return np.log(np.maximum(np.array(sizes, np.float64), 0.5))
