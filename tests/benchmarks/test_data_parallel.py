"""The benchmark of data-parallel training: overlap in a trace, and bars that are missed."""

from __future__ import annotations

from typing import Any

from benchmarks.distributed.data_parallel import data_parallel_bars
from benchmarks.distributed.overlap import overlap

ROW: dict[str, Any] = {
    "launcher": "torchrun",
    "network": "transformer",
    "gradients": 1e-7,
    "losses": 1e-7,
    "overlapping": 1,
    "all_reduces": 2,
    "all_reduce_us": 10.0,
    "hidden_us": 4.0,
    "buckets": 2,
    "step_us": {"ours": 1000.0},
}


def event(name: str, start: float, duration: float, kind: str = "") -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": start, "dur": duration, "args": {"kind": kind}}


def test_communication_beside_a_kernel_is_hidden_and_beside_a_wait_it_is_not():
    events = [
        event("daceml.kernel: first", 0, 10, "kernel"),
        event("daceml.kernel: second", 10, 5, "aten"),
        event("daceml.kernel: wait for all-reduce 0", 15, 5, "collective"),
        event("gloo:all_reduce", 8, 10),
        event("gloo:all_reduce", 16, 3),
    ]
    assert overlap(events) == {"all_reduces": 2, "all_reduce_us": 13, "hidden_us": 7, "overlapping": 1}


def test_bars_are_met_by_equal_numbers_and_overlap():
    assert [bar.met for bar in data_parallel_bars([ROW])] == [True, True, True]


def test_other_numbers_no_overlap_and_a_missing_launcher_are_misses():
    wrong = ROW | {"gradients": 1e-3, "losses": 0.1, "overlapping": 0}
    missing = {"launcher": "mpirun", "network": "transformer", "missing": "no mpirun with mpi4py here"}
    bars = data_parallel_bars([wrong, missing])
    assert not any(bar.met for bar in bars) and len(bars) == 6
    assert bars[-1].note == "no mpirun with mpi4py here"


def test_an_error_that_names_nobody_or_comes_late_is_a_miss():
    named = {
        "launcher": "none",
        "network": "killed",
        "code": "DML677",
        "what": "rank 1 failed",
        "seconds": 2.0,
    }
    verdicts = [named, named | {"what": "a rank failed"}, named | {"seconds": 61.0}, named | {"code": None}]
    assert [bar.met for bar in data_parallel_bars(verdicts)] == [True, False, False, False]
