"""Our own kernels in a trace: where they lie, and what they are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import daceml
from daceml.profiling.recording.kernels import CALLS, PREFIX, kernel_events, placed_steps
from daceml.runtime.call_log import LoggedCall


def test_steps_lie_end_to_end_from_where_the_program_began():
    assert placed_steps([2.0, 5.0, 1.0], 11.0, (10.0, 20.0), []) == [(11, 13), (13, 18), (18, 19)]


def test_a_program_that_seems_to_leave_its_call_is_moved_into_it():
    assert placed_steps([2.0, 5.0], 9.0, (10.0, 20.0), []) == [(10, 12), (12, 17)]
    assert placed_steps([2.0, 5.0], 14.5, (10.0, 20.0), []) == [(13, 15), (15, 20)]


def test_no_step_cuts_an_operator_in_two():
    # the profiler's clock is half a microsecond ahead: the operator ends after its step seems to
    inside = [(12.0, 15.5), (17.0, 18.0)]
    assert placed_steps([1.5, 3.5, 4.0], 10.0, (10.0, 20.0), inside) == [(10, 11.5), (11.5, 15.5), (15.5, 19)]


def event(name: str, ts: float, dur: float, tid: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {}}


STEP = {"name": "daceml.kernel: Add", "kind": "kernel", "kernel": "k_1", "layers": ["fc"], "nodes": []}


def call(program: int, start_us: int, end_us: int, thread: int = 7, steps: int = 1) -> LoggedCall:
    return LoggedCall(
        program=program, thread=thread, start_ns=1_000_000 + 1000 * start_us,
        end_ns=1_000_000 + 1000 * end_us, step_us=(2.0,) * steps,
    )  # fmt: skip


def test_each_call_finds_its_operator_by_thread_and_time():
    events = [
        event("daceml::call", 10, 8),
        event("daceml::call_held", 30, 8),
        event("daceml::call", 30, 9, 8),
    ]
    programs = {1: {"steps": [STEP]}, 2: {"steps": [STEP]}}
    calls = [call(1, 12, 14), call(2, 32, 34), call(2, 33, 35, thread=8)]
    found, missing = kernel_events(events, calls, programs, base_ns=1_000_000)
    assert [(e["tid"], e["ts"], e["dur"], e["args"]["program"]) for e in found] == [
        (7, 12, 2, 1),
        (7, 32, 2, 2),
        (8, 33, 2, 2),
    ]
    assert missing == 0


def test_calls_that_nobody_can_place_are_counted():
    programs = {1: {"steps": [STEP]}}
    calls = [call(1, 90, 92), call(2, 12, 14), call(1, 12, 14, thread=9), call(1, 12, 14, steps=2)]
    found, missing = kernel_events([event("daceml::call", 10, 8)], calls, programs, base_ns=1_000_000)
    assert (found, missing) == ([], 4)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.fc(x)))


def test_a_compiled_layer_of_a_model_shows_its_kernels():
    model = nn.Sequential(nn.Linear(32, 32), daceml.compile(Block()))
    x = torch.randn(16, 32)
    model(x).sum().backward()
    with daceml.profile(model, steps=2, warmup=1, unprofiled=0) as trace:
        for _ in range(3):
            model(x).sum().backward()
            trace.step()
    forward, backward = sorted(trace.header["programs"], key=lambda program: program["part"] != "forward")
    assert [(p["module"], p["part"]) for p in (forward, backward)] == [("1", "forward"), ("1", "backward")]
    assert trace.header["calls_without_kernels"] == 0
    for program, suffix in ((forward, ""), (backward, "Grad")):
        made_of = {(n["operator"], n["layer"]) for step in program["steps"] for n in step["nodes"]}
        assert {layer for _, layer in made_of} == {"1", "1.fc", "1.norm"}
        assert {(f"Tanh{suffix}", "1"), (f"LayerNormalization{suffix}", "1.norm")} <= made_of
        assert all(step["layers"] for step in program["steps"])

    events = [e for e in trace._there()["traceEvents"] if e.get("cat") == "cpu_op"]
    calls = [e for e in events if e["name"] in CALLS]
    kernels = [e for e in events if e["name"].startswith(PREFIX)]
    assert len(calls) == 4, "two steps of a forward and a backward call"
    assert len(kernels) == 2 * (len(forward["steps"]) + len(backward["steps"]))
    for around in calls:
        own = [e for e in kernels if around["ts"] <= e["ts"] and _end(e) <= _end(around) + 2e-3]
        assert len(own) in (len(forward["steps"]), len(backward["steps"]))
        assert 0 < sum(e["dur"] for e in own) <= around["dur"]
    # what torch's profiler saw within the programs lies within one step each
    for e in events:
        for kernel in kernels:
            apart = _end(e) <= kernel["ts"] + 2e-3 or e["ts"] >= _end(kernel) - 2e-3
            within = kernel["ts"] - 2e-3 <= e["ts"] and _end(e) <= _end(kernel) + 2e-3
            around = e["ts"] - 2e-3 <= kernel["ts"] and _end(kernel) <= _end(e) + 2e-3
            assert apart or within or around, (e["name"], kernel["name"])


def _end(event: dict[str, Any]) -> float:
    return event["ts"] + event["dur"]


def test_a_program_that_nobody_has_named_keeps_its_own_names():
    compiled = daceml.compile(Block(), backward=False)
    x = torch.randn(16, 32)
    compiled(x)
    with daceml.profile(None, steps=1, warmup=1, unprofiled=0) as trace:
        for _ in range(2):
            compiled(x)
            trace.step()
    (program,) = trace.header["programs"]
    assert (program["module"], program["part"]) == (None, None)
    assert {layer for step in program["steps"] for layer in step["layers"]} <= {"", "fc", "norm"}


def test_a_compiled_step_is_recorded_without_hooks():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    step = daceml.compile_step(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = torch.randn(4, 8), torch.randn(4, 2)
    step(x, y)
    with daceml.profile(None, steps=1, warmup=1, unprofiled=0) as trace:
        for _ in range(2):
            step(x, y)
            trace.step()
    (program,) = trace.header["programs"]
    assert trace.header["calls_without_kernels"] == 0
    assert {"model.0", "model.1", "loss"} <= {layer for s in program["steps"] for layer in s["layers"]}
