"""Predictions for other hardware beside what ran there: python -m benchmarks.prediction FOLDER --check.

FOLDER is what $DACEML_DATA names: public traces and measurements.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parts import Part, Seen, run_parts


def _occupancy(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.occupancy import measured

    del quick
    return measured(folder)


def _database(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.database import measure

    del folder
    return measure(quick=quick)


def _additivity(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.additivity import ROUNDS, additivity, bars

    del folder
    rows = additivity(rounds=ROUNDS // 4 if quick else ROUNDS)
    return rows, bars(rows)


def _rooflines(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.rooflines import measured

    del quick
    return measured(folder)


def _nccl(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.nccl import measured

    del quick
    return measured(folder)


def _operators(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.operators import measured

    return measured(folder, quick=quick)


def _left_out(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.left_out import measured

    return measured(folder, quick=quick)


def _gemm(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.gemm import measured

    return measured(folder, quick=quick)


def _ablation(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.ablation import measured

    return measured(folder, quick=quick)


def _traces(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.traces import measured

    del quick
    return measured(folder)


def _wave_scaling(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.wave_scaling import measured

    return measured(folder, quick=quick)


def _shapes(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.prediction.shapes import measured

    del quick
    return measured(folder)


PARTS: dict[str, Part] = {
    "occupancy": _occupancy,
    "database": _database,
    "rooflines": _rooflines,
    "nccl": _nccl,
    "gemm": _gemm,
    "left_out": _left_out,
    "operators": _operators,
    "ablation": _ablation,
    "wave_scaling": _wave_scaling,
    "traces": _traces,
    "shapes": _shapes,
    "additivity": _additivity,
}
"""In the order in which they run."""


def main(arguments: Sequence[str] | None = None) -> int:
    return run_parts(
        "prediction", "Compare predictions for other hardware with what was measured there.", PARTS, arguments
    )


if __name__ == "__main__":
    sys.exit(main())
