"""A CUDA device through CuPy: copies, empty kernels, and which blocks the driver keeps resident."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from daceml.devices.measured import BEYOND_CACHE, MeasuredDevice, ResidentBlocks
from daceml.devices.occupancy import LIMITS, occupancy
from daceml.operations.measuring.batches import Timed, duration
from daceml.operations.measuring.copies import copy_rates

_IN_GRAPH = 512  # launches: a graph's own launch is shared by all of them
_THREADS = (64, 128, 256, 512, 1024)
_SHARED_BYTES = (0, 12 << 10, 40 << 10)  # within the 48 KiB that need no asking for

_EMPTY = 'extern "C" __global__ void nothing() {}'
# `ways` values are alive at once, so that the kernel wants about as many registers.
_BUSY = """
extern "C" __global__ void busy(float* x, int n) {
  float a[WAYS];
  #pragma unroll
  for (int i = 0; i < WAYS; ++i) a[i] = x[i * n + threadIdx.x];
  for (int k = 0; k < n; ++k) {
    #pragma unroll
    for (int i = 0; i < WAYS; ++i) a[i] = a[i] * a[(i + 1) % WAYS] + x[k];
  }
  #pragma unroll
  for (int i = 0; i < WAYS; ++i) x[i * n + threadIdx.x] = a[i];
}
"""
_WAYS = (4, 32, 96)


def measure_cuda(cupy: Any, index: int) -> MeasuredDevice:
    """Measure one device; some seconds, and an eighth of its free memory at most.

    Args:
        cupy: the package, whose version is that of the CUDA runtime here.
        index: of the device, among those that are visible.
    """
    with cupy.cuda.Device(index) as device, cupy.cuda.Stream(non_blocking=True) as stream:
        cache = int(device.attributes["L2CacheSize"])
        architecture = int(device.compute_capability)
        nothing = cupy.RawKernel(_EMPTY, "nothing")
        copies = copy_rates(
            lambda size: _copying(cupy, stream, size),
            largest=BEYOND_CACHE * cache,
            free_bytes=device.mem_info[0],
        )
        return MeasuredDevice(
            name=cupy.cuda.runtime.getDeviceProperties(index)["name"].decode(),
            kind="cuda",
            cache_bytes=cache,
            copies=copies,
            call_us=duration(_calling(stream, nothing)).seconds * 1e6,
            launch_us=duration(_launching(cupy, stream, nothing)).seconds * 1e6,
            graph_launch_us=duration(_replaying(cupy, stream, nothing)).seconds / _IN_GRAPH * 1e6,
            resident=tuple(_resident(cupy, architecture)),
            versions={
                "cupy": cupy.__version__,
                "cuda runtime": str(cupy.cuda.runtime.runtimeGetVersion()),
                "cuda driver": str(cupy.cuda.runtime.driverGetVersion()),
            },
            date=datetime.now(UTC).date().isoformat(),
        )


def _copying(cupy: Any, stream: Any, size: int) -> Timed:
    # random bytes: on zeros a device draws less power, and may run faster
    source = cupy.random.randint(0, 256, size, dtype=cupy.uint8)
    target = cupy.empty_like(source)

    def timed(runs: int) -> float:
        with _seconds(cupy, stream) as passed:
            for _ in range(runs):
                target.data.copy_from_device_async(source.data, size, stream)
        return passed[0]

    return timed


def _launching(cupy: Any, stream: Any, kernel: Any) -> Timed:
    def timed(runs: int) -> float:
        with _seconds(cupy, stream) as passed:
            for _ in range(runs):
                kernel((1,), (1,), (), stream=stream)
        return passed[0]

    return timed


def _calling(stream: Any, kernel: Any) -> Timed:
    def timed(runs: int) -> float:
        start = perf_counter()
        for _ in range(runs):
            kernel((1,), (1,), (), stream=stream)
        end = perf_counter()
        stream.synchronize()
        return end - start

    return timed


def _replaying(cupy: Any, stream: Any, kernel: Any) -> Timed:
    stream.begin_capture()
    for _ in range(_IN_GRAPH):
        kernel((1,), (1,), (), stream=stream)
    graph = stream.end_capture()

    def timed(runs: int) -> float:
        with _seconds(cupy, stream) as passed:
            for _ in range(runs):
                graph.launch(stream)
        return passed[0]

    return timed


@contextmanager
def _seconds(cupy: Any, stream: Any) -> Generator[list[float]]:
    """What the device takes for the work of the block; in the list once the block is left."""
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    passed: list[float] = []
    start.record(stream)
    yield passed
    end.record(stream)
    end.synchronize()
    passed.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)


def _resident(cupy: Any, architecture: int) -> Iterator[ResidentBlocks]:
    for ways in _WAYS:
        kernel = cupy.RawKernel(_BUSY, "busy", (f"-DWAYS={ways}",))
        kernel.compile()
        static, registers = int(kernel.shared_size_bytes), int(kernel.num_regs)
        for threads in _THREADS:
            for dynamic in _SHARED_BYTES:
                blocks = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    kernel.kernel.ptr, threads, dynamic
                )
                shared = static + dynamic
                expected = (
                    occupancy(architecture, threads=threads, registers=registers, shared_bytes=shared).blocks
                    if architecture in LIMITS
                    else None
                )
                yield ResidentBlocks(
                    threads=threads,
                    registers=registers,
                    shared_bytes=shared,
                    blocks=int(blocks),
                    expected=expected,
                )
