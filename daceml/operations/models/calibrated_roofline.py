"""Rooflines of one device whose rates are those of its measurements: a floor, and sums of what takes time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from daceml.errors import EstimationError
from daceml.operations.database.records import Operation
from daceml.operations.work.row_work import RowWork, row_work

FEWEST = 30
"""Measurements of a kernel, below which its rates would be those of a few shapes."""

# How round the corner is between the floor and what lies above it
_CORNERS = (3, 4, 6, 8, 12, 20)
# of the quantile, which noise draws down
_FLOORS = (0.97, 1.0, 1.03, 1.06, 1.1)
_FLOOR_QUANTILE = 0.03
# What is nearer to the floor says nothing of rates
_ABOVE_FLOOR = 1.15
_ROUNDS = 25
# Relative errors below this count alike, so that no single row decides
_SMALLEST_ERROR = 0.01
# Elements that the threads of a row take at a time: 128 threads, 4 each
_STEP = 512


@dataclass(frozen=True, kw_only=True)
class KernelRates:
    """Of one kernel: seconds by term, which are never negative.

    Attributes:
        floor_s: the least that a call takes.
        corner: exponent of the sum of floor and work: the higher, the more it is the larger of both.
        seconds: by name of the term, for one unit of it.
    """

    floor_s: float
    corner: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class CalibratedRoofline:
    """One operator on one device.

    Attributes:
        l2_bytes: of the device's last cache.
        kernels: rates by mode; None for one that was measured too seldom.
    """

    operator: str
    l2_bytes: float
    kernels: tuple[KernelRates | None, ...]

    def predict(self, operations: Sequence[Operation]) -> np.ndarray:
        """Seconds of each operation.

        Raises:
            EstimationError: another operator, or rows of a length whose kernel was not measured.
        """
        work = row_work(operations)
        if operations[0].operator != self.operator:
            raise EstimationError(
                f"{operations[0].operator} is not what was measured",
                why=f"these rates are those of {self.operator}",
                fix="calibrate a roofline for it",
            )
        terms = _terms(work, self.l2_bytes)
        found = np.empty(len(work))
        for mode in np.unique(work.mode):
            rates = self.kernels[mode] if mode < len(self.kernels) else None
            if rates is None:
                length = int(work.length[work.mode == mode][0])
                raise EstimationError(
                    f"{self.operator} of rows of {length} cannot be estimated",
                    why="another kernel takes them, of which there are too few measurements",
                    fix=f"measure at least {FEWEST} such operations",
                )
            mine = work.mode == mode
            above = np.sum([terms[name][mine] * s for name, s in rates.seconds.items()], axis=0)
            found[mine] = _joined(rates.floor_s, above, rates.corner)
        return found


def calibrated(
    operations: Sequence[Operation], seconds: np.ndarray, *, l2_bytes: float
) -> CalibratedRoofline:
    """Rates from measurements of one operator on one device.

    Args:
        seconds: measured, one for each operation.
        l2_bytes: of the device's last cache.
    Raises:
        EstimationError: no kernel of it was measured often enough.
    """
    work, measured = row_work(operations), np.asarray(seconds, dtype=float)
    terms = _terms(work, l2_bytes)
    kernels: list[KernelRates | None] = []
    for mode in range(int(work.mode.max()) + 1):
        mine = work.mode == mode
        enough = int(mine.sum()) >= FEWEST
        kernels.append(_rates({n: t[mine] for n, t in terms.items()}, measured[mine]) if enough else None)
    if not any(kernels):
        raise EstimationError(
            f"{operations[0].operator} has too few measurements for a roofline",
            why=f"there are {len(work)}, and a kernel's rates need {FEWEST}",
            fix="measure more shapes of it",
        )
    return CalibratedRoofline(operator=operations[0].operator, l2_bytes=l2_bytes, kernels=tuple(kernels))


def _terms(work: RowWork, l2_bytes: float) -> dict[str, np.ndarray]:
    """What takes time, each in its own unit."""
    held = np.clip(l2_bytes / np.maximum(work.bytes_moved, 1), 0, 1)
    padded = 2.0 ** np.ceil(np.log2(np.maximum(work.length, 1)))
    return {
        "call": np.ones(len(work)),
        "byte from memory": work.bytes_moved * (1 - held),
        "byte from cache": work.bytes_moved * held,
        "row": work.rows,
        "element with padding": work.rows * padded,
        "step of a row": work.rows * np.ceil(work.length / _STEP),
    }


def _rates(terms: Mapping[str, np.ndarray], seconds: np.ndarray) -> KernelRates:
    """Least relative errors, by least squares whose weights follow the errors."""
    floor = float(np.quantile(seconds, _FLOOR_QUANTILE))
    above = seconds > _ABOVE_FLOOR * floor
    above = above if above.sum() >= len(terms) else np.ones(len(seconds), dtype=bool)
    columns = np.stack(list(terms.values()), axis=1)
    scale = np.abs(columns).mean(axis=0) + 1e-300
    matrix, target = (columns / scale)[above], seconds[above]
    weights, solution = 1 / target, np.zeros(len(terms))
    for _ in range(_ROUNDS):
        solution, _ = nnls(matrix * weights[:, None], target * weights)
        error = np.abs(matrix @ solution - target) / target
        weights = 1 / target / np.sqrt(np.maximum(error, _SMALLEST_ERROR))
    work = (columns / scale) @ solution
    choices = [(floor * part, corner) for part in _FLOORS for corner in _CORNERS]
    best = min(choices, key=lambda c: float(np.abs(_joined(c[0], work, c[1]) / seconds - 1).mean()))
    return KernelRates(
        floor_s=best[0],
        corner=best[1],
        seconds={name: float(s) for name, s in zip(terms, solution / scale, strict=True)},
    )


def _joined(floor_s: float, above_s: np.ndarray, corner: int) -> np.ndarray:
    return np.asarray((floor_s**corner + np.asarray(above_s) ** corner) ** (1 / corner))
