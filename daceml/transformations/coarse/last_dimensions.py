"""Normalizations run over the last dimensions of a tensor: its rows."""

from __future__ import annotations

from math import prod

import numpy as np

from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.transformations.rewriting.replacement import Value

# A larger scale of ones is one element, for which no vendor's gradient is written
_MOST_ONES = 65_536


def first_of_last(axes: Value, rank: int) -> int | str:
    """The first of the dimensions that are reduced, or why they are not the last ones."""
    if axes.constant is None:
        return f"{axes.array} is not constant, so the reduced dimensions are not known"
    chosen = sorted(int(axis) % rank for axis in axes.constant.reshape(-1))
    if not chosen or chosen != list(range(chosen[0], rank)):
        return f"it normalizes dimensions {chosen} of {rank}, not the last ones"
    return chosen[0]


def fits_rows(values: Value, x: Value, first: int | str) -> str | None:
    """Why a scale or bias is not one number for each element of a row of x."""
    rows = x.shape[first:] if isinstance(first, int) else ()
    if values.dtype != x.dtype:
        return f"{values} is of another type"
    return None if values.shape == rows else f"{values} is not one number for each element of a row"


def ones(x: Value, first: int) -> np.ndarray:
    """A scale that changes nothing."""
    sizes = [n for n in x.shape[first:] if isinstance(n, int)]
    whole = len(sizes) == x.rank - first and prod(sizes) <= _MOST_ONES
    return np.ones(sizes if whole else 1, BY_DACE_TYPE[x.dtype].numpy_type)
