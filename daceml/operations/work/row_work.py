"""What operators do that read and write whole tensors: by element, or by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daceml.errors import EstimationError
from daceml.operations.database.records import Operation

# PyTorch's ATen/native/cuda/SoftMax.cu: rows of at most so many elements are held in the registers of a warp,
# padded to a power of two; longer ones are read by a block, several times
_WARP_ROW = 1024


@dataclass(frozen=True, kw_only=True)
class RowOperator:
    """An operator that goes through its first operand.

    Attributes:
        tensors: of the first operand's size that are read or written, once each.
        by_row: whether the last dimension is gone through as a whole.
        longest: row lengths at which another kernel takes over.
    """

    tensors: int
    by_row: bool = False
    longest: tuple[int, ...] = ()


OPERATORS: dict[str, RowOperator] = {
    "aten::add": RowOperator(tensors=3),
    "aten::mul": RowOperator(tensors=3),
    "aten::gelu": RowOperator(tensors=2),
    "aten::relu": RowOperator(tensors=2),
    "aten::softmax": RowOperator(tensors=2, by_row=True, longest=(_WARP_ROW,)),
    "aten::layer_norm": RowOperator(tensors=2, by_row=True),
}


@dataclass(frozen=True, kw_only=True)
class RowWork:
    """Many operations of one operator, as columns.

    Attributes:
        rows, length: of the operand; rows x length elements.
        bytes_moved: at least, from and to memory.
        mode: which kernel takes rows of such a length, from 0.
    """

    rows: np.ndarray
    length: np.ndarray
    bytes_moved: np.ndarray
    mode: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


def row_work(operations: Sequence[Operation]) -> RowWork:
    """The work of operations of one operator.

    Raises:
        EstimationError: they are of several, or of one that does not go through rows.
    """
    names = {operation.operator for operation in operations}
    known = OPERATORS.get(next(iter(names), ""))
    if len(names) != 1 or known is None:
        raise EstimationError(
            f"{', '.join(sorted(names)) or 'nothing'} cannot be estimated by rows",
            why=f"what is known by rows: {', '.join(sorted(OPERATORS))}, one at a time",
            fix="estimate each operator on its own, and others from the operation database",
        )
    first = [operation.operands[0] for operation in operations]
    length = np.array([one.shape[-1] if one.shape else 1 for one in first], dtype=float)
    elements = np.array([one.elements for one in first], dtype=float)
    moved = np.array([one.size_bytes for one in first], dtype=float)
    others = [sum(o.size_bytes for o in operation.operands[1:]) for operation in operations]
    # what is smaller than the first operand is read besides: weights of a normalisation
    small = np.array(others, dtype=float) if known.by_row else np.zeros(len(first))
    return RowWork(
        rows=elements / np.maximum(length, 1),
        length=length,
        bytes_moved=known.tensors * moved + small,
        mode=np.searchsorted(np.array(known.longest, dtype=float), length),
    )
