"""`daceml doctor` on machines with and without a CUDA compiler, a driver, and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from daceml.cli import device_checks
from daceml.cli.device_checks import check_cuda_compiler, check_devices, cuda_driver
from daceml.codegen_cuda import toolchain
from daceml.codegen_cuda.toolchain import cuda_toolchain
from daceml.config import Config, config
from tests.support.golden import golden

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
    runtime = str(tmp_path / "lib" / "libcudart.so.13")
    for fact in (nvcc, "DACEML_NVCC", "CUDA 13.0", "9.0", "DACEML_CUDA_ARCH", runtime):
        assert fact in found


def test_a_machine_without_compiler_and_device_is_fine(machine, monkeypatch: pytest.MonkeyPatch):
    machine(nvcc="")
    monkeypatch.setattr(toolchain, "locate_nvcc", lambda: None)
    assert check_cuda_compiler() == ("ok", golden(), "")
    assert check_devices() == ("ok", golden(), "")


def test_a_device_without_a_compiler(machine, monkeypatch: pytest.MonkeyPatch):
    machine(nvcc="", driver=(13, 0), of_torch="13.0")
    monkeypatch.setattr(toolchain, "locate_nvcc", lambda: None)
    status, found, fix = check_cuda_compiler()
    assert (status, found, fix) == ("fail", golden(), golden())
    assert "pip install 'daceml[cuda-build]'" in fix


def test_a_compiler_that_is_named_but_not_there(machine):
    machine(nvcc="/nowhere/nvcc")
    status, found, fix = check_cuda_compiler()
    assert (status, found, fix) == ("fail", golden(), golden())
    assert "/nowhere/nvcc" in found and "DACEML_NVCC" in fix


@pytest.mark.parametrize(("driver", "status"), [(None, "warn"), ((13, 0), "fail")])
def test_a_broken_compiler_matters_as_much_as_the_device(
    machine, driver: tuple[int, int] | None, status: str
):
    machine(driver=driver, compiled="echo 'cannot find cicc' >&2; exit 1")
    seen, found, _ = check_cuda_compiler()
    assert (seen, found) == (status, golden())
    assert "status 1" in found and found.endswith(": cannot find cicc")
    machine(driver=driver, architecture=100)
    seen, found, fix = check_cuda_compiler()
    assert (seen, found, fix) == (status, golden(), golden())
    assert "compute capability 10.0" in found and "DACEML_CUDA_ARCH" in fix


def test_a_toolkit_without_its_runtime(machine, tmp_path: Path):
    machine()
    (tmp_path / "lib" / "libcudart.so.13").unlink()
    status, found, fix = check_cuda_compiler()
    assert (status, found, fix) == ("warn", golden(), golden())
    assert "libcudart.so.13" in found and "pip install nvidia-cuda-runtime" in fix


def test_torch_of_another_release(machine):
    machine(driver=(13, 0), of_torch="12.6")
    status, found, fix = check_cuda_compiler()
    assert (status, found, fix) == ("fail", golden(), golden())
    assert "CUDA 13.0" in found and "CUDA 12.6" in found
    assert "CUDA 12" in fix and "DACEML_NVCC" in fix


def test_devices(machine, monkeypatch: pytest.MonkeyPatch):
    machine(driver=(13, 0), of_torch="13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda one: ("NVIDIA H200", "Quadro P5000")[one])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda one: ((9, 0), (6, 1))[one])
    status, found, _ = check_devices()
    assert (status, found) == ("warn", golden())
    assert all(fact in found for fact in ("NVIDIA H200 (9.0), Quadro P5000 (6.1)", "CUDA 13.0", "7.0"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    found = check_devices()
    assert found == ("ok", golden(), "")
    assert "NVIDIA H200 (9.0)" in found[1] and "CUDA 13.0" in found[1]


def test_devices_that_torch_does_not_use(machine, monkeypatch: pytest.MonkeyPatch):
    machine(driver=(12, 4))
    status, found, _ = check_devices()
    assert (status, found) == ("warn", golden())
    assert "CPU" in found and "CUDA 12.4" in found
    machine(driver=(12, 4), of_torch="13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = check_devices()[1]
    assert found == golden()
    assert "CUDA 13.0" in found and "CUDA 12.4" in found
    machine(of_torch="13.0")
    assert check_devices() == ("ok", golden(), "")


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
