"""Gradients from the shapes of what accumulates them."""

from __future__ import annotations

import json

import pytest

from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from daceml.simulation.whatif.recorded_gradients import gradients_in

SHAPE = {"Input Dims": [[1000]], "Input type": ["float"]}


def run(*gradients: dict[str, object], steps: int = 2, of_the_last: int | None = None) -> Trace:
    """Steps of 100 us that accumulate these gradients; the last step so many of them."""
    events: list[dict[str, object]] = []
    for step in range(steps):
        events.append({"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": 100 * step, "dur": 90})
        kept = gradients if of_the_last is None or step < steps - 1 else gradients[:of_the_last]
        events += [
            {
                "cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "ts": 100 * step + 5 * place,
                "dur": 2, "args": shape,
            }
            for place, shape in enumerate(kept, 1)
        ]  # fmt: skip
    document = {"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}
    return trace_of(json.dumps(document).encode(), "run")


def test_the_gradients_of_a_step_in_the_order_in_which_they_become_ready():
    found = gradients_in(run(SHAPE, {"Input Dims": [[64, 3, 7, 7]], "Input type": ["c10::Half"]}))
    assert found is not None
    assert [(row.size_bytes, row.ready) for row in found.rows] == [(4000, 0), (64 * 3 * 49 * 2, 1)]
    assert found.total_bytes == 4000 + 18816


@pytest.mark.parametrize(
    "trace",
    [run(), run(SHAPE, {}), run(SHAPE, SHAPE, of_the_last=1), run({**SHAPE, "Input type": ["Scalar"]})],
    ids=["none", "one without a shape", "a step that is not whole", "no element type"],
)
def test_what_was_not_recorded_whole_is_not_known(trace: Trace):
    assert gradients_in(trace) is None
