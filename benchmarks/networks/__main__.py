"""Networks against their peers: python -m benchmarks.networks --mode training --check.

Each part of each network runs in a process of its own. With --journal, what is known is kept on disk, and
the same command goes on where it was stopped. --waterfall shows what each pass brings instead.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from benchmarks import command, machine, waterfall
from benchmarks.journal import Journal, Row
from benchmarks.models import MODELS
from benchmarks.networks.bars import DEPTHS, bars_of, comparison, depth_bars
from benchmarks.networks.parts import PARTS, TRAINING_ONLY, Case
from benchmarks.networks.process import RunPart, run_part
from benchmarks.peers import Mode
from benchmarks.speed import OURS

QUICK = ("bert", "resnet50")
LONG = ("compile",)  # left out by --quick, unless --part asks for it
PART_LIMIT_S = 1200.0  # for one part of one network

Key = tuple[str, str, str, str]


def key_of(row: Row) -> Key:
    """Commit, network, mode and part: a commit is compared with nothing that another one left."""
    return row["commit"], row["model"], row["mode"], row["part"]


@dataclass
class Driver:
    """Runs parts, as long as there is time.

    Attributes:
        run: one part in a process.
        journal: what is known already; None keeps nothing.
        end: when no further part begins, on the monotonic clock.
        limit_s: of one part.
    """

    run: RunPart
    journal: Journal[Key] | None
    end: float
    limit_s: float

    def part(self, case: Case, part: str) -> dict[str, Any]:
        """What a part returned, now or before; `failure` where there is nothing."""
        key = (machine.commit() or "", case.model, case.mode, part)
        if self.journal is not None and key in self.journal.rows:
            return self.journal.rows[key]["data"]
        left_s = self.end - time.monotonic()
        if left_s <= 0:
            return {"failure": "the budget was used up"}
        data = self.run(case, part, min(self.limit_s, left_s))
        if self.journal is not None and "failure" not in data:
            self.journal.add(
                dict(zip(("commit", "model", "mode", "part"), key, strict=True)) | {"data": data}
            )
        return data


def measure(driver: Driver, case: Case, parts: Sequence[str]) -> dict[str, Any]:
    """The row of a network, with a paragraph of progress."""
    row: dict[str, Any] = {"case": f"{case.model}, {case.mode}", "model": case.model, "mode": case.mode}
    for part in parts:
        if part in TRAINING_ONLY and case.mode != "training":
            continue
        row[part] = driver.part(case, part)
        for line in lines(row, part):
            print(line, flush=True)
    if "names" in row.get("times", {}):
        row |= comparison(row).row()
    return row


def lines(row: dict[str, Any], part: str) -> list[str]:
    """What a part found, for people."""
    seen = row[part]
    if "failure" in seen:
        return [f"{row['case']}: no {part}: {seen['failure']}"]
    return LINES[part](row)


def _times_lines(row: dict[str, Any]) -> list[str]:
    found = comparison(row)
    absent = "".join(f"\n  no {name}: {why}" for name, why in found.measurement.missing.items())
    return [found.line() + absent]


def _parity_lines(row: dict[str, Any]) -> list[str]:
    seen = row["parity"]
    return [f"{row['case']}: {seen['median_over_eager']:.2f} times eager's error", *seen["outside"]]


def _program_lines(row: dict[str, Any]) -> list[str]:
    seen = row["programs"]
    inside_us, contractions_us = seen["steps_us"], seen["contractions_us"]
    text = (
        f"  {seen['kernels']} kernels, {seen['bytes_moved'] / 1e6:.1f} MB, in steps {inside_us / 1e3:.1f} ms,"
        f" of which contractions {contractions_us / 1e3:.1f} ms; floor {seen['floor_us'] / 1e3:.1f} ms"
        f" ({100 * seen['floor_us'] / inside_us:.0f} %)"
    )
    if (found := comparison(row).measurement).rounds and len(found.names) > 1 and contractions_us:
        peer_us = found.duration_us(comparison(row).best_peer).value
        text += f"; at most {peer_us / contractions_us:.2f} times the best peer with these contractions"
    return [text, *(line for name, levels in seen["levels"].items() for line in _level_lines(name, levels))]


def _level_lines(program: str, levels: Sequence[dict[str, Any]]) -> list[str]:
    def amounts(figures: dict[str, int]) -> str:
        moved = figures.get("unique_bytes")
        return f"{figures.get('steps')} kernels" + ("" if moved is None else f" {moved / 1e6:.2f} MB")

    return [
        f"    {program:<9} {level['level']:<9} {amounts(level['before'])} -> {amounts(level['after'])}"
        for level in levels
    ]


def _memory_lines(row: dict[str, Any]) -> list[str]:
    ours, eager = row["memory"][OURS], row["memory"]["eager"]
    return [f"  peak {ours / 1e6:.1f} MB, eager {eager / 1e6:.1f} MB: {ours / eager:.2f}"]


def _compile_lines(row: dict[str, Any]) -> list[str]:
    seen = row["compile"].items()
    return ["  " + "; ".join(f"{way} cold {s['cold_s']:.1f} s, warm {s['warm_s']:.1f} s" for way, s in seen)]


def _waterfall_lines(row: dict[str, Any]) -> list[str]:
    return [row["case"], *waterfall.lines(row["waterfall"]["waterfall"])]


LINES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "times": _times_lines,
    "parity": _parity_lines,
    "programs": _program_lines,
    "memory": _memory_lines,
    "compile": _compile_lines,
    "waterfall": _waterfall_lines,
}


def compile_depths(driver: Driver) -> dict[str, float | None]:
    """Seconds that networks of different depth take to compile for training."""
    names = dict.fromkeys(name for deep, shallow, _ in DEPTHS for name in (shallow, deep))
    seen = {name: driver.part(Case(model=name, mode="training"), "depth") for name in names}
    for name, found in seen.items():
        said = found["failure"] if "failure" in found else f"{found['compile_s']:.1f} s"
        print(f"cold compile of a training step, {name}: {said}", flush=True)
    return {name: found.get("compile_s") for name, found in seen.items()}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command.parser("Compare networks with eager PyTorch, torch.compile and ONNX Runtime.")
    parser.add_argument(
        "--mode", choices=get_args(Mode), action="append", help="of both, unless one is given"
    )
    parser.add_argument(
        "--only", choices=tuple(MODELS), action="append", metavar="NAME", help="these networks"
    )
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="of all, unless some are given")
    parser.add_argument("--waterfall", action="store_true", help="what each pass brings, and nothing else")
    parser.add_argument("--budget", type=float, default=6 * 3600.0, metavar="S", help="seconds for all of it")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="go on from FILE, and keep rows there")
    options = parser.parse_args(arguments)
    if options.budget <= 0:
        parser.error(f"--budget is {options.budget:g}: give a positive number of seconds")
    if options.waterfall and options.part:
        parser.error("--waterfall measures nothing else: leave out --part")
    return options


def main(arguments: Sequence[str] | None = None, *, run: RunPart = run_part) -> int:
    options = parse(arguments)
    try:
        journal = None if options.journal is None else Journal(options.journal, key_of)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    names = options.only or (QUICK if options.quick else tuple(MODELS))
    modes: Sequence[Mode] = options.mode or get_args(Mode)
    known = tuple(part for part in PARTS if not (options.quick and part in LONG))
    parts: Sequence[str] = ("waterfall",) if options.waterfall else options.part or known
    driver = Driver(
        run=run,
        journal=journal,
        end=time.monotonic() + options.budget,
        limit_s=PART_LIMIT_S,
    )
    rows: list[dict[str, Any]] = []
    for name in names:
        for mode in modes:
            case = Case(
                model=f"reduced:{name}" if options.quick else name,
                mode=mode,
                rounds=6 if options.quick else 12,
                limit_s=30.0 if options.quick else 300.0,
            )
            rows.append(measure(driver, case, parts))
    bars = bars_of(rows)
    if "training" in modes and "compile" in parts and not (options.quick or options.only):
        seconds = compile_depths(driver)
        rows.append({"case": "cold compiles", "model": "", "mode": "training", "compile_s": seconds})
        bars += depth_bars(seconds)
    return command.finish("networks", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
