"""Headers and libraries of CUDA, in folders as toolkits and NVIDIA's wheels lay them out."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from daceml.codegen_cuda import cuda_files
from daceml.codegen_cuda.cuda_files import header_folders, toolkit_folder, wheel_folders
from daceml.codegen_cuda.toolchain import CudaToolchain
from daceml.errors import EnvironmentProblem
from tests.codegen_cuda.answering_nvcc import nvcc_of
from tests.support.golden import raises


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own, whose wheels lie in the folder given."""
    home = tmp_path / "site-packages"
    (home / "nvidia").mkdir(parents=True)
    monkeypatch.setattr(cuda_files, "_SYSTEM", ())
    monkeypatch.setattr(cuda_files, "find_spec", lambda name: PathFinder.find_spec(name, [str(home)]))
    return home / "nvidia"


def tools_of(folder: Path, release: str) -> CudaToolchain:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    major, minor = map(int, release.split("."))
    return CudaToolchain(nvcc=str(nvcc_of(folder / "bin", release)), release=(major, minor), architecture=90)


def test_wheels_of_cuda_13_are_a_toolkit(wheels: Path):
    files(wheels / "cu13", "include/cuda_runtime.h", "include/cccl/nv/target", "include/cublas_v2.h")
    files(wheels / "cu13", "lib/libcudart.so.13")
    files(wheels / "cudnn", "include/cudnn.h")
    tools = tools_of(wheels / "cu13", "13.0")
    assert tools.includes == tuple(
        wheels / place for place in ("cu13/include", "cu13/include/cccl", "cudnn/include")
    )
    assert tools.cudart == wheels / "cu13" / "lib" / "libcudart.so.13"


def test_parts_of_cuda_12_have_folders_of_their_own(tmp_path: Path, wheels: Path):
    files(tmp_path / "cuda-12.6", "include/cuda_runtime.h", "include/nv/target", "lib64/libcudart.so.12")
    files(wheels, "cublas/include/cublas_v2.h", "cuda_runtime/lib/libcudart.so.12")
    files(wheels, "cu13/lib/libcudart.so.13", "cu13/include/cudnn.h")
    tools = tools_of(tmp_path / "cuda-12.6", "12.6")
    # headers fit the compiler, and the library is the one that torch loads
    assert tools.includes == (tmp_path / "cuda-12.6" / "include", wheels / "cublas" / "include")
    assert tools.cudart == wheels / "cuda_runtime" / "lib" / "libcudart.so.12"
    assert header_folders(tools.nvcc, 12)["cudnn.h"] is None


def test_a_toolkit_alone(tmp_path: Path, wheels: Path):
    files(tmp_path / "cuda", "targets/x86_64-linux/include/cuda_runtime.h")
    files(tmp_path / "cuda", "targets/x86_64-linux/lib/libcudart.so.13")
    tools = tools_of(tmp_path / "cuda", "13.0")
    assert tools.includes == (tmp_path / "cuda" / "targets" / "x86_64-linux" / "include",)
    assert tools.cudart.parent == tmp_path / "cuda" / "targets" / "x86_64-linux" / "lib"
    assert wheel_folders(13) == ()


def test_a_runtime_of_another_release_does_not_count(tmp_path: Path, wheels: Path):
    files(wheels, "cuda_runtime/lib/libcudart.so.12")
    tools = tools_of(tmp_path / "cuda", "13.0")
    with raises(EnvironmentProblem, "libcudart.so.13", tools.nvcc, "pip install nvidia-cuda-runtime,"):
        _ = tools.cudart


def test_the_toolkit_is_where_the_compiler_says(tmp_path: Path):
    """What is on PATH may be a script that runs a compiler elsewhere."""
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    real = nvcc_of(tmp_path / "cuda" / "bin", "13.0")
    script = tmp_path / "nvcc"
    script.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    script.chmod(0o755)
    assert toolkit_folder(str(script)) == tmp_path / "cuda"
    silent = tmp_path / "silent" / "bin" / "nvcc"
    silent.parent.mkdir(parents=True)
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    assert toolkit_folder(str(silent)) == tmp_path / "silent"
