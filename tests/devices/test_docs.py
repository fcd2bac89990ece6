"""docs/devices.md: what it shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daceml.devices.catalogue import find_device
from daceml.devices.device_file import device_of
from daceml.devices.roofline import Work, expected, lower_bound
from daceml.report.device_text import device_lines

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def test_the_device_of_ones_own():
    mine = device_of(block("toml"), where="docs/devices.md")
    assert (mine.name, mine.compute_capability, len(list(mine.figures()))) == ("My card", 89, 3)
    assert mine.multiprocessors is not None
    assert mine.multiprocessors.source == "the vendor's data sheet, page 2"


def test_the_roofline():
    work = Work(flops=2 * 4096**3, bytes_moved=3 * 2 * 4096**2, arithmetic="bfloat16")
    bound, usual = lower_bound(work, find_device("A100")), expected(work, find_device("A100"))
    said = [float(number) for number in re.findall(r"# ([0-9.]+): by", block("python"))]
    assert said == pytest.approx([bound.duration_us, usual.duration_us], abs=0.05)


def test_the_output():
    lines = list(device_lines(find_device("V100")))
    shown = PAGE[PAGE.index("V100-SXM2-16GB (NVIDIA") :].split("\n```")[0].splitlines()
    assert shown[-1] == "  …"
    assert lines[: len(shown) - 1] == shown[:-1]
