"""Others' test suites: python -m benchmarks.suites --folder FOLDER --check.

FOLDER has clones of llvm/torch-mlir and ScalingIntelligence/KernelBench; nothing of them is part of this
repository. Programs run in processes that may crash or hang; rows are kept in a journal, and a run that was
stopped goes on.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.journal import Journal
from benchmarks.suites import kernelbench, torch_mlir
from benchmarks.suites.case import Case
from benchmarks.suites.judge import Way, judged

_SUITES: dict[str, Callable[[Path], list[Case]]] = {
    torch_mlir.NAME: torch_mlir.cases,
    kernelbench.NAME: kernelbench.cases,
}
_BAD = ("wrong", "foreign", "crash", "hang", "refused")
_CHUNK = 40
_QUICK = 40  # every 40th program

Key = tuple[str, str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    folders = {
        name: options.folder / name for name in options.suites or _SUITES if options.folder is not None
    }
    folders = {name: folder for name, folder in folders.items() if folder.is_dir()}
    if not folders:
        print(f"no suites: pass --folder FOLDER, or set DACEML_SUITES; it holds {' and '.join(_SUITES)}")
        return 0
    logging.getLogger("daceml").setLevel(logging.ERROR)
    every = [case for name, folder in folders.items() for case in _SUITES[name](folder)]
    chosen = [case for case in every if not options.cases or any(word in case.name for word in options.cases)]
    if options.count is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    chosen = chosen[::_QUICK] if options.quick else chosen
    jobs: list[tuple[Case, Way]] = [(case, way) for way in options.ways or get_args(Way) for case in chosen]
    keys: list[Key] = [(case.suite, case.name, way) for case, way in jobs]
    journal: Journal[Key] = Journal(options.journal, lambda row: (row["suite"], row["name"], row["way"]))
    if options.again is not None:
        journal.forget(
            [key for key in keys if key in journal.rows and journal.rows[key]["verdict"] in options.again]
        )
    elif options.cases or options.quick:
        journal.forget(keys)

    def work(number: int, tell: Tell) -> None:
        import torch

        torch.set_num_threads(1)
        tell(judged(*jobs[number], made=lambda: tell({"made": True})).row())

    waiting = [number for number, key in enumerate(keys) if key not in journal.rows]
    for chunk in (waiting[i : i + _CHUNK] for i in range(0, len(waiting), _CHUNK)):
        for outcome in run_cases(
            work, chunk, processes=options.jobs, limit_s=options.limit_s, memory_bytes=24 << 30
        ):
            row = _row(keys[outcome.case], outcome)
            journal.add(row)
            if row["verdict"] in _BAD or options.cases:
                print(_line(row), flush=True)
    rows = [journal.rows[key] for key in keys]
    for way in options.ways or get_args(Way):
        print(f"{way:<10}", dict(Counter(row["verdict"] for row in rows if row["way"] == way)))
    published = torch_mlir.published(folders[torch_mlir.NAME]) if torch_mlir.NAME in folders else {}
    return command.finish("suites", options, rows, _bars(rows, published))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command.parser("Compile programs of others' test suites, and compare them with eager PyTorch.")
    suites = os.environ.get("DACEML_SUITES")
    parser.add_argument("--folder", type=Path, default=Path(suites) if suites else None, metavar="FOLDER",
                        help="folder with the suites; default $DACEML_SUITES")  # fmt: skip
    parser.add_argument("--suites", nargs="*", choices=list(_SUITES), help="without it, all that are there")
    parser.add_argument("--ways", nargs="*", choices=get_args(Way), help="without it, all")
    parser.add_argument("--cases", nargs="*", metavar="WORD", help="programs with one of these words")
    parser.add_argument("--count", type=int, help="programs that are drawn; without it, all")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--journal", type=Path, default=Path("build/bench/suites.jsonl"), metavar="FILE",
                        help="rows that are known already; a run that was stopped goes on there")  # fmt: skip
    parser.add_argument("--limit-s", type=float, default=300.0, help="seconds for one program")
    parser.add_argument(
        "--again", nargs="*", metavar="VERDICT", help="run programs with these verdicts again"
    )
    return parser.parse_args(arguments)


def _row(key: Key, outcome: Outcome) -> dict[str, Any]:
    """What a program came to; a crash and a process that takes too long are rows as well."""
    made = outcome.told.pop("made", False)
    if "verdict" in outcome.told:
        return outcome.told
    suite, name, way = key
    verdict = "not made" if not made else "hang" if outcome.end == "timeout" else "crash"
    seconds = round(outcome.duration_s, 2)
    facts = {"suite": suite, "name": name, "way": way, "verdict": verdict}
    return {
        **facts,
        "arguments": "",
        "note": outcome.end if made else f"eager PyTorch: {outcome.end}",
        "seconds": seconds,
    }


def _line(row: dict[str, Any]) -> str:
    return f"{row['verdict']:<8} {row['way']:<10} {row['name']} ({row['arguments']}): {row['note']}"


def _bars(rows: Sequence[dict[str, Any]], published: dict[str, float]) -> list[Bar]:
    """No verdict that is daceml's fault, and at least the share of programs that torch-mlir's best passes."""

    def bar(verdict: str) -> Bar:
        some = [f"{row['name']} {row['way']}" for row in rows if row["verdict"] == verdict]
        return Bar(name=f"programs: {verdict}", figure=len(some), limit=0, note=", ".join(some[:5]))

    judged = [row for row in rows if row["suite"] == torch_mlir.NAME and row["verdict"] != "not made"]
    if not judged or not published:
        return [*map(bar, _BAD)]
    missed = 100 * sum(row["verdict"] in _BAD for row in judged) / len(judged)
    note = "published: " + ", ".join(f"{name} {1 - share:.1%}" for name, share in sorted(published.items()))
    limit = round(100 * (1 - max(published.values())), 1)
    share = Bar(name="torch-mlir's programs not passed", figure=missed, limit=limit, unit="%", note=note)
    return [*map(bar, _BAD), share]


if __name__ == "__main__":
    sys.exit(main())
