"""What shards have found, as tables: python -m benchmarks.gpu table benchmarks/results/GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare import NotComparableError, load
from benchmarks.gpu.bars import copy_share, measurement_of, speedup
from benchmarks.gpu.precisions import PRECISIONS
from benchmarks.gpu.timing import OURS, best_peer
from benchmarks.speed import geometric_mean

Row = dict[str, Any]
NOTHING = "-"


def line(row: Row) -> str:
    """A row in a few words, for progress."""
    if "failure" in row:
        return f"failed: {row['failure']}"
    if row.get("outside"):
        return "; ".join(row["outside"][:3])
    if "overhead_us" in row:
        return f"{row['overhead_us']['median']:.1f} us"
    part = "calls" if "calls" in row else "replays"
    measurement = measurement_of(row, part)
    if measurement is None:
        return "right" if "outside" in row else "not measured"
    times = (f"{name} {measurement.duration_us(name).value:.0f}" for name in measurement.names)
    return f"us: {', '.join(times)}"


def correctness_table(rows: Sequence[Row]) -> list[str]:
    """Each network and mode, with the share of the limit that its worst tensor takes in each precision."""
    names = [name for name in PRECISIONS if any(row["precision"] == name for row in rows)]
    cases = dict.fromkeys((row["name"], row["mode"]) for row in rows)
    found = {(row["name"], row["mode"], row["precision"]): row for row in rows}
    lines = [
        [f"{name}, {mode}", *(_worst(found.get((name, mode, p))) for p in names)] for name, mode in cases
    ]
    limits = [f"limit of {name}: {PRECISIONS[name].limit_text}" for name in names]
    return [*columns(["correctness: worst error over its limit", *names], lines), *limits]


def block_table(rows: Sequence[Row]) -> list[str]:
    """Blocks: microseconds as replayed graphs, the share of a copy's bandwidth, and the best peer."""
    lines: list[list[str]] = []
    for row in rows:
        measurement, share = measurement_of(row, "replays"), copy_share(row)
        if measurement is None:
            lines.append([row["case"], row.get("failure", "not measured")])
            continue
        best = best_peer(measurement)
        lines.append(
            [
                row["case"],
                f"{measurement.duration_us(OURS).value:.0f}",
                NOTHING if share is None else f"{100 * share.value:.0f} %",
                NOTHING if best is None else f"{measurement.ratio(best, OURS)} times {best}",
            ]
        )
    return columns(["block", "us", "of a copy", "beside the best peer"], lines)


def network_table(rows: Sequence[Row]) -> list[str]:
    """Networks: milliseconds of each way, called and replayed, and the ratio over torch.compile."""
    lines: list[list[str]] = []
    for row in rows:
        for part in ("calls", "replays"):
            measurement = measurement_of(row, part)
            if measurement is None:
                lines.append([row["case"], part, row.get("failure", "not measured")])
                continue
            times = (f"{n} {measurement.duration_us(n).value / 1e3:.3f}" for n in measurement.names)
            ratio = speedup(row, part, ("max_autotune",) if row["kind"] == "autotune" else ("inductor",))
            missing = "; ".join(f"no {name}: {why}" for name, why in row[part]["missing"].items())
            lines.append(
                [row["case"], part, NOTHING if ratio is None else str(ratio), ", ".join(times), missing[:120]]
            )
    return [*columns(["network", "as", "times torch.compile", "ms", ""], lines), *mean_lines(rows)]


def mean_lines(rows: Sequence[Row]) -> list[str]:
    """Geometric means over the networks that were measured, of each mode, called and replayed."""
    lines: list[str] = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        for part in ("calls", "replays"):
            found = [speedup(row, part, ("inductor",)) for row in rows if row["mode"] == mode]
            ratios = [ratio.value for ratio in found if ratio is not None]
            if ratios:
                mean = f"{geometric_mean(ratios):.3f}, n={len(ratios)} of {len(found)}"
                lines.append(f"geometric mean, {mode}, {part}: {mean}")
    return lines


def other_table(rows: Sequence[Row]) -> list[str]:
    """Checks and whatever else has no table of its own."""
    return columns(["check", ""], [[row["case"], line(row)] for row in rows])


TABLES = {
    "check": other_table,
    "correctness": correctness_table,
    "block": block_table,
    "guided": block_table,
    "times": network_table,
    "autotune": network_table,
    "overhead": other_table,
}


def tables(documents: Iterable[dict[str, Any]]) -> list[str]:
    """Everything that some result files say, kind by kind, and the bars."""
    documents = list(documents)
    lines = list(dict.fromkeys(_origin(document) for document in documents))
    rows = [row for document in documents for row in document["rows"]]
    for kind, shown in TABLES.items():
        if here := [row for row in rows if row["kind"] == kind]:
            lines += ["", *shown(here)]
    bars = [bar for document in documents for bar in document["bars"]]
    missed = [bar for bar in bars if not bar["met"]]
    lines += ["", f"{len(bars) - len(missed)} of {len(bars)} bars met"]
    lines += [f"MISSED {bar['name']}: {bar['note'] or bar['figure']}" for bar in missed]
    return lines


def columns(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells under each other; the last one of a line may be of any length."""
    every = [list(head), *map(list, lines)]
    widths = [
        max((len(cells[place]) for cells in every if place < len(cells) - 1), default=0)
        for place in range(len(head))
    ]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()
        for cells in every
    ]


def _worst(row: Row | None) -> str:
    if row is None:
        return NOTHING
    if "failure" in row:
        return "failed"
    worst = row["worst"]
    share = "inf" if worst["error"] is None else f"{worst['error'] / (worst['limit'] or 1e-300):.2f}"
    return f"{share}{' OUTSIDE' if row['outside'] else ''}"


def _origin(document: dict[str, Any]) -> str:
    device, where = document["device"], document["machine"]
    versions = ", ".join(f"{name} {device.get(name)}" for name in ("driver", "cuda", "torch", "triton"))
    return f"{device['gpu'] or 'emulated'}; {versions}; commit {where['commit']}, {where['date'][:10]}"


def documents_in(folder: Path) -> list[dict[str, Any]]:
    """The result files of the suite in a folder, by name.

    Raises:
        NotComparableError: a file cannot be read.
    """
    found = [load(file) for file in sorted(folder.glob("*.json"))]
    return [document for document in found if document["benchmark"] == "gpu"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print the results of a device.")
    parser.add_argument("folder", type=Path, help="benchmarks/results/GPU, or any folder of result files")
    options = parser.parse_args(arguments)
    try:
        documents = documents_in(options.folder)
    except NotComparableError as error:
        print(error, file=sys.stderr)
        return 2
    if not documents:
        where = f"{options.folder} has no result files of the suite"
        print(f"{where}: run bash benchmarks/gpu.sh --shard NAME", file=sys.stderr)
        return 2
    print("\n".join(tables(documents)))
    return 0
