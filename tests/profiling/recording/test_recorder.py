"""A function that is one step, recorded by decoration."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError, RecordingError
from tests.support.golden import raises


def test_each_call_is_a_step_and_the_trace_writes_itself(tmp_path: Path):
    model = nn.Linear(4, 4)
    recorder = daceml.Recorder(tmp_path / "traces", model, steps=2, warmup=1, unprofiled=1)

    @daceml.profile(recorder)
    def train_step(batch: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        """One step."""
        loss = model(batch).sum() * scale
        loss.backward()
        return loss

    assert (train_step.__name__, train_step.__doc__) == ("train_step", "One step.")
    x = torch.randn(2, 4)
    for _ in range(6):
        train_step(x)
    assert recorder.paths == [], "one step is to be timed yet"
    assert train_step(x, scale=2.0) == 2 * train_step(x)
    assert recorder.paths == [tmp_path / "traces" / "train_step.json.gz"]
    header = json.loads(gzip.decompress(recorder.paths[0].read_bytes()))["daceml"]
    assert header["steps"] == 2 and [layer["name"] for layer in header["layers"]] == ["Linear"]
    recorder.close()


def test_a_call_that_raises_ends_the_recording_and_the_next_begins_another(tmp_path: Path):
    recorder = daceml.Recorder(tmp_path, steps=1, warmup=1, unprofiled=0)

    @daceml.profile(recorder)
    def step(fails: bool) -> None:
        if fails:
            raise ZeroDivisionError

    step(False)
    with pytest.raises(ZeroDivisionError):
        step(True)
    step(False)
    assert recorder.paths == []
    step(False)
    assert recorder.paths == [tmp_path / "step.json.gz"]


def test_closing_writes_what_there_is(tmp_path: Path):
    recorder = daceml.Recorder(tmp_path, steps=5, warmup=1, unprofiled=0)
    step = daceml.profile(recorder)(lambda: torch.relu(torch.randn(2)))
    step.__name__ = "relu"
    for _ in range(3):
        step()
    recorder.close()
    (path,) = recorder.paths
    assert json.loads(gzip.decompress(path.read_bytes()))["daceml"]["steps"] == 2


def test_closing_too_early_is_refused(tmp_path: Path):
    recorder = daceml.Recorder(tmp_path)
    daceml.profile(recorder)(torch.relu)(torch.randn(2))
    with raises(RecordingError, "1 steps", "step()"):
        recorder.close()
    recorder.close()


def test_numbers_that_cannot_be_are_refused(tmp_path: Path):
    with raises(ConfigurationError, "steps=0", "steps=1"):
        daceml.Recorder(tmp_path, steps=0)
