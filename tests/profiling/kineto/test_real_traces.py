"""Recordings of real runs: what other tools count in them, and what the files' own numbers say."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trace_robustness import fault_of
from daceml.profiling.kineto import read_trace, read_traces
from daceml.profiling.trace import EventKind, Trace
from tests.support.golden import golden
from tests.support.sampling import sampled

DATA = os.environ.get("DACEML_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="DACEML_DATA names no folder of real traces")
FOLDER = Path(DATA or "") / "traces"

# file -> kernels, copies, memsets; calls; steps; device work without a call in the file
COUNTS = {
    "resnet50_v100/num_workers_0.pt.trace.json.gz": (8772, 12, 312, 11923, 6, 0),
    "resnet50_v100/num_workers_4.pt.trace.json.gz": (8868, 12, 378, 12085, 6, 0),
    "dlrm_8xV100/worker0.pt.trace.json.gz": (245, 16, 0, 525, 1, 0),
    "dlrm_8xV100/worker1.pt.trace.json.gz": (310, 16, 0, 527, 1, 64),
    "dlrm_a100/rank3.pt.trace.json.gz": (8568, 228, 654, 24692, 6, 0),
    "graphs_16xA100/rank0.pt.trace.json.gz": (6080, 1390, 277, 33924, 5, 872),
    "gpu_bound_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (4350, 1600, 145, 15329, 5, 0),
    "linear_2080ti/linear_kineto.json.gz": (8716, 0, 1640, 14515, 0, 0),
    "models_h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": (1465, 1, 241, 1922, 1, 509),
    "models_h100/gaunernst_bert-small-uncased__1016001.json.gz": (60, 1, 0, 132, 1, 0),
    "models_mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": (1516, 1, 0, 1707, 1, 463),
    "models_mi300/gaunernst_bert-small-uncased__1016001.json.gz": (60, 1, 0, 161, 1, 0),
    "act_checkpoint_mi300/resnet_act_checkpoint.json.gz": (2995, 550, 108, 3100, 3, 968),
    "sync_micro_a100/alexnet/benchmark_result_2869224_1695835535_trace.json.gz": (79, 16, 3, 361, 0, 0),
    "sync_micro_a100/cuda_event_sync/event_sync_trace.json.gz": (4, 1, 0, 12, 1, 0),
    "sync_micro_a100/cuda_event_sync_multi_stream/event_sync_trace.json.gz": (3, 0, 3, 39, 0, 0),
    "sync_micro_a100/simple_add/benchmark_result_493459_1694039959_trace.json.gz": (79, 16, 3, 331, 0, 0),
    "sync_micro_a100/end_to_end/simple_add/input/trace.json.gz": (79, 16, 3, 331, 0, 0),
    "sync_micro_a100/end_to_end/simple_add/output/overlaid_critical_path_trace.json.gz": (
        79,
        16,
        3,
        331,
        0,
        0,
    ),
}


@cache
def read(name: str) -> Trace:
    return read_trace(FOLDER / name)


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Generator[None]:
    """Traces take 200 MB of memory."""
    yield
    read.cache_clear()


def steps(trace: Trace) -> list[int]:
    annotations = trace.events.of(EventKind.ANNOTATION)
    return [int(i) for i in annotations if trace.name_of(int(i)).startswith("ProfilerStep#")]


# Recorded as the first is, and read by tests/simulation/whatif/test_real_traces.py, too
LIKE_ANOTHER = "resnet50_v100/num_workers_4.pt.trace.json.gz"


@pytest.mark.parametrize("name", sampled(COUNTS, *(name for name in COUNTS if name != LIKE_ANOTHER)))
def test_every_event_is_found_and_linked(name: str):
    trace = read(name)
    events = trace.events
    kernels, copies, memsets, calls, step_count, unlinked = COUNTS[name]
    assert fault_of(trace) == ""
    assert len(events.of(EventKind.KERNEL)) == kernels
    assert len(events.of(EventKind.COPY)) == copies
    assert len(events.of(EventKind.MEMSET)) == memsets
    assert len(events.of(EventKind.CALL)) == calls
    assert len(steps(trace)) == step_count
    work = events.of(EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET)
    launched = np.isin(events.correlation[work], events.correlation[events.of(EventKind.CALL)])
    assert int((~launched).sum()) == unlinked
    notes = "\n".join(trace.notes)
    assert notes == golden()
    assert not re.search(r"\d", notes), "what is left out is counted"
    assert trace.devices


def test_steps_last_as_long_as_they_did():
    trace = read("resnet50_v100/num_workers_0.pt.trace.json.gz")
    assert trace.events.duration_us[steps(trace)].tolist() == [
        176_078,
        173_992,
        176_918,
        181_259,
        176_468,
        164_261,
    ]
    assert trace.events.end_us.max() == 1_065_658


def test_nanoseconds_are_kept():
    trace = read("gpu_bound_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz")
    nanoseconds = np.unique(np.round(trace.events.start_us * 1e3) % 250)
    assert len(nanoseconds) == 250, "a float64 of the clock keeps quarters of a microsecond alone"


def test_operators_meet_their_backward():
    for name, pairs in (
        ("act_checkpoint_mi300/resnet_act_checkpoint.json.gz", 213),
        ("gpu_bound_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 905),
    ):
        trace = read(name)
        forward, backward = trace.gradient_pairs.T
        assert len(forward) == pairs
        np.testing.assert_array_equal(trace.events.sequence[forward], trace.events.sequence[backward])
        assert (trace.events.start_us[forward] < trace.events.start_us[backward]).all()


def test_eight_ranks_of_one_run():
    traces = read_traces(FOLDER / "dlrm_8xV100")
    assert [trace.rank for trace in traces] == list(range(8))
    assert {trace.world_size for trace in traces} == {8}
    assert {len(trace.events.of(EventKind.OPERATOR)) for trace in traces} == {1633}


def test_memory_and_modules_of_an_inference_run():
    trace = read("models_h100/gaunernst_bert-small-uncased__1016001.json.gz")
    assert len(trace.memory.time_us) == 236
    assert np.isfinite(trace.memory.reserved_bytes).all()
    modules = [
        i for i in trace.events.of(EventKind.PYTHON) if trace.name_of(int(i)).startswith("nn.Module: ")
    ]
    assert len(modules) == 84


def test_recorded_waits_name_what_they_wait_for():
    trace = read("sync_micro_a100/cuda_event_sync_multi_stream/event_sync_trace.json.gz")
    waits = [trace.events.details[int(i)] for i in trace.events.of(EventKind.SYNC)]
    assert len(waits) == 5
    assert sum("wait_on_cuda_event_record_corr_id" in wait for wait in waits) == 4
