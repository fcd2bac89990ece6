"""Graphs of GraphNet next to eager PyTorch: python -m benchmarks.graphnet --suite FOLDER --count 200 --check.

FOLDER has the `samples` of github.com/PaddlePaddle/GraphNet; none of them are part of this repository.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.graphnet.collection import MOST_TEXT_BYTES, MOST_WEIGHTS, Draw, default_folder, draw
from benchmarks.graphnet.processes import in_a_process
from benchmarks.journal import Journal

_MODES = ("evaluation", "training")
_QUICK = 6
_MEMORY_BYTES = 8 << 30
_BAD = ("refused", "wrong", "foreign", "crash")
_GOOD = ("equal", "equal with cuts", "eager")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.case:
        return _child(options.suite, *options.case)
    if options.suite is None:
        print("no graphs: pass --suite FOLDER, or set DACEML_SUITES to the folder of GraphNet")
        return 0
    count = min(options.count, _QUICK) if options.quick else options.count
    drawn = draw(options.suite, count=count, seed=options.seed, words=tuple(options.graphs or ()))
    print(
        f"{len(drawn.names)} graphs; {drawn.large} left out that have more than {MOST_WEIGHTS:,} weights "
        f"or {MOST_TEXT_BYTES:,} bytes of code"
    )
    journal = Journal(options.journal, lambda row: (row["model"], row["mode"]))
    rows: list[dict[str, Any]] = []
    for mode in options.mode or _MODES:
        for name in drawn.names:
            if (name, mode) not in journal.rows:
                journal.add(_row(options, name, mode))
                print(_line(journal.rows[name, mode]), flush=True)
            rows.append(journal.rows[name, mode])
    print(", ".join(f"{n} {verdict}" for verdict, n in Counter(row["verdict"] for row in rows).most_common()))
    return command.finish("graphnet", options, rows, _bars(rows, drawn))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command.parser("Run graphs of GraphNet, compiled, next to eager PyTorch.")
    parser.add_argument("--suite", type=Path, default=default_folder(), metavar="FOLDER",
                        help="folder with GraphNet's samples; default $DACEML_SUITES/GraphNet")  # fmt: skip
    parser.add_argument("--count", type=int, default=200, help="graphs that are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--graphs", nargs="*", metavar="WORD", help="graphs with one of these words")
    parser.add_argument("--mode", nargs="*", choices=_MODES, help="without it, both")
    parser.add_argument("--limit-s", type=float, default=600.0, help="seconds for one graph")
    parser.add_argument("--journal", type=Path, default=Path("build/bench/graphnet.jsonl"), metavar="FILE",
                        help="rows that are known already; a run that was stopped goes on there")  # fmt: skip
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _row(options: argparse.Namespace, name: str, mode: str) -> dict[str, Any]:
    """What one graph comes to; a crash and a process that takes too long are rows as well."""
    case = ["benchmarks.graphnet", "--suite", str(options.suite), "--case", name, mode]
    ended = in_a_process(case, limit_s=options.limit_s, memory_bytes=_MEMORY_BYTES)
    if ended.answer is None:
        verdict = "crash" if ended.crashed else "timeout"
        return {"model": name, "mode": mode, "verdict": verdict, "note": ended.end}
    return {**ended.answer, "verdict": verdict_of(ended.answer)}


def verdict_of(row: dict[str, Any]) -> str:
    """The verdict on a run, see `benchmarks.strangers.runs.Run`."""
    if row["kind"] != "equal":
        return "out of memory" if "alloc" in row["note"] or "MemoryError" in row["note"] else row["kind"]
    if row["programs"] == 0:
        return "eager"
    return "equal with cuts" if row["cut"] else "equal"


def _line(row: dict[str, Any]) -> str:
    share, seconds = row.get("compiled_flops", 0.0), row.get("seconds", 0.0)
    figures = f"{row.get('programs', 0)} programs, {share:.0%} of FLOPs, {seconds:.0f} s"
    return f"{row['mode']:<10} {row['verdict']:<15} {row['model']:<70} {figures}  {row['note'][:200]}"


def _child(folder: Path, name: str, mode: Any) -> int:
    import torch

    from benchmarks.graphnet.captured_graph import captured_graph
    from benchmarks.strangers.runs import run

    torch.set_num_threads(1)
    found = run(captured_graph(folder, name), mode, dynamic=False)
    print(json.dumps(found.row()))
    return 0


def _bars(rows: Sequence[dict[str, Any]], drawn: Draw) -> list[Bar]:
    def count(verdict: str) -> Bar:
        some = [f"{row['model']} {row['mode']}" for row in rows if row["verdict"] == verdict]
        return Bar(name=f"graphs {verdict}", figure=len(some), limit=0, note=", ".join(some[:3]))

    judged = [row for row in rows if row["verdict"] in _GOOD]
    shares = [100 * (1 - row["compiled_flops"]) for row in judged]
    eager = Bar(
        name="FLOPs that run eagerly, mean",
        figure=statistics.mean(shares) if shares else None,
        limit=10,
        unit="%",
        note=f"{len(judged)} graphs, {drawn.large} left out for their size",
    )
    return [*map(count, _BAD), eager]


if __name__ == "__main__":
    sys.exit(main())
