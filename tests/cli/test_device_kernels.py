"""`daceml compile --device-kernels`: what is written where a CUDA compiler is, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from daceml.cli.main import app
from daceml.codegen_cuda.device_objects import cuda_object
from daceml.codegen_cuda.toolchain import find_nvcc
from daceml.config import config
from daceml.deployment.device_kernels import compile_device_kernels
from daceml.module.module import compile_module
from daceml.toolchain.cache import Cache
from tests.support.golden import golden

MODEL = """
from torch import nn
def small():
    return nn.Sequential(nn.Linear(6, 40), nn.GELU())
"""
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["compile", *arguments, "--quiet"])
    return done.exit_code, done.output


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path}/net.py:small"


@needs_nvcc
def test_a_folder_is_a_cache_with_the_kernels_of_both_passes(model: str, tmp_path: Path):
    folder = tmp_path / "kernels"
    code, said = run(
        model, "-i", "3,6", "--device-kernels", str(folder), "--arch", "80", "--backward", "--json", "-"
    )
    assert code == 0, said
    made = json.loads(said)
    entries = list((folder / "kernels").glob("*/kernel.o"))
    assert made["architecture"] == 80
    assert made["kernels"] == len(entries) - 1 >= 2
    assert all(Cache(folder).find("kernels", entry.parent.name) is not None for entry in entries)
    assert all("sm_80" in entry.read_bytes().decode("latin1") for entry in entries)
    code, said = run(model, "-i", "3,6", "--device-kernels", str(folder), "--arch", "80")
    assert code == 0
    assert f"DACEML_CACHE={folder}" in said
    assert len(list((folder / "kernels").glob("*/kernel.o"))) <= len(entries) + 1


@needs_nvcc
def test_kernels_are_those_that_a_device_of_that_kind_asks_for(tmp_path: Path):
    session = compile_module(nn.Tanh(), backward=False).session
    with torch.no_grad():
        compile_device_kernels(session, (torch.randn(9, 70),), {}, tmp_path, architecture=90)
    (kernel,) = [k for k in (tmp_path / "kernels").glob("*/kernel.cu") if "Tanh" in k.read_text()]
    made = cuda_object(kernel.read_text(), Cache(config().cache_folder), 90)
    assert made.parent.name == kernel.parent.name


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (["--arch", "90"], ["--arch and --backward", "--device-kernels"]),
        (["--device-kernels", "folder", "--dynamic"], ["--dynamic", "--device-kernels"]),
    ],
)
def test_what_does_not_go_together_is_refused(model: str, more: list[str], facts: list[str]):
    code, said = run(model, "-i", "3,6", *more)
    assert (code, said) == (2, golden())
    assert all(fact in said for fact in facts)
