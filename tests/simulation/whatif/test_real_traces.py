"""Optimisations of recorded runs: what must hold of every prediction, and one that was measured."""

from __future__ import annotations

import dataclasses
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from daceml.profiling.kineto import read_trace
from daceml.simulation.analysis.steps import recorded_step_times
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.optimization import applied
from daceml.simulation.whatif.registry import parse
from tests.support.golden import golden
from tests.support.sampling import sampled

DATA = os.environ.get("DACEML_DATA")
pytestmark = pytest.mark.skipif(
    DATA is None, reason="recorded traces are needed: set DACEML_DATA to their folder"
)


@cache
def recorded(workers: int) -> TaskGraph:
    folder = Path(DATA or "") / "traces" / "resnet50_v100"
    graph = build(read_trace(folder / f"num_workers_{workers}.pt.trace.json.gz"))
    return dataclasses.replace(graph, formats=None)  # a V100 would refuse formats of 8 bits


@cache
def other(file: str) -> TaskGraph:
    (path,) = (Path(DATA or "") / "traces").glob(f"{file}*json.gz")
    return build(read_trace(path))


def measured_us(workers: int) -> float:
    """The median step that the profiler recorded."""
    return float(np.median(recorded_step_times(recorded(workers)).loop_us))


def step_us(graph: TaskGraph) -> float:
    """The median time from the beginning of a step to its end."""
    schedule, steps = simulate(graph), []
    for step in range(len(graph.step_names)):
        marks = np.flatnonzero((graph.tasks.kind == TaskKind.MARKER) & (graph.tasks.step == step))
        steps.append(schedule.start_us[marks[1]] - schedule.start_us[marks[0]])
    return float(np.median(steps))


@pytest.mark.parametrize("figures", [{"remove": "yes"}, {"workers": "4"}])
def test_four_workers_are_predicted_from_a_run_without_any(figures: dict[str, str]):
    predicted_us = step_us(applied(parse("data-loader", figures), recorded(0)))
    assert predicted_us == pytest.approx(measured_us(4), rel=0.1)


def test_the_measured_step_lies_between_the_best_and_the_worst_prediction():
    option = parse("data-loader", {"workers": "4"})
    best_us, worst_us = (step_us(applied(option.at(side), recorded(0))) for side in ("fast", "slow"))
    assert best_us < measured_us(4) < worst_us


FASTER = (
    ("amp", {}),
    ("fused-adam", {}),
    ("cuda-graphs", {}),
    ("compile", {}),
    ("low-precision", {"dtype": "fp8"}),
    ("gradient-accumulation", {"every": "2"}),
    ("restructured-batch-norm", {}),
    ("device", {"compute": "2", "memory": "2"}),
)
SLOWER = (("batch", {"ratio": "2"}), ("vdnn", {"usual_bytes": "2e7"}), ("gist", {"lossy": "yes"}))


@pytest.mark.parametrize(("option", "figures"), FASTER, ids=[name for name, _ in FASTER])
def test_what_saves_work_never_makes_a_step_slower(option: str, figures: dict[str, str]):
    asked = parse(option, figures)
    best_us, likely_us, worst_us = (
        step_us(applied(asked.at(s), recorded(0))) for s in ("fast", "likely", "slow")
    )
    assert best_us <= likely_us + 1 <= worst_us + 2 <= step_us(recorded(0)) + 3


@pytest.mark.parametrize(("option", "figures"), SLOWER, ids=[name for name, _ in SLOWER])
def test_what_adds_work_never_makes_a_step_faster(option: str, figures: dict[str, str]):
    assert step_us(applied(parse(option, figures), recorded(0))) >= step_us(recorded(0))


def test_optimisations_go_on_top_of_each_other():
    graph = recorded(0)
    times_us = [step_us(graph)]
    for option in ("data-loader", "amp", "fused-adam", "cuda-graphs"):
        graph = applied(parse(option), graph)
        times_us.append(step_us(graph))
    assert times_us == sorted(times_us, reverse=True) and times_us[-1] < times_us[0] / 2


@pytest.mark.parametrize(
    ("option", "figures"), [("checkpointing", {"layers": "layer1"}), ("metaflow", {"remove": "fc"})]
)
def test_a_run_without_names_of_layers_says_so(option: str, figures: dict[str, str]):
    reason = parse(option, figures).check(recorded(0))
    assert reason == golden() and "layer" in reason


def test_a_run_with_workers_does_not_tell_how_long_loading_takes():
    assert parse("data-loader").check(recorded(4)) == golden()


# With CUDA graphs, and of another vendor
OTHERS = ("graphs_16xA100/rank0", "act_checkpoint_mi300/resnet_act_checkpoint")


@pytest.mark.parametrize(
    ("option", "figures"), [*FASTER, *SLOWER], ids=[name for name, _ in (*FASTER, *SLOWER)]
)
@pytest.mark.parametrize("folder", sampled(["dlrm_a100/rank3", *OTHERS], *OTHERS))
def test_every_optimisation_gives_a_schedule_or_a_reason(folder: str, option: str, figures: dict[str, str]):
    graph, asked = other(folder), parse(option, figures)
    if asked.check(graph) is None:
        assert simulate(applied(asked, graph)).makespan_us > 0
