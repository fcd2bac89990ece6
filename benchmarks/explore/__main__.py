"""Predictions of variants beside measurements: python -m benchmarks.explore --check.

A run that was stopped goes on where it was: --journal names the file of the cases that are done.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.journal import Journal

PARTS = ("variants", "effects", "exploration")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser(str(__doc__).splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part, repeatable (all)")
    parser.add_argument("--only", action="append", help="only this network, repeatable (all)")
    parser.add_argument("--journal", type=Path, help="file of the cases that are done; goes on where it ends")
    parser.add_argument("--steps", type=Path, help="file for costs and times of steps; see profiles.py")
    options = parser.parse_args(arguments)
    # nothing that an earlier run has measured: predictions are from scratch
    folder = Path(tempfile.gettempdir()) if options.journal is None else options.journal.parent
    os.environ["DACEML_CACHE"] = str(folder / "explore-cache")
    from benchmarks.explore import cases, efficacy, judged, predicted, quickness

    journal: Journal[str] = Journal(
        options.journal or Path(tempfile.mkdtemp()) / "explore.jsonl", lambda row: row["case"]
    )
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []

    def done(title: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if title not in journal.rows:
            journal.add(make())
            print(f"{title}: done", flush=True)
        return journal.rows[title]

    parts = options.part or PARTS
    only: set[str] = set(options.only or ())
    if "variants" in parts:
        found = [
            done(case.title, lambda case=case: predicted.case_row(case, options.steps))
            for case in cases.cases(quick=options.quick)
            if not only or case.name in only
        ]
        rows += found
        bars += judged.judged(found)
    if "effects" in parts:
        names = efficacy.NETWORKS[:1] if options.quick else efficacy.NETWORKS
        effects = [
            done(f"effects, {name}", lambda name=name: efficacy.network_row(name))
            for name in names
            if not only or name in only
        ]
        rows += effects
        bars += efficacy.judged(effects)
    if "exploration" in parts and not options.quick:
        row = done("exploration, bert", quickness.exploration_row)
        rows.append(row)
        bars += quickness.judged(row)
    return command.finish("explore", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
