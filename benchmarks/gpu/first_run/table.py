"""What a first run has found, in sixty lines: python -m benchmarks.gpu.first_run.table results.jsonl."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar, report
from benchmarks.gpu.bars import bars_of
from benchmarks.gpu.first_run.plan import STEPS
from benchmarks.gpu.first_run.rows import Row, is_wrong, read_rows
from benchmarks.gpu.table import block_table, columns, line, network_table

MOST_LINES = 60
MOST_FAULTS = 12
WIDTH = 150
COUNTS = ("cells", "wrong", "left")


def table_of(rows: Sequence[Row]) -> list[str]:
    """The machine, what became of each step, faults, then times."""
    sections = [list(_machine(rows)), _steps(rows), list(_faults(rows)), list(_ceilings(rows))]
    sections += [block_table(_of_kind(rows, "replays"))] if _of_kind(rows, "replays") else []
    sections += [network_table(_of_kind(rows, "times"))] if _of_kind(rows, "times") else []
    sections += [list(_others(rows))]
    lines = [text[:WIDTH] for section in sections for text in section]
    if len(lines) <= MOST_LINES:
        return lines
    left = len(lines) - MOST_LINES + 1
    return [*lines[: MOST_LINES - 1], f"… {left} more lines: print them from results.jsonl"]


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Every step that was asked for ends by itself with nothing wrong; on a device, the bars of its cases."""
    known = {row["step"]: row for row in _of_kind(rows, "step")}
    planned = {name for row in _of_kind(rows, "run") for name in row["steps"]}
    found: list[Bar] = []
    for step in STEPS:
        row = known.get(step.name)
        if row is None:
            name = f"step {step.name}: cells that are wrong"
            found += [Bar(name=name, figure=None, limit=0, note="not run")] if step.name in planned else []
            continue
        done = row["state"] == "done" and not row["left"] and row["cells"]
        note = f"of {row['cells']}" if done else f"{row['state']}, {row['left']} cells are left"
        found.append(
            Bar(
                name=f"step {step.name}: cells that are wrong",
                figure=row["wrong"] if done else None,
                limit=0,
                note=note,
            )
        )
    measured = [row for row in rows if row.get("precision") is not None and not row.get("question")]
    return found + bars_of([row for row in measured if not row["emulated"] and row["kind"] != "diagnosis"])


def _origin(rows: Sequence[Row]) -> dict[str, Any]:
    """What the numbers were measured on, as results have it."""
    identity = next(iter(_of_kind(rows, "identity")), {})
    return {"machine": identity.get("machine"), "device": identity.get("device")}


def _of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row.get("kind") == kind and not row.get("question")]


def _machine(rows: Sequence[Row]) -> Iterator[str]:
    for row in _of_kind(rows, "identity"):
        device: dict[str, Any] = row.get("device", {})
        versions = ", ".join(f"{name} {device.get(name)}" for name in ("driver", "cuda", "torch", "triton"))
        gpu = "emulated" if row["emulated"] else device.get("gpu") or "no GPU"
        yield f"{gpu}; {versions}; commit {row['commit']}, {row['machine']['date'][:10]}"
        if row.get("kit_differs"):
            yield f"programs of the kit are not found, for {'; '.join(row['kit_differs'])}"


def _steps(rows: Sequence[Row]) -> list[str]:
    shown = [
        [row["step"], f"{row['seconds']:.0f}", *(f"{row[name]}" for name in COUNTS), row["state"]]
        for row in _of_kind(rows, "step")
    ]
    return columns(["step", "s", *COUNTS, ""], shown)


def _faults(rows: Sequence[Row]) -> Iterator[str]:
    """Cells that are wrong, and the kernels that were found to be."""
    wrong = [row for row in rows if row.get("kind") != "step" and is_wrong(row)]
    for row in wrong[:MOST_FAULTS]:
        yield f"WRONG {row['case']}: {row.get('failure') or '; '.join(row['outside'][:2])}"
    if len(wrong) > MOST_FAULTS:
        yield f"… and {len(wrong) - MOST_FAULTS} more wrong cells"
    named = [text for row in rows if row.get("kind") == "diagnosis" for text in row["named"]]
    yield from (f"kernel {text}" for text in list(dict.fromkeys(named))[:MOST_FAULTS])


def _ceilings(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row.get("name") == "ceilings" and "copy_bytes_per_s" in row:
            rates = ", ".join(f"{n} {r / 1e12:.1f}" for n, r in row["product_flops_per_s"].items())
            yield f"copy {row['copy_bytes_per_s'] / 1e9:.0f} GB/s; matrix multiplication, TFLOP/s: {rates}"


def _others(rows: Sequence[Row]) -> Iterator[str]:
    for row in _of_kind(rows, "overhead"):
        yield f"{row['case']}: {line(row)}"
    for row in _of_kind(rows, "counters"):
        seen: dict[str, Any] = row.get("counters") or {}
        if seen and not is_wrong(row):
            moved = (seen["dram_read_bytes"] + seen["dram_written_bytes"]) / 1e9
            rate = moved / (seen["duration_us"] * 1e-6)
            yield (
                f"{seen['kernel']}: {seen['duration_us']:.0f} us, {moved:.2f} GB, {rate:.0f} GB/s, "
                f"{seen['registers']:.0f} registers, {seen['active_warps_percent']:.0f} % of warps"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print what a first run has found.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--check", action="store_true", help="print every bar; exit 1 if one is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and bars to FILE")
    options = parser.parse_args(arguments)
    rows = read_rows(options.results)
    if not rows:
        print(f"{options.results} has no rows: run bash benchmarks/gpu_first_run.sh", file=sys.stderr)
        return 2
    print("\n".join(table_of(rows)))
    met = bars(rows)
    if options.json is not None:
        document = {**command.document("gpu_first_run", options, rows, met), **_origin(rows)}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return report(met) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
