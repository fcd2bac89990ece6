"""Predictions of variants beside measurements: python -m benchmarks.explore --check.

A run that was stopped goes on where it was: --journal names the file of the rows that are done. Each part
runs in a process of its own, with a cache of its own, in which nothing is known that another part has
measured, and with an allocator that keeps its memory: otherwise large results cost fresh pages at every call.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.interleave import TUNED_ALLOCATOR
from benchmarks.journal import Journal

if TYPE_CHECKING:
    from benchmarks.bars import Bar
    from benchmarks.explore.parts import Options

PARTS = ("variants", "effects", "exploration")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser(str(__doc__).splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part, repeatable (all)")
    parser.add_argument("--only", action="append", help="only this network, repeatable (all)")
    parser.add_argument("--journal", type=Path, help="file of the rows that are done; goes on where it ends")
    parser.add_argument(
        "--judge", action="store_true", help="measure nothing more: the rows of --journal count"
    )
    parser.add_argument("--steps", type=Path, help="file for costs and times of steps; see profiles.py")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside is not None:
        _measure(options)
        return 0
    if options.journal is None:
        options.journal = Path(tempfile.mkdtemp()) / "explore.jsonl"
    for part in () if options.judge else options.part or PARTS:
        done = _measured_inside(part, options)
        if done != 0:
            return done
    return _judged(options)


def _measured_inside(part: str, options: argparse.Namespace) -> int:
    """Make the rows of a part that the journal lacks, in another process; its exit code."""
    given = [f"--journal={options.journal.absolute()}", *(f"--only={name}" for name in options.only or ())]
    given += ["--quick"] if options.quick else []
    given += [] if options.steps is None else [f"--steps={options.steps.absolute()}"]
    cache = options.journal.with_suffix("").absolute() / part
    environment = {**os.environ, **TUNED_ALLOCATOR, "DACEML_CACHE": str(cache)}
    command_line = [sys.executable, "-m", "benchmarks.explore", f"--inside={part}", *given]
    return subprocess.run(command_line, env=environment, check=False).returncode


def _measure(options: argparse.Namespace) -> None:
    from benchmarks.explore import parts

    journal = _journal(options)
    for entry in parts.PARTS[options.inside].chosen(_asked(options)):
        if entry.title not in journal.rows:
            journal.add(entry.make())
            print(f"{entry.title}: done", flush=True)


def _judged(options: argparse.Namespace) -> int:
    from benchmarks.explore import parts

    journal = _journal(options)
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for name in options.part or PARTS:
        part = parts.PARTS[name]
        made = [journal.rows[one.title] for one in part.chosen(_asked(options)) if one.title in journal.rows]
        rows += made
        bars += part.judge(made)
    return command.finish("explore", options, rows, bars)


def _journal(options: argparse.Namespace) -> Journal[str]:
    return Journal(options.journal, lambda row: row["case"])


def _asked(options: argparse.Namespace) -> Options:
    from benchmarks.explore import parts

    return parts.Options(quick=options.quick, only=frozenset(options.only or ()), steps=options.steps)


if __name__ == "__main__":
    sys.exit(main())
