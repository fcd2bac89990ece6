"""Whether two results of an operator are the same but for rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.operators.draws import Array, Draw

# Units in the last place that two implementations of a function of one element may differ by
_FUNCTION_ULP = 32
_HALF_ULP = 4
# float32 has 24 binary digits, float16 11: what a function loses in float32 is far below float16's last one
_HALVES = ("float16", "bfloat16")


def difference(use: Draw, ours: Sequence[Array], theirs: Sequence[Array]) -> str | None:
    """In what the results differ, or None."""
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {number} is {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if use.exact or a.dtype.kind in "biu":
            equal = (
                np.array_equal(a, b, equal_nan=a.dtype.kind == "f") if a.dtype.kind != "V" else (a == b).all()
            )
            if not equal:
                return f"result {number} differs in {np.count_nonzero(a != b)} of {a.size} elements"
        elif (share := _error(use, a, b)) > 1:
            return f"result {number} is {share:.3g} times as far away as rounding explains"
    return None


def _error(use: Draw, a: Array, b: Array) -> float:
    """The largest error as a share of what is allowed; sums lose digits of their largest terms."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    special = ~np.isfinite(y)
    if not np.array_equal(x[special], y[special], equal_nan=True) or not np.isfinite(x[~special]).all():
        return np.inf
    x, y = x[~special], y[~special]
    if not x.size:
        return 0.0
    half = a.dtype.name in _HALVES
    units = (_HALF_ULP if half else _FUNCTION_ULP) + 2 * use.terms
    scale = np.maximum(np.abs(y), max(1.0, np.abs(y).max()) if use.terms > 1 else 1.0)
    return float((np.abs(x - y) / (units * float(np.finfo(a.dtype).eps) * scale)).max())
