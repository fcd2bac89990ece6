"""Whether results are those that the standard asks for: its runner's own rules; of random ones, moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# Two units in the last place. The standard's runner grants them to bfloat16 only, but its float16 results are
# rounded too: some lie farther from the exact ones, computed in float64, than the results compared with them.
_ROUNDING = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
# Standard errors: the odds that a right generator misses one bound are one in 5e8
_SIGMAS = 6.0


def difference(
    ours: Sequence[Any], expected: Sequence[Any], *, rtol: float, atol: float, statistical: bool = False
) -> str:
    """How results differ; empty where they agree.

    Args:
        expected: shapes and element types have to be the same, values within rtol and atol.
        statistical: compare mean and deviation instead of values.
    """
    if len(ours) != len(expected):
        return f"{len(ours)} results instead of {len(expected)}"
    for index, (mine, other) in enumerate(zip(ours, expected, strict=True)):
        if problem := _different(mine, other, rtol, atol, statistical):
            return f"result {index} {problem}"
    return ""


def _different(mine: Any, other: Any, rtol: float, atol: float, statistical: bool) -> str:
    if other is None or mine is None:
        return "" if mine is other else f"is {_kind(mine)} instead of {_kind(other)}"
    if isinstance(other, list | tuple):
        if not isinstance(mine, list | tuple):
            return f"is {_kind(mine)} instead of a sequence"
        return difference(mine, other, rtol=rtol, atol=atol, statistical=statistical)
    mine, other = np.asarray(mine), np.asarray(other)
    if other.dtype.kind in "OSU":
        same = mine.shape == other.shape and np.array_equal(mine.astype(str), other.astype(str))
        return "" if same else "has other texts"
    if mine.shape != other.shape or mine.dtype != other.dtype:
        return f"is {mine.dtype} {mine.shape} instead of {other.dtype} {other.shape}"
    rtol = max(rtol, _ROUNDING.get(other.dtype.name, 0.0))
    wide = np.complex128 if other.dtype.kind == "c" else np.float64
    if other.dtype.kind not in "iub":  # whole numbers stay what they are: int64 has more digits
        mine, other = mine.astype(wide), other.astype(wide)
    if statistical:
        return _other_moments(mine.astype(np.float64), other.astype(np.float64))
    close = mine == other if other.dtype.kind == "b" else np.isclose(mine, other, rtol, atol, equal_nan=True)
    if close.all():
        return ""
    place = tuple(int(i) for i in np.argwhere(~close)[0])
    a, b = (
        f"{value[place]:.6g}" if value.dtype.kind == "f" else str(value[place]) for value in (mine, other)
    )
    return f"differs in {int((~close).sum())} of {close.size}: {a} at {place}, not {b}"


def _other_moments(mine: np.ndarray, other: np.ndarray) -> str:
    if mine.size == 0:
        return ""
    if not np.isfinite(mine).all():
        return "is not finite"
    spread = max(mine.std(), other.std())
    bound = _SIGMAS * spread * np.sqrt(2 / mine.size) + 1e-6
    for name, a, b in (("mean", mine.mean(), other.mean()), ("deviation", mine.std(), other.std())):
        if abs(a - b) > bound:
            return f"has {name} {a:.4g} instead of {b:.4g}, more than {bound:.2g} away"
    return ""


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
