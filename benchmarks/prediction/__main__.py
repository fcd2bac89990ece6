"""Predictions for other hardware beside what ran there: python -m benchmarks.prediction FOLDER --check.

FOLDER is what $DACEML_DATA names: public traces and measurements.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar

Seen = tuple[list[dict[str, Any]], list[Bar]]


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


PARTS: dict[str, Callable[..., Seen]] = {
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
"""In the order in which they run; each takes the folder, and whether a first look is enough."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compare predictions for other hardware with what was measured there.")
    parser.add_argument("folder", type=Path, help="the data sets: measurements and traces")
    parser.add_argument(
        "--part", action="append", choices=tuple(PARTS), help="only this part; may be repeated (all)"
    )
    options = parser.parse_args(arguments)
    _check(parser, options.folder)
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for name in options.part or PARTS:
        seen, made = PARTS[name](options.folder, quick=options.quick)
        rows += [{"part": name, **row} for row in seen]
        bars += made
        for bar in made:
            print(bar.line(), flush=True)
    return command.finish("prediction", options, rows, bars)


def _check(parser: argparse.ArgumentParser, folder: Path) -> None:
    if not (folder / "measurements").is_dir() or not (folder / "traces").is_dir():
        parser.error(f"{folder} has no folders 'measurements' and 'traces' of public data sets")


if __name__ == "__main__":
    sys.exit(main())
