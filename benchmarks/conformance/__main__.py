"""The ONNX standard's own tests, compiled and run: python -m benchmarks.conformance --check.

Every case is executed in a process of its own with a time limit, so that a crash is one more figure. Rows are
kept in a journal: `--resume` goes on where a run was stopped, and believes what is there.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import run_cases
from benchmarks.conformance.cases import KINDS, Case, load
from benchmarks.conformance.execution import (
    IMPLEMENTATIONS,
    NEARER,
    ORACLE,
    PEER,
    VERDICTS,
    execute,
    outcome_fields,
    reason_group,
)
from benchmarks.conformance.journal import Journal, Key, Row
from benchmarks.conformance.page import page
from benchmarks.conformance.promotion import promoted

MODES = ("constant", "runtime")
# Passed cases that the native operators owe: of those that are no second forms of others, and of all
NATIVE_CASES, ALL_NATIVE_CASES = 850, 1300
_PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_LIMIT_S = {"light": 600.0}
_NODE_LIMIT_S = 90.0
_MOST_REASONS = 15
# One in so many cases, with --quick
_QUICK_STEP = 20


@dataclass(frozen=True, kw_only=True)
class Job:
    """One case in one form.

    Attributes:
        case: with its inputs promoted in constant mode.
        mode: `runtime` where there is nothing to promote, as both modes are the same then.
    """

    case: Case
    implementation: str
    mode: str

    @property
    def key(self) -> Key:
        return self.case.kind, self.case.name, self.implementation, self.mode


def jobs_of(cases: Iterable[Case], implementations: Sequence[str], modes: Sequence[str]) -> list[Job]:
    """What has to be executed; the oracle too, which takes next to no time."""
    jobs: dict[Key, Job] = {}
    for case in cases:
        constant = promoted(case) if "constant" in modes else None
        forms = {"runtime": case} if constant is None or "runtime" in modes else {}
        forms |= {"constant": constant} if constant is not None else {}
        found = [
            Job(case=form, implementation=i, mode=mode)
            for i in implementations
            for mode, form in forms.items()
        ]
        found.append(Job(case=case, implementation=ORACLE, mode="runtime"))
        jobs |= {job.key: job for job in found}
    # second forms of cases last: each is a network of its own, and takes as long as five others; and not one
    # case at once in two forms, where one process would wait for the other's program
    order = [ORACLE, *IMPLEMENTATIONS]
    return sorted(jobs.values(), key=lambda job: (job.case.expanded, order.index(job.implementation)))


def rows_of(
    journal: Journal, cases: Iterable[Case], implementations: Sequence[str], modes: Sequence[str]
) -> list[Row]:
    """Rows of the journal for these forms, and the oracle's.

    A case that is the same in both modes has a row in each; wrong results that are the oracle's say so.
    """
    rows: list[Row] = []
    for case in cases:
        kind, name = case.kind, case.name
        oracle = journal.rows.get((kind, name, ORACLE, "runtime"))
        for implementation in implementations:
            for mode in modes:
                row = journal.rows.get((kind, name, implementation, mode))
                if row is None and mode == "constant":
                    row = journal.rows.get((kind, name, implementation, "runtime"))
                if row is not None:
                    rows.append({**row, "mode": mode, "verdict": _verdict(row, oracle)})
        rows += [oracle] if oracle is not None else []
    return rows


def _verdict(row: Row, oracle: Row | None) -> str:
    same = oracle is not None and (row["verdict"], row["reason"]) == (oracle["verdict"], oracle["reason"])
    return PEER if same and row["verdict"] == "wrong" else row["verdict"]


def run(jobs: Sequence[Job], journal: Journal, *, processes: int, limit_s: float) -> None:
    """Execute jobs and keep a row of each; progress goes to the terminal."""
    progress = _Progress(len(jobs))
    work = lambda number, tell: execute(jobs[number].case, jobs[number].implementation, tell)  # noqa: E731
    for outcome in run_cases(work, range(len(jobs)), processes=processes, limit_s=limit_s):
        job = jobs[outcome.case]
        row = {
            "kind": job.case.kind,
            "case": job.case.name,
            "implementation": job.implementation,
            "mode": job.mode,
            "operator": job.case.operator,
            "expanded": job.case.expanded,
            "statistical": job.case.statistical,
            **outcome_fields(outcome),
            "duration_s": round(outcome.duration_s, 2),
        }
        journal.add(row)
        progress.step(row)
    progress.end()


class _Progress:
    """A bar on a terminal, a line for every hundred cases elsewhere; wrong and crashed cases always."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.counts: Counter[str] = Counter()
        self.start = time.monotonic()
        self.live = sys.stderr.isatty()

    def step(self, row: Row) -> None:
        self.done += 1
        if row["implementation"] != ORACLE:
            self.counts[row["verdict"]] += 1
            if row["verdict"] in (NEARER, "wrong", "crashed"):
                self._clear()
                print(f"{row['verdict']} {_name(row)}: {row['reason']}", flush=True)
        if self.live or self.done % 100 == 0:
            end = "\r" if self.live else "\n"
            print(self._line(), end=end, file=sys.stderr, flush=True)

    def _line(self) -> str:
        seconds = time.monotonic() - self.start
        left_s = seconds / self.done * (self.total - self.done)
        filled = 20 * self.done // self.total
        counts = ", ".join(f"{self.counts[v]} {v}" for v in VERDICTS)
        bar = "#" * filled + "." * (20 - filled)
        return f"[{bar}] {self.done}/{self.total}  {counts}  {left_s / 60:.0f} min left "

    def _clear(self) -> None:
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self._clear()
        print(f"{self.done} executions in {time.monotonic() - self.start:.0f} s", flush=True)


def _name(row: Row) -> str:
    return f"{row['implementation']} {row['mode']} {row['case']}"


def summary(rows: Sequence[Row]) -> list[str]:
    """What a person wants to know of every form."""
    lines: list[str] = []
    forms = dict.fromkeys((row["kind"], row["implementation"], row["mode"]) for row in rows)
    for kind, implementation, mode in forms:
        found = [
            r for r in rows if (r["kind"], r["implementation"], r["mode"]) == (kind, implementation, mode)
        ]
        lines.append(f"{kind}, {implementation}, {mode}:")
        for title, some in (
            ("distinct", [r for r in found if not r["expanded"]]),
            ("expanded", [r for r in found if r["expanded"]]),
        ):
            if some:
                counts = Counter(row["verdict"] for row in some)
                random = sum(r["statistical"] and r["verdict"] == "passed" for r in some)
                told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
                lines.append(f"  {len(some)} {title}: {told} ({random} of the passed are statistical)")
        if implementation != ORACLE:
            lines += _details(found)
    return lines


def _details(rows: Sequence[Row]) -> list[str]:
    passed = [row for row in rows if row["verdict"] == "passed"]
    nodes = Counter({kind: sum(row["counts"].get(kind, 0) for row in passed) for kind in _kinds(passed)})
    uses = ", ".join(f"{kind} {count}" for kind, count in nodes.most_common())
    refused = Counter(reason_group(row["reason"]) for row in rows if row["verdict"] == "refused")
    reasons = sorted(refused.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"  nodes of passed cases: {uses or 'none'}"]
    for verdict in (NEARER, PEER):
        lines += [f"  {verdict}: {r['case']}: {r['reason']}" for r in rows if r["verdict"] == verdict]
    lines += [f"  {count:5} refused: {reason[:240]}" for reason, count in reasons[:_MOST_REASONS]]
    if reasons[_MOST_REASONS:]:
        rest = sum(count for _, count in reasons[_MOST_REASONS:])
        lines.append(f"  {rest:5} refused for {len(reasons) - _MOST_REASONS} other reasons")
    return lines


def _kinds(rows: Iterable[Row]) -> list[str]:
    return sorted({kind for row in rows for kind in row["counts"]})


def bars_of(rows: Sequence[Row], kind: str, *, everything: bool = True) -> list[Bar]:
    """The promises; a form that was not run has none.

    Args:
        everything: False for a choice of cases, which cannot be as many as are owed.
    """
    met: list[Bar] = []
    for implementation in IMPLEMENTATIONS:
        for mode in MODES:
            form = (implementation, mode)
            found = [r for r in rows if (r["implementation"], r["mode"]) == form]
            if not found:
                continue
            label = f"{kind}, {implementation}, {mode}"
            if kind == "node" and everything and form == ("native", "constant"):
                passed = [r for r in found if r["verdict"] == "passed"]
                distinct = sum(not r["expanded"] for r in passed)
                met.append(_owed(f"{label}: distinct cases", distinct, NATIVE_CASES))
                met.append(_owed(f"{label}: all cases", len(passed), ALL_NATIVE_CASES))
            met += [_none(f"{label}: {verdict}", found, verdict) for verdict in ("wrong", "crashed")]
            if implementation == "any":
                met.append(_as_oracle(label, rows, found))
    return met


def _owed(label: str, passed: int, owed: int) -> Bar:
    """Bars are largest figures, so this one counts what is missing."""
    return Bar(name=f"{label} short of {owed}", figure=max(0, owed - passed), limit=0, note=f"{passed} pass")


def _none(name: str, rows: Sequence[Row], verdict: str) -> Bar:
    bad = [row["case"] for row in rows if row["verdict"] == verdict]
    return Bar(name=name, figure=len(bad), limit=0, note=", ".join(bad) or f"of {len(rows)}")


def _as_oracle(label: str, rows: Sequence[Row], found: Sequence[Row]) -> Bar:
    passed = {r["case"] for r in rows if r["implementation"] == ORACLE and r["verdict"] == "passed"}
    missing = sorted(r["case"] for r in found if r["case"] in passed and r["verdict"] != "passed")
    shown = ", ".join(missing[:8]) + (", …" if missing[8:] else "")
    note = f"of {len(passed)}" + (f": {shown}" if missing else "")
    name = f"{label}: cases that {ORACLE} passes and daceml does not"
    return Bar(name=name, figure=len(missing) if passed else None, limit=0, note=note)


def _warm() -> None:
    """Import what every case needs, once, without starting a thread."""
    for module in ("dace", "onnxruntime", "daceml.frontend.onnx_import.importer", "daceml.compiler.pipeline"):
        import_module(module)
    from daceml.compiler.keys.program_key import package_digest
    from daceml.onnx_ops.registry import load_implementations
    from daceml.toolchain.cxx import toolchain

    load_implementations()
    # read once for all processes: a source that changes meanwhile must not split a run
    package_digest()
    toolchain()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command.parser("Compile and run the ONNX standard's own tests.")
    parser.add_argument("--implementation", choices=(*IMPLEMENTATIONS, "both"), default="both")
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both")
    parser.add_argument("--kind", choices=KINDS, default="node", help="which of the standard's tests")
    parser.add_argument("--cases", default="", metavar="PATTERN", help="those whose name has this pattern")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="cases at once")
    parser.add_argument("--resume", action="store_true", help="execute only what the journal does not have")
    parser.add_argument(
        "--journal", default="", metavar="FILE", help="where rows are kept; in the cache folder"
    )
    parser.add_argument(
        "--page", default="", metavar="FILE", help="written when every form of every case is known; in docs"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    os.environ.setdefault("DACEML_JOBS", "1")  # cases run side by side, so one compiler each
    from daceml.config import config

    journal = Journal(Path(options.journal or config().cache_folder / "conformance.jsonl"))
    everything = load(options.kind)
    cases = [case for case in everything if re.search(options.cases, case.name)]
    cases = cases[::_QUICK_STEP] if options.quick else cases
    implementations = IMPLEMENTATIONS if options.implementation == "both" else (options.implementation,)
    modes = MODES if options.mode == "both" else (options.mode,)
    jobs = jobs_of(cases, implementations, modes)
    if options.resume:
        jobs = [job for job in jobs if job.key not in journal.rows]
    else:
        journal.forget(job.key for job in jobs)
    _warm()
    run(jobs, journal, processes=options.jobs, limit_s=_LIMIT_S.get(options.kind, _NODE_LIMIT_S))
    rows = rows_of(journal, cases, implementations, modes)
    print("\n".join(summary(rows)))
    if options.kind == "node":
        _write_page(Path(options.page or _PAGE), journal, everything)
    met = bars_of(rows, options.kind, everything=len(cases) == len(everything))
    return command.finish("conformance", options, for_file(rows), met)


def for_file(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as a file of results keeps them: the names of what passed, all about the rest."""
    forms = dict.fromkeys((row["kind"], row["implementation"], row["mode"]) for row in rows)
    passed = [
        {
            "kind": kind,
            "implementation": implementation,
            "mode": mode,
            "verdict": "passed",
            "cases": [
                row["case"]
                for row in rows
                if (row["kind"], row["implementation"], row["mode"]) == (kind, implementation, mode)
                and row["verdict"] == "passed"
            ],
        }
        for kind, implementation, mode in forms
    ]
    return [*passed, *(dict(row) for row in rows if row["verdict"] != "passed")]


def _write_page(file: Path, journal: Journal, cases: Sequence[Case]) -> None:
    rows = rows_of(journal, cases, IMPLEMENTATIONS, MODES)
    wanted = len(cases) * (len(IMPLEMENTATIONS) * len(MODES) + 1)
    if len(rows) < wanted:
        print(f"{file.name} is left as it was: {wanted - len(rows)} of {wanted} forms are not known yet")
        return
    file.write_text(page(rows, onnx_version=version("onnx")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
