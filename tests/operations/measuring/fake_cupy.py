"""As much of CuPy as measuring needs, over a device with a clock of its own: what takes how long is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

MEMORY_BYTES_PER_S, CACHE_BYTES_PER_S = 2e12, 6e12
CACHE = 8 << 20
LAUNCH_S, REPLAYED_S, COPY_S = 2e-6, 0.5e-6, 1e-6
BYTES_FREE = 1 << 32


class Device:
    """The clock, and everything that makes it go on."""

    def __init__(self, blocks: Any = lambda threads, registers, shared: 2048 // threads) -> None:
        self.now_s = 0.0
        self.blocks = blocks
        self.captured: list[float] | None = None
        self.copied: list[int] = []
        self.package = self._package()

    def take(self, seconds: float) -> None:
        if self.captured is not None:
            self.captured.append(seconds)
        else:
            self.now_s += seconds

    def _package(self) -> Any:
        device = self

        class Context:
            def __init__(self, *_: Any, **__: Any) -> None:
                self.attributes = {"L2CacheSize": CACHE}
                self.compute_capability = "90"
                self.mem_info = (BYTES_FREE, 2 * BYTES_FREE)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None: ...

        class Stream(Context):
            def synchronize(self) -> None: ...
            def begin_capture(self) -> None:
                device.captured = []

            def end_capture(self) -> Any:
                assert device.captured is not None
                count, device.captured = len(device.captured), None
                return SimpleNamespace(launch=lambda stream: device.take(count * REPLAYED_S))

        class Event:
            def record(self, stream: Stream) -> None:
                self.at_s = device.now_s

            def synchronize(self) -> None: ...

        class Kernel:
            def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
                assert name in code
                self.num_regs = 16 + max((int(o.partition("=")[2]) for o in options), default=0)
                self.shared_size_bytes = 0
                self.kernel = SimpleNamespace(ptr=self.num_regs)

            def compile(self) -> None: ...
            def __call__(self, grid: Any, block: Any, arguments: Any, *, stream: Stream) -> None:
                device.take(LAUNCH_S)

        class Memory:
            def copy_from_device_async(self, source: Memory, size: int, stream: Stream) -> None:
                device.copied.append(size)
                rate = CACHE_BYTES_PER_S if 2 * size <= CACHE else MEMORY_BYTES_PER_S
                device.take(COPY_S + 2 * size / rate)

        cuda = SimpleNamespace(
            Device=Context,
            Stream=Stream,
            Event=Event,
            get_elapsed_time=lambda start, end: (end.at_s - start.at_s) * 1e3,
            runtime=SimpleNamespace(
                getDeviceProperties=lambda index: {"name": b"Planted 1"},
                runtimeGetVersion=lambda: 13000,
                driverGetVersion=lambda: 13010,
            ),
            driver=SimpleNamespace(
                occupancyMaxActiveBlocksPerMultiprocessor=lambda function, threads, shared: device.blocks(
                    threads, function, shared
                )
            ),
        )
        array = SimpleNamespace(data=Memory())
        return SimpleNamespace(
            __version__="14.0",
            uint8="uint8",
            cuda=cuda,
            RawKernel=Kernel,
            random=SimpleNamespace(randint=lambda low, high, size, dtype: array),
            empty_like=lambda x: SimpleNamespace(data=Memory()),
        )
