"""Occupancy, beside NVIDIA's published examples and beside the header of its toolkit."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from daceml.codegen_cuda.cuda_files import header_folders
from daceml.codegen_cuda.toolchain import find_nvcc
from daceml.devices.occupancy import LIMITS, occupancy
from daceml.errors import ConfigurationError
from tests.support.golden import raises


def test_the_examples_of_the_best_practices_guide():
    """CUDA C++ Best Practices Guide, "Calculating Occupancy", for compute capability 7.0."""
    small = occupancy(70, threads=128, registers=37)
    assert (small.blocks, small.share, small.limited_by) == (12, 0.75, ("registers",))
    large = occupancy(70, threads=320, registers=37)
    assert (large.blocks, large.warps) == (4, 40)
    assert large.share == pytest.approx(0.63, abs=0.01)
    assert occupancy(70, threads=256, registers=32).share == 1.0


def test_shared_memory_limits_what_registers_would_allow():
    # 228 KiB hold 17 blocks of 12 KiB, each with its KiB for the system
    found = occupancy(90, threads=32, registers=8, shared_bytes=12 << 10)
    assert (found.blocks, found.limited_by) == (17, ("shared memory",))


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "why"),
    [(1024, 128, 0, "registers"), (32, 256, 0, "registers"), (32, 8, 228 << 10, "shared memory"),
     (2048, 8, 0, "warps")],
)  # fmt: skip
def test_what_cannot_be_launched(threads: int, registers: int, shared_bytes: int, why: str):
    found = occupancy(90, threads=threads, registers=registers, shared_bytes=shared_bytes)
    assert (found.blocks, found.share, found.limited_by) == (0, 0.0, (why,))


def test_an_architecture_without_limits_is_refused():
    with raises(ConfigurationError, "5.2", "7.0", "9.0", "daceml/devices/occupancy.py"):
        occupancy(52, threads=128, registers=32)


THREADS = (1, 32, 96, 128, 255, 256, 320, 512, 768, 1024)
REGISTERS = (8, 16, 24, 33, 40, 64, 65, 100, 128, 168, 255)
CASES = list(product(THREADS, REGISTERS, (0, 4, 1000, 16384, 33000, 49152)))

# The header takes limits from whoever asks: everything but granularities and resident blocks is ours.
PROGRAM = """
#include <cuda_occupancy.h>
#include <cstdio>
int main() {
    int major, minor, warps, registers, shared, per_block, reserved, threads, used;
    unsigned long static_bytes;
    while (std::scanf("%d %d %d %d %d %d %d %d %d %lu", &major, &minor, &warps, &registers, &shared,
                      &per_block, &reserved, &threads, &used, &static_bytes) == 10) {
        cudaOccDeviceProp device;
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = 32 * warps;
        device.regsPerBlock = device.regsPerMultiprocessor = registers;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = shared;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = per_block;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = used;
        kernel.sharedSizeBytes = static_bytes;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = 0;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult found;
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&found, &device, &kernel, &state, threads, 0);
        std::printf("%d\\n", status == CUDA_OCC_SUCCESS ? found.activeBlocksPerMultiprocessor : -1);
    }
}
"""


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that answers by the toolkit's header."""
    nvcc = find_nvcc()
    runtime = None if nvcc is None else header_folders(nvcc, 13)["cuda_runtime.h"]
    if runtime is None or not (runtime / "cuda_occupancy.h").is_file() or shutil.which("g++") is None:
        pytest.skip("no cuda_occupancy.h on this machine")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "occupancy.cpp").write_text(PROGRAM)
    command = ["g++", "-w", f"-I{runtime}", "occupancy.cpp", "-o", "occupancy"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "occupancy"


@pytest.mark.parametrize("architecture", LIMITS)
def test_as_the_header_of_the_toolkit_has_it(nvidia: Path, architecture: int):
    limits = LIMITS[architecture]
    head = (*divmod(architecture, 10), limits.warps, limits.registers, limits.shared_bytes,
            limits.shared_bytes_per_block, limits.reserved_shared_bytes)  # fmt: skip
    asked = "".join(" ".join(map(str, (*head, *case))) + "\n" for case in CASES)
    done = subprocess.run([nvidia], input=asked, capture_output=True, text=True, check=True)
    ours = [occupancy(architecture, threads=t, registers=r, shared_bytes=s).blocks for t, r, s in CASES]
    assert dict(zip(CASES, ours, strict=True)) == dict(zip(CASES, map(int, done.stdout.split()), strict=True))
