"""How long a step of BERT-large takes to replay on 1,024 ranks, and what 10,240 need.

All ranks are tasks of one graph, each operator and each launch for itself; or one rank of each stage stands
for all that do the same; or equal lanes of the whole graph are found and folded. Each case runs in a process
of its own, with the time to make the graph.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.bars import Bar

SECONDS, GIBIBYTES = 10.0, 4.0
DATA = {"data": 1024, "micro_batch": 8, "global_batch": 8 * 1024}
THREE = {"data": 16, "tensor": 8, "pipeline": 8, "micro_batch": 8, "global_batch": 16 * 8 * 32}
MANY_DATA = {"data": 10240, "micro_batch": 8, "global_batch": 8 * 10240}
MANY_THREE = {"data": 160, "tensor": 8, "pipeline": 8, "micro_batch": 8, "global_batch": 160 * 8 * 32}


def _case(
    name: str, plan: dict[str, int], *, ranks: str = "all", operators: bool = True, fold: bool = False
) -> dict[str, Any]:
    return {
        "case": name,
        "plan": plan,
        "ranks": ranks,
        "operators": operators,
        "host": operators,
        "fold": fold,
    }


# The first two have bars
CASES = (
    _case("1,024 replicas, all ranks, operators and launches", DATA),
    _case("16 x 8 x 8 with 32 micro-batches, all ranks, blocks", THREE, operators=False),
    _case("1,024 replicas, one stands for all", DATA, ranks="representatives"),
    _case("16 x 8 x 8, one of each stage", THREE, ranks="representatives"),
    _case("1,024 replicas, all ranks, folded", DATA, fold=True),
    _case("10,240 replicas, one stands for all", MANY_DATA, ranks="representatives"),
    _case("160 x 8 x 8, one of each stage", MANY_THREE, ranks="representatives"),
    _case("10,240 replicas, all ranks, blocks", MANY_DATA, operators=False),
)


def measured(*, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Every case; the first two only for a first look."""
    rows = [{"case": case["case"], **_replayed(case)} for case in CASES[: 2 if quick else None]]
    return rows, bars(rows)


def _replayed(case: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.distributed.scale_process", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr[-500:]}
    return json.loads(done.stdout)


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Seconds and memory of the cases that have all 1,024 ranks."""
    made: list[Bar] = []
    for row in rows[:2]:
        there = "failed" not in row
        note = (
            f"{row['tasks']:,} tasks, {row['edges']:,} edges; {row['build_s']:.1f} s to make the graph"
            if there
            else ""
        )
        seconds = row["build_s"] + row["replay_s"] if there else None
        made += [
            Bar(
                name=f"BERT-large, {row['case']}: made and replayed",
                figure=seconds,
                limit=SECONDS,
                unit="s",
                note=note,
            ),
            Bar(
                name=f"BERT-large, {row['case']}: memory",
                figure=row["peak_bytes"] / 2**30 if there else None,
                limit=GIBIBYTES,
                unit="GiB",
            ),
        ]
    return made
