"""Runs of several ranks, simulated and real: python -m benchmarks.distributed FOLDER --check.

FOLDER is what $DACEML_DATA names: public traces and measurements.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parts import Part, Seen, run_parts


def _alignment(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.alignment import measured

    return measured(folder, quick=quick)


def _replay(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.replay_t3 import measured

    return measured(folder, quick=quick)


def _real_runs(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.real_runs import measured

    return measured(folder, quick=quick)


def _data_parallel(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.data_parallel import (
        QUICK_ROUNDS,
        ROUNDS,
        data_parallel_bars,
        data_parallel_rows,
    )  # fmt: skip

    del folder
    rows = data_parallel_rows(QUICK_ROUNDS if quick else ROUNDS)
    return rows, data_parallel_bars(rows)


def _vtrain(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.vtrain import measured

    rows, bars = measured(folder, quick=quick)
    return [dict(row) for row in rows], bars


def _search(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.search import measured

    del folder
    return measured(quick=quick)


def _scale(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.scale import measured

    del folder
    return measured(quick=quick)


def _memory(folder: Path, *, quick: bool) -> Seen:
    from benchmarks.distributed.memory import measured

    return measured(folder, quick=quick)


PARTS: dict[str, Part] = {
    "alignment": _alignment,
    "replay": _replay,
    "real_runs": _real_runs,
    "data_parallel": _data_parallel,
    "vtrain": _vtrain,
    "search": _search,
    "scale": _scale,
    "memory": _memory,
}
"""In the order in which they run."""


def main(arguments: Sequence[str] | None = None) -> int:
    return run_parts(
        "distributed", "Compare simulated runs of several ranks with what was measured.", PARTS, arguments
    )


if __name__ == "__main__":
    sys.exit(main())
