"""The example program says what is wrong with its files, instead of reading past their ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.deployment.exporting import Exported


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def _compiled(made: Exported) -> Path:
    place = made.folder
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "example.cpp", "-L.", "-lmodel", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*command, "-o", "example"], check=True, cwd=place)
    return place


def _said(place: Path, *files: str) -> tuple[int, str]:
    words = ["./example", "weights.bin", *files]
    run = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    return run.returncode, run.stderr.strip()


def test_files_are_checked(tmp_path: Path):
    place = _compiled(daceml.export(Sum().eval(), torch.ones(4, 6), torch.ones(4, 6), to=tmp_path / "made"))
    (place / "x").write_bytes(torch.ones(24).numpy().tobytes())
    (place / "short").write_bytes(bytes(95))
    (place / "long").write_bytes(bytes(97))
    assert _said(place, "x", "none", "out") == (2, "none, for y, cannot be opened")
    assert _said(place, "short", "x", "out") == (2, "short has 95 bytes, and x has 96")
    assert _said(place, "x", "long", "out") == (2, "long has 97 bytes, and y has 96")
    assert not (place / "out").exists()
    assert _said(place, "x", "x", "no/out") == (1, "no/out cannot be written")
    assert _said(place, "x", "x", "out") == (0, "")
    assert torch.frombuffer(bytearray((place / "out").read_bytes()), dtype=torch.float32).tolist() == [2] * 24


def test_open_sizes_stand_behind_the_files(tmp_path: Path):
    made = daceml.export(Sum().eval(), torch.ones(4, 6), torch.ones(4, 6), to=tmp_path / "made", dynamic=True)
    place = _compiled(made)
    (place / "x").write_bytes(torch.ones(24).numpy().tobytes())
    asked = "sizes of {} are open: write them behind the file, {}:N,N"
    assert _said(place, "x", "x:3,8", "out") == (2, asked.format("x", "x"))
    for wrong in ("x:3", "x:3,8,1", "x:3,-8", "x:3,a", "x:", "x:3;8"):
        assert _said(place, "x:3,8", wrong, "out") == (2, asked.format("y", wrong))
    assert _said(place, "x:3,8", "x:4,8", "out") == (2, "x has 96 bytes, and y has 128")
    assert _said(place, "x:3,8", "x:3,8", "out") == (0, "")
    assert daceml.load(made.folder)(torch.ones(3, 8), torch.ones(3, 8)).shape == (3, 8)  # nothing was edited


def test_a_word_too_few_is_told(tmp_path: Path):
    place = _compiled(daceml.export(Sum().eval(), torch.ones(4, 6), torch.ones(4, 6), to=tmp_path / "made"))
    code, said = _said(place, "x", "out")
    assert code == 2
    assert said.startswith("usage: example weights.bin x y ") and "files of 2 inputs and 1 result" in said


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_without_tensors_as_inputs_is_an_example_too(dynamic: bool, tmp_path: Path):
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("value", torch.arange(3.0))

        def forward(self) -> torch.Tensor:
            return self.value * 2

    place = _compiled(daceml.export(Constant().eval(), to=tmp_path / "made", dynamic=dynamic))
    assert _said(place, "out") == (0, "")
