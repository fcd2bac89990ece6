"""`daceml doctor` on machines with and without a CUDA compiler, a driver, and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from daceml.cli import device_checks
from daceml.cli.device_checks import check_cuda_compiler, check_devices, cuda_driver
from daceml.codegen_cuda import toolchain
from daceml.codegen_cuda.toolchain import cuda_toolchain, find_nvcc
from daceml.config import Config, config

# Compiles nothing, but says of the kernel what the assembler would
NVCC = """#!/bin/sh
case "$1" in
    --version) echo 'Cuda compilation tools, release {release}, V{release}.1' ;;
    --list-gpu-arch) printf 'compute_75\\ncompute_90\\n' ;;
    -dryrun) echo '#$ TOP={folder}/..' >&2 ;;
    *) touch kernel.o; {compiled} ;;
esac
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Describe the machine: its driver, nvcc, and torch."""

    def described(
        *,
        driver: tuple[int, int] | None = None,
        release: str = "13.0",
        compiled: str = "true",
        nvcc: str | None = None,
        architecture: int = 90,
        of_torch: str | None = None,
    ) -> str:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / "libcudart.so.13").touch()
        fake = tmp_path / "bin" / "nvcc"
        fake.write_text(NVCC.format(release=release, folder=tmp_path / "bin", compiled=compiled))
        fake.chmod(0o755)
        options = Config(nvcc=str(fake) if nvcc is None else nvcc, cuda_arch=architecture)
        monkeypatch.setattr(toolchain, "config", lambda: options)
        monkeypatch.setattr("daceml.config.config", lambda: options)
        monkeypatch.setattr(device_checks, "cuda_driver", lambda: driver)
        monkeypatch.setattr(torch.version, "cuda", of_torch)
        monkeypatch.setattr("daceml.codegen_cuda.cuda_files.wheel_folders", lambda major: ())
        cuda_toolchain.cache_clear()
        return str(fake)

    yield described
    cuda_toolchain.cache_clear()
    config.cache_clear()


def test_a_compiler_that_works(machine, tmp_path: Path):
    nvcc = machine()
    status, found, fix = check_cuda_compiler()
    assert (status, fix) == ("ok", "")
    assert found.startswith(
        f"{nvcc} (from DACEML_NVCC), CUDA 13.0, for compute capability 9.0 (DACEML_CUDA_ARCH),"
        f" runtime {tmp_path / 'lib' / 'libcudart.so.13'}"
    )


def test_a_machine_without_compiler_and_device_is_fine(machine, monkeypatch: pytest.MonkeyPatch):
    machine(nvcc="")
    monkeypatch.setattr(toolchain, "locate_nvcc", lambda: None)
    assert check_cuda_compiler() == ("ok", "none; no device is here that would need one", "")
    assert check_devices() == ("ok", "none: torch is built for the CPU", "")


def test_a_device_without_a_compiler(machine, monkeypatch: pytest.MonkeyPatch):
    machine(nvcc="", driver=(13, 0), of_torch="13.0")
    monkeypatch.setattr(toolchain, "locate_nvcc", lambda: None)
    status, found, fix = check_cuda_compiler()
    assert (status, found) == ("fail", "none: kernels for the device here cannot be compiled")
    assert "pip install 'daceml[cuda-build]'" in fix


def test_a_compiler_that_is_named_but_not_there(machine):
    machine(nvcc="/nowhere/nvcc")
    status, found, fix = check_cuda_compiler()
    assert (status, found) == ("fail", "/nowhere/nvcc is not there, or is no program")
    assert fix == "name another nvcc in DACEML_NVCC"


@pytest.mark.parametrize(("driver", "status"), [(None, "warn"), ((13, 0), "fail")])
def test_a_broken_compiler_matters_as_much_as_the_device(
    machine, driver: tuple[int, int] | None, status: str
):
    machine(driver=driver, compiled="echo 'cannot find cicc' >&2; exit 1")
    seen, found, _ = check_cuda_compiler()
    assert seen == status
    assert found.endswith("nvcc failed with status 1: cannot find cicc")
    machine(driver=driver, architecture=100)
    seen, found, fix = check_cuda_compiler()
    assert seen == status and "makes no code for compute capability 10.0" in found
    assert fix == "name one of these in DACEML_CUDA_ARCH, or install a newer CUDA toolkit"


def test_a_toolkit_without_its_runtime(machine, tmp_path: Path):
    machine()
    (tmp_path / "lib" / "libcudart.so.13").unlink()
    status, found, fix = check_cuda_compiler()
    assert status == "warn" and "libcudart.so.13 was not found" in found
    assert fix == "pip install nvidia-cuda-runtime, or install the whole toolkit"


def test_torch_of_another_release(machine):
    machine(driver=(13, 0), of_torch="12.6")
    status, found, fix = check_cuda_compiler()
    assert status == "fail" and "CUDA 13.0 and torch's CUDA 12.6 are different releases" in found
    assert fix == "install CUDA 12, or name its nvcc in DACEML_NVCC"


def test_devices(machine, monkeypatch: pytest.MonkeyPatch):
    machine(driver=(13, 0), of_torch="13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda one: ("NVIDIA H200", "Quadro P5000")[one])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda one: ((9, 0), (6, 1))[one])
    status, found, _ = check_devices()
    assert status == "warn"
    assert found == (
        "NVIDIA H200 (9.0), Quadro P5000 (6.1), driver for CUDA 13.0; daceml supports 7.0 and newer"
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert check_devices() == ("ok", "NVIDIA H200 (9.0), driver for CUDA 13.0", "")


def test_devices_that_torch_does_not_use(machine, monkeypatch: pytest.MonkeyPatch):
    machine(driver=(12, 4))
    assert check_devices()[:2] == (
        "warn",
        "none: torch is built for the CPU, but there is a driver for CUDA 12.4",
    )
    machine(driver=(12, 4), of_torch="13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check_devices()[1] == "none: torch, built for CUDA 13.0, finds no device; driver for CUDA 12.4"
    machine(of_torch="13.0")
    assert check_devices() == ("ok", "none: no CUDA driver", "")


def test_the_driver_says_its_release(monkeypatch: pytest.MonkeyPatch):
    class Driver:
        def cuDriverGetVersion(self, number) -> int:
            number._obj.value = 12040
            return 0

    monkeypatch.setattr(device_checks.ctypes, "CDLL", lambda name: Driver())
    assert cuda_driver() == (12, 4)

    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(device_checks.ctypes, "CDLL", absent)
    assert cuda_driver() is None


@pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")
def test_the_compiler_of_this_machine_compiles():
    status, found, fix = check_cuda_compiler()
    assert status == "ok", (found, fix)
