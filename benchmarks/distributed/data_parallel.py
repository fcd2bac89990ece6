"""Data-parallel training by compiled programs beside torch's.

Two ranks of one thread each on this machine: those of torchrun talk through Gloo, of mpirun through MPI.
Each trains two networks for 20 steps by `daceml.DistDataParallel` and by torch's DistributedDataParallel, and
records three steps. Times of a forward and backward pass are told, and no bar: two ranks share this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar
from benchmarks.distributed.data_parallel_rank import NETWORKS
from benchmarks.distributed.rank_processes import alone, by_mpirun, by_torchrun, mpirun

PROGRAM = "benchmarks.distributed.data_parallel_rank"
ROUNDS, QUICK_ROUNDS = 50, 5
# Sums of float32 in another order: a few units in the last place of the largest element
_ROUNDING = 2e-6
# A weight moves by the rounding of 20 gradients
_LOSS_ROUNDING = 1e-5
_ENDS_IN_S = 60.0


def data_parallel_rows(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """A row for each launcher and network, the worse of both ranks; and one for the rank that is killed."""
    rows: list[dict[str, Any]] = []
    launcher = mpirun()
    for started in ("torchrun", "mpirun"):
        for network in NETWORKS:
            if started == "mpirun" and launcher is None:
                rows.append(
                    {"launcher": started, "network": network, "missing": "no mpirun with mpi4py here"}
                )
                continue
            with tempfile.TemporaryDirectory() as folder:
                program = (PROGRAM, "compared", network, str(rounds), folder)
                if launcher is not None and started == "mpirun":
                    ranks = by_mpirun(launcher, program, Path(folder))
                else:
                    ranks = by_torchrun(program, Path(folder))
            rows.append({"launcher": started, "network": network, **_worse(ranks)})
    with tempfile.TemporaryDirectory() as folder:
        survivor, _ = alone((PROGRAM, "ended", "none", "0", folder), Path(folder))
    rows.append({"launcher": "none", "network": "killed", **(survivor or {"missing": "rank 0 said nothing"})})
    return rows


def _worse(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    largest = {name: max(rank[name] for rank in ranks) for name in ("gradients", "losses")}
    least = {
        name: min(rank[name] for rank in ranks)
        for name in ("overlapping", "all_reduces", "hidden_us", "all_reduce_us")
    }
    times = {name: max(rank["step_us"][name] for rank in ranks) for name in ranks[0]["step_us"]}
    return {**largest, **least, "buckets": ranks[0]["buckets"], "step_us": times}


def data_parallel_bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Numbers equal to torch's, overlap that can be seen, and an error in time that names the rank."""
    found: list[Bar] = []
    for row in rows:
        if row["network"] == "killed":
            named = "rank 1" in row.get("what", "") and row.get("code") == "DML677"
            found.append(
                Bar(
                    name="one rank killed: until the other one ends with an error that names it",
                    figure=row["seconds"] if named else None,
                    limit=_ENDS_IN_S,
                    unit="s",
                    note=row.get("what", row.get("missing", "")),
                )
            )
            continue
        title, missing = f"{row['launcher']}, {row['network']}", row.get("missing", "")
        for what, limit in (("gradients", _ROUNDING), ("losses", _LOSS_ROUNDING)):
            name = f"{title}: {what} beside DistributedDataParallel's"
            found.append(Bar(name=name, figure=row.get(what), limit=limit, note=missing))
        found.append(
            Bar(
                name=f"{title}: ranks whose trace shows no all-reduce beside a kernel of its backward pass",
                figure=None if missing else float(row["overlapping"] == 0),
                limit=0,
                note=missing or _overlap_note(row),
            )
        )
    return found


def _overlap_note(row: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {us / 1e3:.1f} ms" for name, us in row["step_us"].items())
    part = row["hidden_us"] / row["all_reduce_us"] if row["all_reduce_us"] else 0.0
    return (
        f"{row['overlapping']} of {row['all_reduces']} all-reduces overlap, {part:.0%} of their time hidden; "
        f"{row['buckets']} buckets; forward and backward: {times}"
    )
