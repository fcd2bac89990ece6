"""nvcc: where it is found, and what is refused; and our headers under it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from daceml.codegen_cuda import toolchain
from daceml.codegen_cuda.kernel_facts import load_facts
from daceml.codegen_cuda.toolchain import (
    CudaToolchain,
    architectures,
    chosen_architecture,
    cuda_toolchain,
    device_architecture,
    find_nvcc,
    locate_nvcc,
    nvtx_folder,
)
from daceml.config import Config
from daceml.errors import BuildError, EnvironmentProblem
from daceml.toolchain.cxx import include_folder
from tests.codegen_cuda.answering_nvcc import nvcc_of
from tests.codegen_cuda.emulation.kernels import KERNELS
from tests.support.golden import raises
from tests.support.sampling import sampled


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch):
    """Sets the options of the process, whose torch has no CUDA that a compiler would have to agree with."""
    monkeypatch.setattr(torch.version, "cuda", None)

    def chosen(**values) -> None:
        monkeypatch.setattr(toolchain, "config", lambda: Config(**values))
        cuda_toolchain.cache_clear()

    yield chosen
    cuda_toolchain.cache_clear()


def test_the_named_compiler_comes_before_all_others(tmp_path: Path, options):
    options(nvcc=str(nvcc_of(tmp_path, "12.4")), cuda_arch=80)
    assert cuda_toolchain() == CudaToolchain(nvcc=str(tmp_path / "nvcc"), release=(12, 4), architecture=80)


def test_headers_of_nvtx_lie_beside_nvcc_or_in_another_toolkit(
    tmp_path: Path, options, monkeypatch: pytest.MonkeyPatch
):
    folders = {name: tmp_path / name / "include" for name in ("beside", "home")}
    for folder in folders.values():
        (folder / "nvtx3").mkdir(parents=True)
        (folder / "nvtx3" / "nvToolsExt.h").touch()
    (tmp_path / "beside" / "bin").mkdir()
    options(nvcc=str(nvcc_of(tmp_path / "beside" / "bin", "13.0")))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert nvtx_folder() == folders["beside"]
    (folders["beside"] / "nvtx3" / "nvToolsExt.h").unlink()
    assert nvtx_folder() == folders["home"]
    monkeypatch.setattr(toolchain, "_candidates", lambda: [])
    assert nvtx_folder() is None


def test_cuda_home_counts_where_path_has_none(tmp_path: Path, options, monkeypatch: pytest.MonkeyPatch):
    options(cuda_arch=90)
    (tmp_path / "bin").mkdir()
    nvcc_of(tmp_path / "bin", "13.0")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_nvcc() == str(tmp_path / "bin" / "nvcc")


def test_without_a_compiler_the_message_says_where_it_was_looked_for(options):
    options(nvcc="/nowhere/nvcc")
    with raises(EnvironmentProblem, "nvcc", "CUDA_HOME", "/usr/local/cuda", "DACEML_NVCC"):
        cuda_toolchain()


@pytest.mark.parametrize(
    ("release", "architecture", "facts"),
    [
        ("11.8", 90, ["CUDA 11.8", "C++20", "12.0", "DACEML_NVCC"]),
        ("13.0", 70, ["CUDA 13.0", "compute capability 7.0"]),
        ("12.6", 61, ["CUDA 12.6", "compute capability 6.1"]),
    ],
)
def test_what_cannot_be_compiled_for(
    tmp_path: Path, options, release: str, architecture: int, facts: list[str]
):
    options(nvcc=str(nvcc_of(tmp_path, release)), cuda_arch=architecture)
    with raises(EnvironmentProblem, *facts):
        cuda_toolchain()


def test_the_release_of_the_compiler_is_that_of_torch(
    tmp_path: Path, options, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    options(nvcc=str(nvcc_of(tmp_path, "12.6")), cuda_arch=90)
    with raises(EnvironmentProblem, "CUDA 12.6", "torch", "CUDA 13.0", "DACEML_NVCC"):
        cuda_toolchain()
    options(nvcc=str(nvcc_of(tmp_path, "13.2")), cuda_arch=90)
    assert cuda_toolchain().release == (13, 2)


def test_what_the_compiler_lists_can_be_compiled_for(tmp_path: Path, options):
    for release, architecture in (("12.6", 70), ("13.0", 120)):
        options(nvcc=str(nvcc_of(tmp_path, release)), cuda_arch=architecture)
        architectures.cache_clear()
        assert cuda_toolchain().architecture == architecture


def test_a_device_that_is_newer_than_the_compiler(tmp_path: Path, options):
    options(nvcc=str(nvcc_of(tmp_path, "12.6")), cuda_arch=100)
    with raises(
        EnvironmentProblem,
        "CUDA 12.6",
        "compute capability 10.0",
        "7.0, 7.2, 7.5, 8.0, 8.6, 8.9, 9.0",
        "DACEML_CUDA_ARCH",
    ):
        cuda_toolchain()


def test_nvcc_of_wheels_counts_where_no_toolkit_is(tmp_path: Path, options, monkeypatch: pytest.MonkeyPatch):
    options(cuda_arch=90)
    (tmp_path / "cu13" / "bin").mkdir(parents=True)
    nvcc = nvcc_of(tmp_path / "cu13" / "bin", "13.0")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(toolchain, "TOOLKIT", tmp_path / "none")
    monkeypatch.setattr(toolchain, "wheel_folders", lambda major: (tmp_path / f"cu{major}",))
    assert locate_nvcc() == (str(nvcc), "NVIDIA's wheels")


def test_a_compiler_that_says_no_version(tmp_path: Path, options):
    options(nvcc=str(nvcc_of(tmp_path, "unknown")), cuda_arch=90)
    with raises(EnvironmentProblem, "version", "release unknown, Vunknown.1", "DACEML_NVCC"):
        cuda_toolchain()


needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")


@needs_nvcc
@pytest.mark.parametrize("architecture", sampled([80, 90, 100], 90))
def test_the_emulated_kernels_are_cuda(tmp_path: Path, architecture: int):
    tools = CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=architecture)
    names = ("device", "collectives", "vectors")
    text = "".join(f"#include <daceml/{name}.h>\n" for name in names) + KERNELS
    facts = tools.compile(text, tmp_path, includes=(include_folder(),))
    assert len(facts) == KERNELS.count("__global__")
    assert all(one.registers > 0 and one.spill_bytes == 0 for one in facts.values())
    assert max(one.shared_bytes for one in facts.values()) == 512
    kept = load_facts(tmp_path / "kernel.o")
    assert kept is not None and kept.architecture == architecture and kept.kernels == facts


@needs_nvcc
def test_what_nvcc_refuses_is_said(tmp_path: Path):
    tools = CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=90)
    with raises(BuildError, "nvcc", "undeclared", exact=False):
        tools.compile("__global__ void f() { undeclared(); }", tmp_path)


def test_code_is_for_the_device_of_the_call(options, monkeypatch: pytest.MonkeyPatch):
    """Of several devices: not for the current one, which is another in each thread."""
    options()
    capabilities = {0: (9, 0), 1: (8, 6), None: (9, 0)}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda device: capabilities[getattr(device, "index", None)]
    )
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    assert [device_architecture(one) for one in (None, first, second)] == [90, 90, 86]
    assert chosen_architecture(second) == (86, "the device")
