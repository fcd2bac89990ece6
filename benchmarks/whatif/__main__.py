"""Predictions beside the runs that they foretell: python -m benchmarks.whatif --check.

On this machine's CPU: a network that is compiled, an optimizer that is fused, a batch that is doubled; and an
emulated device whose kernels are slowed by a known factor.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.whatif import real, slowed

REAL_ERROR = 0.10
SLOWED_ERROR = 0.05


def real_bars(row: dict[str, Any]) -> list[Bar]:
    """Of one question to a run on a CPU."""
    rounds = ", ".join(f"{error:+.1%}" for error in row["round_errors"])
    note = (
        f"{row['predicted_us'] / 1e3:.1f} ms predicted from {row['recorded_us'] / 1e3:.1f} ms,"
        f" {row['measured_us'] / 1e3:.1f} ms measured; rounds {rounds}"
    )
    name = f"{row['case']}: prediction off by"
    return [Bar(name=name, figure=abs(row["error"]), limit=REAL_ERROR, note=note)]


def slowed_bars(row: dict[str, Any]) -> list[Bar]:
    """Of one program, each factor."""
    found: list[Bar] = []
    for factor in slowed.FACTORS:
        seen = row[f"times {factor:g}"]
        note = f"{seen['predicted_us'] / 1e3:.1f} ms predicted, {seen['measured_us'] / 1e3:.1f} ms measured"
        name = f"{row['case']}, times {factor:g}: prediction off by"
        found.append(Bar(name=name, figure=abs(seen["error"]), limit=SLOWED_ERROR, note=note))
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    return command.parser("Predict what a change of a run brings, then run it.").parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    rounds, steps = (2, 10) if options.quick else (5, 20)
    for name in real.QUESTIONS:
        row = real.measure(name, rounds=rounds, steps=steps)
        print(f"{row['case']}: error {row['error']:+.1%}", flush=True)
        rows.append(row)
        bars += real_bars(row)
    for name in slowed.PROGRAMS:
        row = slowed.measure(name)
        errors = [row[f"times {factor:g}"]["error"] for factor in slowed.FACTORS]
        print(f"{row['case']}: errors {', '.join(f'{error:+.1%}' for error in errors)}", flush=True)
        rows.append(row)
        bars += slowed_bars(row)
    return command.finish("whatif", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
