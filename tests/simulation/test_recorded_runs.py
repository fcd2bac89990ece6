"""Replays of real recorded runs, and laws that hold when they are changed; skipped without $DACEML_DATA."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.replay.overlay import overlay_row
from daceml.profiling.kineto import read_trace
from daceml.simulation import Schedule, TaskGraph, build, simulate
from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.analysis.steps import step_error
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import launches_of
from tests.support.sampling import sampled

DATA = os.environ.get("DACEML_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="no recorded traces: DACEML_DATA is not set")
BOUND = "gpu_bound_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
# trace -> the largest mean step error
TRACES = {
    **{f"dlrm_8xV100/worker{rank}.pt.trace.json.gz": 0.005 for rank in range(8)},
    "dlrm_a100/rank3.pt.trace.json.gz": 0.02,
    "graphs_16xA100/rank0.pt.trace.json.gz": 0.1,
    BOUND: 0.005,
    "models_h100/gaunernst_bert-small-uncased__1016001.json.gz": 0.01,
    "models_mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": 0.01,
    "act_checkpoint_mi300/resnet_act_checkpoint.json.gz": 0.01,
}
# Of eight ranks of one run the first, and the last, which is late
SAMPLED = sampled(TRACES, *(name for name in TRACES if not re.search("worker[1-6]", name)))


@cache
def graph_of(name: str) -> TaskGraph:
    return build(read_trace(Path(DATA or "") / "traces" / name))


def slowed(graph: TaskGraph, factor: float) -> Schedule:
    return simulate(scale(graph, graph.on_device(), factor))


@pytest.mark.parametrize("name", SAMPLED)
def test_a_replay_gives_the_steps_that_were_recorded(name: str):
    assert step_error(simulate(graph_of(name))) <= TRACES[name]


@pytest.mark.parametrize("name", SAMPLED)
def test_laws_of_every_run(name: str):
    graph = graph_of(name)
    schedules = [slowed(graph, factor) for factor in (0.0, 0.5, 1.0, 2.0)]
    spans = [schedule.makespan_us for schedule in schedules]
    assert spans == sorted(spans)
    whole = schedules[2]
    assert critical_path(whole).length_us == pytest.approx(whole.makespan_us, abs=1e-6)
    for lane in range(len(graph.lanes)):
        members = graph.lane_members(lane)
        in_record = np.argsort(graph.tasks.recorded_us[members], kind="stable")
        assert (np.diff(whole.start_us[members][in_record]) >= -1e-6).all()


def test_a_run_that_the_device_limits_takes_twice_as_long_with_kernels_twice_as_long():
    graph = graph_of(BOUND)
    assert slowed(graph, 2.0).makespan_us / slowed(graph, 1.0).makespan_us == pytest.approx(2, rel=0.02)


def test_without_launches_its_kernels_remain():
    graph = graph_of(BOUND)
    calls = launches_of(graph, graph.on_device())
    free = graph.with_times(
        duration_us=np.where(calls, 0.0, graph.tasks.duration_us),
        gap_us=np.where(~graph.on_device(), 0.0, graph.tasks.gap_us),
    )
    busy_us = graph.tasks.duration_us[graph.on_device()].sum()
    assert simulate(free).makespan_us == pytest.approx(busy_us, rel=0.03)


def test_the_critical_path_has_all_device_work_of_the_one_that_hta_drew():
    row = overlay_row(Path(DATA or "") / "traces" / "sync_micro_a100/end_to_end/simple_add")
    assert (row["expected"], row["missing"]) == (22, 0)
    assert (
        row["more"] <= 2
    )  # HTA lets the call, not the kernel, be critical before one device synchronisation
