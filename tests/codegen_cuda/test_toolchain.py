"""nvcc: where it is found, what is refused, what it says of kernels; and our headers under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.codegen_cuda import toolchain
from daceml.codegen_cuda.toolchain import CudaToolchain, KernelFacts, cuda_toolchain, find_nvcc, kernel_facts
from daceml.config import Config
from daceml.errors import BuildError, EnvironmentProblem
from daceml.runtime.toolchain import include_folder
from tests.codegen_cuda.emulation.test_emulator import KERNELS

SAID = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4rowsPKf' for 'sm_90'
ptxas info    : Function properties for _Z4rowsPKf
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 24 bytes smem, 376 bytes cmem[0]
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_90'
ptxas info    : Function properties for _Z3addPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, 360 bytes cmem[0]
ptxas info    : Compile time = 1617.338 ms
"""


def test_what_the_assembler_says_of_each_kernel():
    assert kernel_facts(SAID) == {
        "_Z4rowsPKf": KernelFacts(registers=30, shared_bytes=24, stack_bytes=16, spill_bytes=20),
        "_Z3addPf": KernelFacts(registers=12),
    }


def nvcc_of(folder: Path, release: str) -> Path:
    fake = folder / "nvcc"
    fake.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    fake.chmod(0o755)
    return fake


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch):
    def chosen(**values) -> None:
        monkeypatch.setattr(toolchain, "config", lambda: Config(**values))
        cuda_toolchain.cache_clear()

    yield chosen
    cuda_toolchain.cache_clear()


def test_the_named_compiler_comes_before_all_others(tmp_path: Path, options):
    options(nvcc=str(nvcc_of(tmp_path, "12.4")), cuda_arch=80)
    assert cuda_toolchain() == CudaToolchain(nvcc=str(tmp_path / "nvcc"), release=(12, 4), architecture=80)


def test_cuda_home_counts_where_path_has_none(tmp_path: Path, options, monkeypatch: pytest.MonkeyPatch):
    options(cuda_arch=90)
    (tmp_path / "bin").mkdir()
    nvcc_of(tmp_path / "bin", "13.0")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_nvcc() == str(tmp_path / "bin" / "nvcc")


def test_without_a_compiler_the_message_says_where_it_was_looked_for(options):
    options(nvcc="/nowhere/nvcc")
    with pytest.raises(EnvironmentProblem, match="there is no CUDA compiler"):
        cuda_toolchain()


@pytest.mark.parametrize(
    ("release", "architecture", "what"),
    [
        ("11.8", 90, "CUDA 11.8 is too old"),
        ("13.0", 70, "CUDA 13.0 makes no code for compute capability 7.0"),
        ("12.6", 61, "CUDA 12.6 makes no code for compute capability 6.1"),
    ],
)
def test_what_cannot_be_compiled_for(tmp_path: Path, options, release: str, architecture: int, what: str):
    options(nvcc=str(nvcc_of(tmp_path, release)), cuda_arch=architecture)
    with pytest.raises(EnvironmentProblem, match=what):
        cuda_toolchain()


def test_a_compiler_that_says_no_version(tmp_path: Path, options):
    options(nvcc=str(nvcc_of(tmp_path, "unknown")), cuda_arch=90)
    with pytest.raises(EnvironmentProblem, match="does not say its version"):
        cuda_toolchain()


needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")


@needs_nvcc
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_the_emulated_kernels_are_cuda(tmp_path: Path, architecture: int):
    tools = CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=architecture)
    names = ("device", "collectives", "vectors")
    text = "".join(f"#include <daceml/{name}.h>\n" for name in names) + KERNELS
    facts = tools.compile(text, tmp_path, includes=(include_folder(),))
    assert len(facts) == KERNELS.count("__global__")
    assert all(one.registers > 0 and one.spill_bytes == 0 for one in facts.values())
    assert max(one.shared_bytes for one in facts.values()) == 512


@needs_nvcc
def test_what_nvcc_refuses_is_said(tmp_path: Path):
    tools = CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=90)
    with pytest.raises(BuildError, match="nvcc failed") as caught:
        tools.compile("__global__ void f() { undeclared(); }", tmp_path)
    assert "undeclared" in caught.value.why
