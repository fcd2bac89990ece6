"""Every operator of torch's database, compiled, next to eager PyTorch: python -m benchmarks.opinfo --check.

It needs the extra `opinfo`. Operators run in processes that may crash or hang, a few in each; rows are kept
in a journal, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.journal import Journal

BAD = ("wrong", "foreign", "crash", "hang", "refused")
LIMIT_S = 300.0
_CHUNK = 40
# What no program holds, and eager PyTorch hardly: refusing them is no fault.
_APART = ("sparse", "quantize", "nested", "jagged")

Key = tuple[str, int, str]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    os.environ["DACEML_FULLGRAPH"] = "0"  # before daceml reads it: what is not one program is cut
    from torch.testing._internal.common_methods_invocations import op_db

    from benchmarks.opinfo.cases import Mode, name_of

    logging.getLogger("daceml").setLevel(logging.ERROR)
    operators = {name_of(operator): operator for operator in op_db}
    names = [name for name in operators if not options.operators or _chosen(name, options.operators)]
    if options.quick:
        names = names[::10]
    modes: tuple[Mode, ...] = options.modes or get_args(Mode)
    samples = 1 if options.quick else options.samples
    journal: Journal[Key] = Journal(
        options.journal or Path(f"build/bench/opinfo-{options.seed}.jsonl"),
        lambda row: (row["operator"], row["sample"], row["mode"]),
    )
    if options.again is not None:
        again = {key[0] for key, row in journal.rows.items() if row["verdict"] in options.again}
        journal.forget([key for key in journal.rows if key[0] in again])
    elif options.operators or options.quick:
        journal.forget([key for key in journal.rows if key[0] in names])
    finished = {key[0] for key in journal.rows}
    started = time.perf_counter()

    def work(number: int, tell: Tell) -> None:
        import torch

        from benchmarks.opinfo.cases import cases_of

        torch.set_num_threads(1)
        name = names[number]
        at = lambda sample, mode: tell({"at": [sample, mode]})  # noqa: E731
        for case in cases_of(operators[name], samples=samples, seed=options.seed, modes=modes, at=at):
            tell({f"{case.sample} {case.mode}": case.row()})

    waiting = [number for number, name in enumerate(names) if name not in finished]
    for chunk in (waiting[i : i + _CHUNK] for i in range(0, len(waiting), _CHUNK)):
        for outcome in run_cases(work, chunk, processes=options.jobs, limit_s=LIMIT_S, memory_bytes=24 << 30):
            for row in rows_of(names[outcome.case], outcome):
                journal.add(row)
                if row["verdict"] in BAD or options.operators:
                    print(_line(row), flush=True)
    chosen = set(names)
    rows = [row for row in journal.rows.values() if row["operator"] in chosen]
    _report(rows, time.perf_counter() - started)
    return command.finish("opinfo", options, rows, bars(rows))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command.parser("Compile every operator of torch's database, and compare it with eager PyTorch.")
    parser.add_argument("--operators", nargs="*", metavar="WORD", help="operators with one of these words")
    parser.add_argument("--seed", type=int, default=0, help="of the numbers in the samples")
    parser.add_argument("--samples", type=int, default=2, help="of each operator")
    parser.add_argument(
        "--modes",
        nargs="*",
        help="some of forward, gradient, 'in place', 'in place, argument', 'traced again'",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="rows of runs that were stopped")
    parser.add_argument(
        "--again", nargs="*", metavar="VERDICT", help="run operators with these verdicts again"
    )
    return parser.parse_args(arguments)


def _chosen(name: str, words: Sequence[str]) -> bool:
    """A word with an equals sign before it is a whole name."""
    return any(name == word[1:] if word.startswith("=") else word in name for word in words)


def rows_of(operator: str, outcome: Outcome) -> Iterator[dict[str, Any]]:
    """The rows of an operator; where its process ended, the last one says so."""
    told = dict(outcome.told)
    sample, mode = told.pop("at", (0, "forward"))
    yield from told.values()
    if outcome.end and f"{sample} {mode}" not in told:
        verdict = "hang" if outcome.end == "timeout" else "crash"
        yield {
            "operator": operator,
            "sample": sample,
            "mode": mode,
            "verdict": verdict,
            "arguments": "",
            "note": outcome.end,
            "seconds": round(outcome.duration_s, 2),
        }


def _line(row: dict[str, Any]) -> str:
    where = f"{row['operator']} ({row['mode']}, sample {row['sample']}: {row['arguments']})"
    return f"{row['verdict']:<8} {where}: {row['note']}"


def _report(rows: Sequence[dict[str, Any]], seconds: float) -> None:
    verdicts = Counter(row["verdict"] for row in rows)
    by_operator: dict[str, set[str]] = {}
    for row in rows:
        by_operator.setdefault(row["operator"], set()).add(row["verdict"])
    order = (*BAD, "eager", "cut", "equal", "no sample")
    worst = Counter(next(v for v in order if v in found) for found in by_operator.values())
    print(f"{len(rows)} calls of {len(by_operator)} operators in {seconds:.0f} s:", dict(verdicts))
    print("operators by their worst call:", dict(worst))


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """No verdict that is daceml's fault."""

    def bar(verdict: str) -> Bar:
        some = [row for row in rows if row["verdict"] == verdict]
        if verdict == "refused":
            some = [row for row in some if not any(word in row["operator"] for word in _APART)]
        names = list(dict.fromkeys(row["operator"] for row in some))
        return Bar(name=f"calls: {verdict}", figure=len(some), limit=0, note=", ".join(names[:5]))

    return [bar(verdict) for verdict in BAD]


if __name__ == "__main__":
    sys.exit(main())
