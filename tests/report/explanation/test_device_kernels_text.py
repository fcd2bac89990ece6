"""Kernels of a device in the explanation: one row for equal launches, occupancy where it is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import daceml
from daceml.report.explanation.device_kernels_text import (
    device_kernels_text,
    headline,
    kernel_rows,
    launch_occupancy,
)
from daceml.runtime.records.kernel_facts import KernelFacts
from daceml.runtime.records.manifest import LaunchRecord, StepRecord
from daceml.text_tables import WIDTH
from daceml.transformations.standard import device_recipe
from tests.support.golden import golden

FACTS = KernelFacts(registers=40, shared_bytes=32, stack_bytes=8)
LAUNCH = LaunchRecord(
    function="Softmax_0", grid=("256*N", 1, 1), block=(256, 1, 1), blocks=4096, threads=256,
    shared_bytes=16, architecture=90, facts=FACTS,
)  # fmt: skip


def step(launch: LaunchRecord | None) -> StepRecord:
    return StepRecord(kind="kernel", label="Softmax", launch=launch)


def test_equal_launches_are_one_row():
    wider = replace(LAUNCH, block=(32, 8, 1))
    assert kernel_rows([step(LAUNCH), step(None), step(wider), step(LAUNCH)]) == [
        ("Softmax_0", "2", "256*N", "256", "40", "75 %", "registers", "48, 8, 0"),
        ("Softmax_0", "1", "256*N", "32 x 8", "40", "75 %", "registers", "48, 8, 0"),
    ]


def test_shared_memory_of_the_launch_counts():
    large = replace(LAUNCH, shared_bytes=100 << 10)
    found = launch_occupancy(large)
    assert found is not None and (found.blocks, found.limited_by) == (2, ("shared memory",))


def test_what_nobody_knows_is_left_empty():
    emulated = replace(LAUNCH, architecture=None, facts=None)
    assert kernel_rows([step(emulated)]) == [("Softmax_0", "1", "256*N", "256", "", "", "", "")]
    newer = replace(LAUNCH, architecture=130)
    assert kernel_rows([step(newer)])[0][4:] == ("40", "", "", "48, 8, 0")


def test_the_text_says_what_kernels_were_compiled_for():
    text = device_kernels_text([step(LAUNCH)])
    assert text == golden() and "9.0" in text.splitlines()[0]
    assert max(map(len, text.splitlines())) <= WIDTH
    assert device_kernels_text([step(None)]) == ""


@pytest.mark.parametrize("form", ["text", "html"])
def test_explain_shows_them(form: str):
    compiled = daceml.compile(nn.Softmax(-1), recipe=device_recipe(), backward=False)
    found = daceml.explain(compiled, torch.randn(40, 70))
    (launch,) = [one.launch for one in found.steps if one.launch is not None]
    shown = str(found) if form == "text" else found._repr_html_()
    first = headline(found.steps)
    assert first == golden() and "nvcc" in first and first in shown
    assert launch.function[:30] in shown and launch.grid == (10, 1, 1)
