"""Memory: events of GPUs replayed, peaks of steps from shapes, ways to hold less, beside what was measured.

The traces are inference on an H100 and an MI300X. Peaks are those of training steps on this processor, which
torch's profiler counts, and the prediction has run nothing. Recomputation and accumulation are foretold from
one recording of the step as it is. A measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.interleave import TUNED_ALLOCATOR
from benchmarks.machine import ROOT

REPLAY_ERROR = 0.01
PEAK_ERROR = 0.05
REGRET = 0.05
RECOMPUTATION, ACCUMULATION = "recomputation", "accumulation"
_APART = 0.01  # peaks that differ by less are not ranked
_NOT_PROMISED = ("recurrent",)


def measured(folder: Path, *, quick: bool = False) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Rows of all three, and what they are worth."""
    from benchmarks.distributed.memory_traces import replays

    rows = [*replays(folder), *_peaks(quick=quick), *_ways(quick=quick)]
    return rows, bars(rows)


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Errors, ranks that are wrong, and what a choice by prediction costs."""
    return [*_replay_bars(rows), *_peak_bars(rows), *_way_bars(rows)]


def _replay_bars(rows: Sequence[dict[str, Any]]) -> Iterator[Bar]:
    seen = [row for row in rows if row["what"] == "replay of events"]
    for level in ("allocated", "reserved"):
        for place, device in (("models_h100", "H100"), ("models_mi300", "MI300X")):
            mine = [row for row in seen if row["trace"].startswith(place)]
            errors = [row[f"{level}_error"] for row in mine]
            placed = ", ".join(f"{row['same_address']} of {row['blocks']}" for row in mine)
            beside = f"; it never changes in them; blocks at the recorded address: {placed}"
            note = f"{len(errors)} traces" + (beside if level == "reserved" else "")
            yield Bar(
                name=f"replay of memory events, {device}: largest error of {level} bytes",
                figure=max(errors, default=None),
                limit=REPLAY_ERROR,
                note=note,
            )


def _peak_bars(rows: Sequence[dict[str, Any]]) -> Iterator[Bar]:
    seen = [row for row in rows if row["what"] == "peak from shapes"]
    promised = [row for row in seen if row["model"] not in _NOT_PROMISED]
    others = [row for row in seen if row["model"] in _NOT_PROMISED]
    worst = max(promised, key=lambda row: abs(row["error"]), default=None)
    note = "" if worst is None else f"{len(promised)} steps, worst {worst['model']}, {worst['optimizer']}"
    left_out = ", ".join(f"{row['model']} {row['optimizer']} {row['error']:+.0%}" for row in others)
    yield Bar(
        name="peak of a training step from shapes: largest error",
        figure=None if worst is None else abs(worst["error"]),
        limit=PEAK_ERROR,
        note=f"{note}; not promised: {left_out}" if left_out else note,
    )
    silent = sum(not row["notes"] for row in others)
    yield Bar(name="peaks that are not promised and do not say so", figure=silent if seen else None, limit=0)


def _way_bars(rows: Sequence[dict[str, Any]]) -> Iterator[Bar]:
    seen = [row for row in rows if row["what"] == "ways to hold less"]
    errors = [abs(way["predicted_bytes"] / way["measured_bytes"] - 1) for row in seen for way in row["ways"]]
    yield Bar(
        name="recomputation and accumulation: largest error of a peak",
        figure=max(errors, default=None),
        limit=PEAK_ERROR,
        note=f"{len(errors)} steps",
    )
    peaks = [verdict for row in seen for verdict in _ranked(row["ways"], "bytes")]
    yield _rank_bar("peaks", peaks)
    times = [verdict for row in seen for verdict in _ranked(row["ways"], "us")]
    yield _rank_bar("times", times)
    regrets = [regret for row in seen for regret in regrets_of(row["ways"])]
    yield Bar(
        name="the fastest way at a budget: largest loss of time by choosing as predicted",
        figure=max(regrets, default=None),
        limit=REGRET,
        note=f"{len(regrets)} budgets; infinite where the choice does not fit",
    )


def _rank_bar(what: str, verdicts: Sequence[bool | None]) -> Bar:
    decided = [one for one in verdicts if one is not None]
    return Bar(
        name=f"recomputation against accumulation: {what} that are ranked wrongly",
        figure=sum(not one for one in decided) if decided else None,
        limit=0,
        note=f"of {len(decided)} pairs; {len(verdicts) - len(decided)} too close to be ranked",
    )


def _ranked(ways: Sequence[dict[str, Any]], unit: str) -> Iterator[bool | None]:
    """Of each pair of the two kinds, whether it is ranked as measured; None: too close to be ranked."""
    for one, other in combinations(ways, 2):
        kinds = {way["way"].partition(" ")[0] for way in (one, other)}
        if kinds != {RECOMPUTATION, ACCUMULATION}:
            continue
        seen = one[f"measured_{unit}"] < other[f"measured_{unit}"]
        if unit == "us":
            lower, higher = (one, other) if seen else (other, one)
            apart = lower["interval_us"][1] < higher["interval_us"][0]
        else:
            apart = abs(one["measured_bytes"] / other["measured_bytes"] - 1) > _APART
        yield (one[f"predicted_{unit}"] < other[f"predicted_{unit}"]) == seen if apart else None


def regrets_of(ways: Sequence[dict[str, Any]]) -> Iterator[float]:
    """What choosing by prediction costs, of the time of the best way, at a budget between each two peaks."""
    peaks = sorted(way["measured_bytes"] for way in ways)
    for below, above in pairwise(peaks):
        budget = (below + above) / 2
        chosen = min(
            (way for way in ways if way["predicted_bytes"] <= budget),
            key=lambda way: way["predicted_us"],
            default=None,
        )
        best = min(
            (way for way in ways if way["measured_bytes"] <= budget), key=lambda way: way["measured_us"]
        )
        if chosen is None or chosen["measured_bytes"] > budget:
            yield float("inf")
        else:
            yield chosen["measured_us"] / best["measured_us"] - 1


def _peaks(*, quick: bool) -> Iterator[dict[str, Any]]:
    from benchmarks.distributed.memory_models import MODELS, OPTIMIZERS

    for name in MODELS:
        for optimizer in list(OPTIMIZERS)[-1:] if quick else OPTIMIZERS:
            yield _in_process("peak", name, optimizer)


def _ways(*, quick: bool) -> Iterator[dict[str, Any]]:
    from benchmarks.distributed.memory_models import MODELS

    names = [name for name, model in MODELS.items() if model.batch]
    for name in names[:1] if quick else names:
        yield _in_process("ways", name, "9" if quick else "21")


def _in_process(*asked: str) -> dict[str, Any]:
    """A row of a process with one thread, and with the allocator that all benchmarks use.

    Raises:
        RuntimeError: it failed; the message is what it said last.
    """
    line = [sys.executable, "-m", "benchmarks.distributed.memory_process", *asked]
    environment = {**os.environ, **TUNED_ALLOCATOR, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{' '.join(asked)} ended with exit code {done.returncode}: {said}")
    # torch's profiler writes lines of its own, some without an end
    row = next(one for one in reversed(done.stdout.splitlines()) if one.startswith("{"))
    return json.loads(row)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compare memory that is predicted with what was measured.")
    parser.add_argument("folder", type=Path, help="the data sets: measurements and traces")
    options: argparse.Namespace = parser.parse_args(arguments)
    rows, made = measured(options.folder, quick=options.quick)
    for bar in made:
        print(bar.line(), flush=True)
    return command.finish("distributed_memory", options, rows, made)


if __name__ == "__main__":
    sys.exit(main())
