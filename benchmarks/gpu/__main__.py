"""A shard of the suite: python -m benchmarks.gpu --shard times-A --kernels FOLDER --check.

Every case runs in a process beside this one, and is on disk before the next one begins: the same command
goes on where it was stopped. `python -m benchmarks.gpu table FOLDER` prints what shards have found. With
--emulated values are compared on the processor, on small replicas of the networks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import bars as reports
from benchmarks import command, machine
from benchmarks.gpu import environment, table
from benchmarks.gpu.bars import bars_of
from benchmarks.gpu.case import Case
from benchmarks.gpu.cases import SHARDS, cases_of
from benchmarks.gpu.target import NO_DEVICE
from benchmarks.gpu.worker import Row, Worker, WorkerProcess
from benchmarks.journal import Journal

BUDGET_S = 510.0  # a shard and its start take nine minutes
CASE_LIMIT_S = 450.0  # measuring templates is what takes longest
UNFINISHED = 3  # the exit code where cases are left for the next run
QUICK_CASES = 4


class Shard:
    """Runs the cases of a shard as long as there is time.

    Args:
        identity: of what is measured, the commit and the device: rows of another one are not believed.
        end: when no further case begins, on the monotonic clock.
    """

    def __init__(
        self, worker: Worker, journal: Journal[tuple[Any, ...]], identity: tuple[str, str], end: float
    ) -> None:
        self.worker, self.journal, self.identity, self.end = worker, journal, identity, end

    def row(self, case: Case) -> Row | None:
        """What is known of a case, measured now unless it was before; None where time does not suffice."""
        key = (*self.identity, *case.key)
        if key in self.journal.rows:
            return self.journal.rows[key]["row"]
        left_s = self.end - time.monotonic()
        if left_s <= 0:
            return None
        found = self.worker(case, min(CASE_LIMIT_S, left_s))
        if found.pop("late", False) and left_s < CASE_LIMIT_S:
            return None
        row = {"case": case.label, "kind": case.kind, "name": case.name, "mode": case.mode}
        row |= {"precision": case.precision, "emulated": case.emulated, **found}
        self.journal.add({"key": list(key), "row": row})
        return row


def key_of(entry: Row) -> tuple[Any, ...]:
    """Of a line of the journal."""
    return tuple(entry["key"])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command.parser("Measure daceml on a CUDA device: one shard, in at most nine minutes.")
    parser.add_argument("--shard", choices=SHARDS, required=True)
    parser.add_argument("--only", action="append", metavar="NAME", help="these networks, blocks or checks")
    parser.add_argument(
        "--kernels", type=Path, metavar="FOLDER", help="a cache of compiled kernels: DACEML_CACHE of this run"
    )
    parser.add_argument(
        "--emulated", action="store_true", help="compare values without a device, at small sizes"
    )
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="S", help="seconds for this run")
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="go on from FILE; build/gpu has it otherwise"
    )
    parser.add_argument("--retry", action="store_true", help="measure cases again that failed before")
    options = parser.parse_args(arguments)
    if options.budget <= 0:
        parser.error(f"--budget is {options.budget:g}: give a positive number of seconds")
    if options.kernels is not None and not options.kernels.is_dir():
        parser.error(
            f"--kernels {options.kernels} is no folder: give one of `daceml compile --device-kernels`"
        )
    return options


def selected(options: argparse.Namespace) -> list[Case]:
    """The cases that a command line asks for.

    Raises:
        ValueError: it asks for a name that the shard does not have.
    """
    found = [
        replace(case, emulated=options.emulated, quick=options.quick) for case in cases_of(options.shard)
    ]
    if options.only:
        known = dict.fromkeys(case.name for case in found)
        if unknown := [name for name in options.only if name not in known]:
            raise ValueError(f"{options.shard} has no {', '.join(unknown)}: it has {', '.join(known)}")
        found = [case for case in found if case.name in options.only]
    elif options.quick:
        found = found[:QUICK_CASES]
    return found


def main(arguments: Sequence[str] | None = None, *, worker: Worker | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["table"]:
        return table.main(words[1:])
    options = parse(words)
    end = time.monotonic() + options.budget
    if options.kernels is not None:
        os.environ["DACEML_CACHE"] = str(options.kernels.resolve())
    device = environment.description()
    if device["gpu"] is None and not options.emulated:
        print(NO_DEVICE, file=sys.stderr)
        return 2
    folder = "emulated" if options.emulated else environment.folder_name(device["gpu"])
    file = options.journal or machine.ROOT / "build" / "gpu" / folder / f"{options.shard}.jsonl"
    try:
        cases, journal = selected(options), Journal(file, key_of)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.retry:
        journal.forget([key for key, entry in journal.rows.items() if "failure" in entry["row"]])
    process = WorkerProcess()
    shard = Shard(worker or process, journal, (machine.commit() or "", folder), end)
    try:
        rows, left = run(shard, cases)
    finally:
        process.close()
    return finish(options, device, folder, rows, left)


def run(shard: Shard, cases: Sequence[Case]) -> tuple[list[Row], list[Case]]:
    """Rows of the cases that are known, with a line of progress for each, and the cases that are left."""
    rows: list[Row] = []
    left: list[Case] = []
    for case in cases:
        row = None if left else shard.row(case)
        if row is None:
            left.append(case)
        else:
            rows.append(row)
            print(f"{case.label}: {table.line(row)}", flush=True)
    return rows, left


def finish(
    options: argparse.Namespace,
    device: dict[str, Any],
    folder: str,
    rows: Sequence[Row],
    left: Sequence[Case],
) -> int:
    """Write the result, print bars and what is left, and return the exit code."""
    met = bars_of(rows)
    met += [
        reports.Bar(name=f"{case.label}: measured", figure=None, limit=1, note="time was up") for case in left
    ]
    options.kernels = None if options.kernels is None else "given"
    document = {
        **command.document("gpu", options, rows, met),
        "device": device,
        "left": [c.label for c in left],
    }
    written(document, options, machine.ROOT / "benchmarks" / "results" / folder)
    missed = reports.report(met) if options.check else 0
    if left:
        print(f"{len(left)} of {len(rows) + len(left)} cases are left: run the same command again")
        return UNFINISHED
    return missed


def written(document: dict[str, Any], options: argparse.Namespace, folder: Path) -> None:
    """Write a result where it was asked for; else into the device's folder, with a table of all shards there.

    What is no whole shard of a device is written only where it was asked for.
    """
    file: Path = options.json or folder / f"{options.shard}.json"
    if options.json is None and (options.emulated or options.only or options.quick):
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.json is None:
        text = "\n".join(table.tables(table.documents_in(folder)))
        (folder / "table.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
