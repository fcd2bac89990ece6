"""Damaged traces are read or refused, and a campaign notices everything else."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import trace_robustness
from benchmarks.trace_examples import as_bytes, training_run
from benchmarks.trace_mutations import BYTES, CONTENT, mutated
from benchmarks.trace_robustness import BAD, bars_of, fault_of, judged, miscount_of, read, replay
from daceml.errors import TraceFileError
from daceml.profiling.kineto import trace_of

DATA = as_bytes(training_run())


@pytest.mark.parametrize("seed", range(100))
def test_a_damaged_trace_is_read_or_refused(seed: int):
    data, done = mutated(DATA, seed)
    verdict, reason = judged(read, data, "damaged.json")
    assert verdict in ("read", "refused"), f"{done}: {reason}"


def test_a_whole_trace_is_read():
    assert judged(read, DATA, "run.json") == ("read", "")
    assert judged(read, gzip.compress(DATA), "run.json") == ("read", "")


def test_a_seed_always_does_the_same_harm_and_every_harm_is_done():
    assert mutated(DATA, 3) == mutated(DATA, 3)
    done = {name for seed in range(400) for name in mutated(DATA, seed)[1].split(", ")}
    assert done - {"gzip"} == {change.__name__ for change in (*BYTES, *CONTENT)}


def test_other_errors_and_errors_that_say_too_little_are_faults():
    def broken(data: bytes, source: str) -> str:
        raise KeyError("ts")

    def silent(data: bytes, source: str) -> str:
        raise TraceFileError("no")

    assert judged(broken, DATA, "a")[0] == "foreign exception"
    assert judged(silent, DATA, "a")[0] == "foreign exception"
    assert judged(lambda data, source: "half of it is missing", DATA, "a") == (
        "wrong",
        "half of it is missing",
    )


def test_an_event_that_is_neither_read_nor_counted_is_a_fault():
    content = training_run()
    content["traceEvents"] += [7, {"ph": "X", "cat": "kernel"}, {"ph": "M"}, {"cat": "kernel"}]
    data = as_bytes(content)
    trace = trace_of(data, "run.json")
    assert not miscount_of(data, trace)
    assert miscount_of(data, dataclasses.replace(trace, left_out={}))
    assert read(data, "run.json") == ""


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_a_damaged_trace_is_replayed_or_refused(seed: int):
    data, done = mutated(DATA, seed)
    verdict, reason = judged(replay, data, "damaged.json")
    assert verdict in ("read", "refused"), f"{done}: {reason}"


def test_traces_that_cannot_be_are_faults():
    trace = trace_of(DATA, "run.json")
    events = trace.events
    for change, fault in (
        ({"duration_us": -events.duration_us}, "durations below zero, or a first event that is not at zero"),
        ({"start_us": events.start_us[::-1]}, "durations below zero, or a first event that is not at zero"),
        ({"start_us": np.full(len(events), np.nan)}, "start that is not a number"),
        ({"lane": events.lane + 4}, "lane out of range"),
        ({"lane": np.zeros(len(events), np.int64)}, "device work on a thread"),
    ):
        other = dataclasses.replace(trace, events=dataclasses.replace(events, **change))
        assert fault_of(other) in (fault, "not in the order of time")
        assert fault_of(other)


def test_a_campaign_without_cases_meets_no_bar():
    assert [bar.met for bar in bars_of([], "read")] == [False] * len(BAD)


def test_a_small_campaign(tmp_path: Path):
    result = tmp_path / "result.json"
    arguments = ["--count", "6", "--processes", "1", "--check", "--json", str(result)]
    assert trace_robustness.main(arguments) == 0
    written = json.loads(result.read_text(encoding="utf-8"))
    assert written["benchmark"] == "trace_robustness"
    assert [(row["work"], row["case"]) for row in written["rows"]] == [
        (work, case) for work in trace_robustness.WORKS for case in range(6)
    ]
    assert all(bar["met"] for bar in written["bars"])
