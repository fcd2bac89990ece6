"""Laws of what-if answers on a few generated runs; `benchmarks.simulation_laws` tries thousands."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation_laws import LAWS, faults_of, training_graph
from daceml.simulation.graph import TaskGraph
from daceml.simulation.whatif.data_parallel import DataParallel


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=5, deadline=None)
def test_every_law_holds_of_a_generated_run(seed: int):
    assert faults_of(training_graph(seed), seed) == {law: [] for law in LAWS}


def test_runs_that_once_broke_a_law_obey_it():
    """A loop without marks that waits for its batch, no convolutions, kernels that overlap on a stream, a
    fused kernel that waited for its last launch, a question that removes all work, a kernel
    that ended before the one before it."""
    for seed in (8, 44, 60, 63, 409, 614, 1223, 1599):
        assert faults_of(training_graph(seed), seed) == {law: [] for law in LAWS}


def test_a_rule_that_loses_work_is_noticed(monkeypatch):
    def lost(self: DataParallel, graph: TaskGraph) -> TaskGraph:
        return graph.with_times(duration_us=np.zeros(len(graph)))

    monkeypatch.setattr(DataParallel, "apply", lost)
    found = faults_of(training_graph(3), 3)
    assert any("at most n times" in fault for fault in found["n devices never give more than n"])
