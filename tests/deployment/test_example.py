"""The example program says what is wrong with its files, instead of reading past their ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.deployment.exporting import Exported
from tests.support.golden import golden
from tests.support.sampling import sampled


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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An example program of fixed sizes."""
    inputs, folder = (torch.ones(4, 6), torch.ones(4, 6)), tmp_path_factory.mktemp("fixed") / "made"
    return _compiled(daceml.export(Sum().eval(), *inputs, to=folder))


@pytest.fixture(scope="module")
def open_sum(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    inputs, folder = (torch.ones(4, 6), torch.ones(4, 6)), tmp_path_factory.mktemp("open") / "made"
    return daceml.export(Sum().eval(), *inputs, to=folder, dynamic=True)


def test_files_are_checked(place: Path):
    (place / "x").write_bytes(torch.ones(24).numpy().tobytes())
    (place / "short").write_bytes(bytes(95))
    (place / "long").write_bytes(bytes(97))
    for files, facts in (
        (("x", "none"), ("none", "y")),
        (("short", "x"), ("short", "95", "x", "96")),
        (("x", "long"), ("long", "97", "y", "96")),
    ):
        code, said = _said(place, *files, "out")
        assert (code, said) == (2, golden())
        assert all(fact in said for fact in facts)
    assert not (place / "out").exists()
    code, said = _said(place, "x", "x", "no/out")
    assert (code, said) == (1, golden())
    assert "no/out" in said
    assert _said(place, "x", "x", "out") == (0, "")
    assert torch.frombuffer(bytearray((place / "out").read_bytes()), dtype=torch.float32).tolist() == [2] * 24


def test_one_library_takes_all_sizes(open_sum: Exported):
    loaded = daceml.load(open_sum.folder)
    for shape in ((4, 6), (9, 2), (300, 700)):
        x, y = torch.randn(shape), torch.randn(shape)
        torch.testing.assert_close(loaded(x, y), x + y)
    assert "?" not in (open_sum.folder / "model.h").read_text()


def test_open_sizes_stand_behind_the_files(open_sum: Exported):
    place = _compiled(open_sum)
    (place / "x").write_bytes(torch.ones(24).numpy().tobytes())
    code, said = _said(place, "x", "x:3,8", "out")
    assert (code, said) == (2, golden())
    assert "of x " in said and "x:N,N" in said
    for wrong in ("x:3", "x:3,8,1", "x:3,-8", "x:3,a", "x:", "x:3;8"):
        code, said = _said(place, "x:3,8", wrong, "out")
        assert (code, said) == (2, golden())
        assert "of y " in said and f"{wrong}:N,N" in said
    code, said = _said(place, "x:3,8", "x:4,8", "out")
    assert (code, said) == (2, golden())
    assert all(fact in said for fact in ("x", "96", "y", "128"))
    assert _said(place, "x:3,8", "x:3,8", "out") == (0, "")
    assert daceml.load(place)(torch.ones(3, 8), torch.ones(3, 8)).shape == (3, 8)  # nothing was edited


def test_a_word_too_few_is_told(place: Path):
    code, said = _said(place, "x", "out")
    assert (code, said) == (2, golden())
    assert all(fact in said for fact in ("example weights.bin x y ", "2 inputs", "1 result"))


@pytest.mark.parametrize("dynamic", sampled([False, True], True))
def test_a_model_without_tensors_as_inputs_is_an_example_too(dynamic: bool, tmp_path: Path):
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("value", torch.arange(3.0))

        def forward(self) -> torch.Tensor:
            return self.value * 2

    place = _compiled(daceml.export(Constant().eval(), to=tmp_path / "made", dynamic=dynamic))
    assert _said(place, "out") == (0, "")
