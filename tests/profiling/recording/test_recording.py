"""A run that is recorded, from the user's side."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

import daceml
from daceml.errors import ConfigurationError, RecordingError
from daceml.profiling.recording.recording import Recording
from tests.support.golden import raises


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))


def run(trace: Recording, model: nn.Module, steps: int, optimizer: Any = None) -> None:
    loader = torch.utils.data.DataLoader(torch.randn(4 * steps, 8), batch_size=4)
    for batch in loader:
        if optimizer is not None:
            optimizer.zero_grad()
        model(batch).sum().backward()
        if optimizer is not None:
            optimizer.step()
        trace.step()


def events(trace: Recording) -> list[dict[str, Any]]:
    return trace._there()["traceEvents"]


def hooks(model: nn.Module) -> int:
    own = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return own + sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())


def test_a_training_run_is_recorded(tmp_path: Path):
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    with daceml.profile(model, optimizer, steps=3, warmup=2, unprofiled=2) as trace:
        assert not trace.done
        run(trace, model, steps=11, optimizer=optimizer)
        assert trace.done
    assert trace.path is None
    trace.save(tmp_path / "run.json.gz")
    assert trace.path == tmp_path / "run.json.gz"
    file = json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))
    assert "host_name" not in file and "traceName" not in file

    seen = Counter(event["name"] for event in file["traceEvents"])
    for name in ("ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"):
        assert seen[name] == 1
    assert not {"ProfilerStep#1", "ProfilerStep#5"} & set(seen)
    for name in ("Model", "body", "head"):
        assert seen[f"daceml.layer: {name}"] == 3
    for name in ("Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad"):
        assert seen[name] == 3
    assert any("DataLoader" in name and count == 3 for name, count in seen.items())
    # backward operators are led back to their layers by autograd's numbers
    forward = {e["args"]["Sequence number"] for e in file["traceEvents"] if _is(e, "aten::addmm")}
    backward = {e["args"]["Sequence number"] for e in file["traceEvents"] if _is(e, "autograd::engine::eval")}
    assert forward and forward <= backward

    header = file["daceml"]
    assert (header["model"], header["steps"], header["format"]) == ("Model", 3, 1)
    assert [layer["name"] for layer in header["layers"]] == ["Model", "body", "head"]
    ready = {g["name"]: g["ready"] for g in header["gradients"]}
    assert max(ready["head.weight"], ready["head.bias"]) < min(ready["body.weight"], ready["body.bias"])
    assert header["buckets"]["source"] == "rule"
    assert header["optimizer"]["name"] == "Adam"
    times = header["times"]
    assert len(times["profiled_us"]) == 3 and len(times["unprofiled_us"]) == 4
    assert times["inflation"] > 0 and min(times["profiled_us"] + times["unprofiled_us"]) > 0
    assert header["machine"]["torch"] == torch.__version__
    assert header["machine"]["threads"] == torch.get_num_threads()
    assert header["programs"] == []
    assert hooks(model) == 0


def _is(event: dict[str, Any], name: str) -> bool:
    return event["name"].startswith(name) and "Sequence number" in event.get("args", {})


def test_what_was_recorded_is_read_back():
    model = Model()
    with daceml.profile(model, steps=2, warmup=1, unprofiled=0) as trace:
        run(trace, model, 3)
    found = trace.trace
    assert found is trace.trace
    names = [found.name_of(event) for event in range(len(found.events))]
    assert [name for name in names if name.startswith("ProfilerStep")] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert names.count("daceml.layer: head") == 2
    assert found.header["daceml"]["model"] == "Model"


def test_a_path_is_saved_at_the_end(tmp_path: Path):
    model = Model()
    with daceml.profile(model, steps=1, warmup=1, unprofiled=0, path=tmp_path / "run.json") as trace:
        run(trace, model, 2)
    assert trace.path == tmp_path / "run.json"
    assert json.loads(trace.path.read_text())["daceml"]["times"]["unprofiled_us"] == []
    assert trace.header["times"]["inflation"] is None


def test_a_run_that_ends_early_keeps_its_complete_steps():
    model = Model()
    with daceml.profile(model, steps=5, warmup=1, unprofiled=1) as trace:
        run(trace, model, 2 + 1 + 2)
        model(torch.randn(4, 8))  # half a step
    assert trace.header["steps"] == 2
    steps = [e["name"] for e in events(trace) if e["name"].startswith("ProfilerStep")]
    assert steps == ["ProfilerStep#1", "ProfilerStep#2"]


def test_memory_is_recorded_where_it_is_asked_for():
    model = Model()
    with daceml.profile(model, steps=1, warmup=1, unprofiled=0, memory=True) as trace:
        run(trace, model, 2)
    assert any(event["name"] == "[memory]" for event in events(trace))


def test_too_few_steps_are_refused_with_their_number():
    model = Model()
    with (
        raises(RecordingError, "5 steps", "number 6", "step()", "unprofiled=0", "warmup=1"),
        daceml.profile(model, steps=3, warmup=2, unprofiled=2) as trace,
    ):
        run(trace, model, 5)
    assert hooks(model) == 0


def test_no_step_at_all_is_refused():
    with raises(RecordingError, "0 steps", "step()"), daceml.profile(Model()):
        pass


@pytest.mark.parametrize("steps", [0, 2, 3, 4, 6])
def test_an_error_passes_and_leaves_nothing_behind(steps: int, tmp_path: Path):
    model = Model()
    path = tmp_path / "run.json"
    trace = daceml.profile(model, steps=1, warmup=1, unprofiled=1, path=path)

    def fail() -> None:
        with trace:
            if steps:
                run(trace, model, steps)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert hooks(model) == 0
    assert list(tmp_path.iterdir()) == []
    with raises(RecordingError, "trace", "`with`"):
        trace.save(path)
    # and the next one is not in its way
    with daceml.profile(model, steps=1, warmup=1, unprofiled=0) as again:
        run(again, model, 2)
    assert again.header["steps"] == 1


def test_one_recording_at_a_time():
    with (
        raises(RecordingError, "0 steps", "step()"),
        daceml.profile(Model()),
        raises(RecordingError, "another recording", "process"),
        daceml.profile(Model()),
    ):
        pass
    with (
        torch_profile(activities=[ProfilerActivity.CPU]),
        raises(RecordingError, "torch", "process"),
        daceml.profile(Model()),
    ):
        pass


def test_a_step_outside_is_refused():
    with raises(RecordingError, "step()", "`with daceml.profile(...)`"):
        daceml.profile(Model()).step()


def test_a_model_without_parameters_is_recorded_and_so_is_none_at_all():
    for model in (nn.ReLU(), None):
        with daceml.profile(model, steps=1, warmup=1, unprofiled=0) as trace:
            for _ in range(2):
                torch.relu(torch.randn(3))
                trace.step()
        assert trace.header["gradients"] == []
    assert trace.header["layers"] == []


def test_what_is_no_module_is_refused():
    with raises(ConfigurationError, "daceml.profile", "Recorder", "str", "nn.Module", "None"):
        daceml.profile("model")  # pyright: ignore[reportCallIssue, reportArgumentType]
