"""What only a process of its own shows: the libraries that it loads, and what its tool is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daceml.codegen_cuda.toolchain import nvtx_folder

SCRIPT = """
import sys
import torch
from pathlib import Path
from tests.codegen.range_models import add
from tests.support.small_networks import build, elementwise
model, ones = add(), torch.ones(2)
model(ones, ones)
print(model(ones, ones).tolist())
build(elementwise(["_out = _a"], (64, 512)), Path(sys.argv[1]))([torch.zeros(64, 512)])
torch.mm(torch.ones(64, 64), torch.ones(64, 64))
libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
print(sum(any(name in library for name in ("libgomp", "libiomp", "libomp")) for library in libraries))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines of a process that runs programs in loops of their own and products of torch's.

    Where headers of NVTX are, it has a tool that prints what it is told of ranges.
    """
    folder, headers, environment = tmp_path_factory.mktemp("fresh"), nvtx_folder(), dict(os.environ)
    if headers is not None:
        tool, source = folder / "tool.so", Path(__file__).with_name("nvtx_tool.c")
        subprocess.run(["cc", "-shared", "-fPIC", f"-I{headers}", source, "-o", tool], check=True)
        environment["NVTX_INJECTION64_PATH"] = str(tool)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], cwd=Path(__file__).parents[2], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_one_openmp_runtime_is_loaded(said: list[str]):
    assert said[-1] == "1"


@pytest.mark.skipif(
    nvtx_folder() is None, reason="no headers of NVTX are here: neither a CUDA toolkit nor NVIDIA's wheels"
)
def test_tools_that_read_nvtx_are_told(said: list[str]):
    one = ["push daceml.step: Add", "pop"]
    assert said[:-1] == ["domain daceml", *one, *one, "[2.0, 2.0]"]
