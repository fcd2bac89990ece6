"""The course: usual operators are measured once for a machine, and predictions are better for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from daceml.exploration import course
from daceml.exploration.library import Library
from daceml.exploration.subject import Subject
from daceml.exploration.variant import Variant


class Few(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * y


class Wrong(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise ValueError("there is no such operator here")


def test_a_course_is_measured_once_and_the_rest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    whole = (Variant(unoptimised=True),)
    monkeypatch.setattr(course, "COURSE", ((Wrong, False, whole), (Few, False, whole), (Few, True, whole)))
    with Library.of_this_machine(tmp_path) as library:
        library.measure_course()
        times = library.times()
        assert len(times) >= 3  # loops forward and backward
    assert "Wrong was left out" in caplog.text and "there is no such operator here" in caplog.text
    monkeypatch.setattr(course, "COURSE", None)  # nobody looks at it again
    with Library.of_this_machine(tmp_path) as library:
        library.measure_course()
        assert len(library.times()) == len(times)


def test_every_module_of_the_course_can_be_lowered():
    for kind, training, variants in course.COURSE:
        inputs = tuple(torch.randn(2, 48, 16, 80).requires_grad_(training) for _ in range(2))
        subject = Subject(kind().train(training), inputs, {}, training=training)
        assert all(subject.lower(variant).facts for variant in variants)
