"""A device whose kernels last as long as they are told: threads that sleep, streams, a queue, a recorder.

It behaves as a GPU does towards its host: launches return at once unless the queue is full, streams run one
kernel after the other, streams wait for events, synchronising calls block. What happens is recorded as
PyTorch's profiler would, so that a prediction for other kernels can be held against a run with such kernels.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

_CALL_US = 200.0  # that a launch takes on its thread


@dataclass
class _Work:
    name: str
    duration_us: float
    correlation: int
    waits: threading.Event | None = None
    done: threading.Event = field(default_factory=threading.Event)


class EmulatedDevice:
    """One device with streams; `factor` times as slow as its kernels say.

    Args:
        factor: of the durations of all kernels.
        depth: launches that may wait for a stream.
    """

    def __init__(self, *, factor: float = 1.0, depth: int = 1024) -> None:
        self.factor, self.depth = factor, depth
        self.events: list[dict[str, Any]] = []
        self.correlation = 0
        self._lock = threading.Lock()
        self._queues: dict[int, SimpleQueue[_Work | None]] = {}
        self._room: dict[int, threading.Semaphore] = {}
        self._threads: list[threading.Thread] = []
        self._last: dict[int, _Work] = {}
        self._awaited: dict[int, threading.Event] = {}
        self._zero = time.perf_counter()

    def now_us(self) -> float:
        """Since the device was made."""
        return (time.perf_counter() - self._zero) * 1e6

    def close(self) -> None:
        """End the streams, once all is done."""
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def launch(self, name: str, stream: int, duration_us: float) -> None:
        """Give a stream a kernel; returns once there is room in its queue."""
        self._open(stream)
        with self.called("cudaLaunchKernel") as correlation:
            self._room[stream].acquire()
            work = _Work(name, duration_us * self.factor, correlation, self._awaited.pop(stream, None))
            self._last[stream] = work
            self._queues[stream].put(work)
            _sleep_us(_CALL_US)

    def wait(self, stream: int, other: int) -> None:
        """The next kernel of a stream waits for what another one has been given."""
        with self.called("cudaStreamWaitEvent"):
            self._awaited[stream] = self._last[other].done

    def synchronize(self, stream: int) -> None:
        """Return when a stream has done all that it was given."""
        with self.called("cudaStreamSynchronize"):
            self._last[stream].done.wait()

    @contextmanager
    def called(self, name: str) -> Generator[int]:
        """A call of the runtime on this thread."""
        with self._lock:
            self.correlation += 1
            correlation = self.correlation
        begin_us = self.now_us()
        yield correlation
        self._record("cuda_runtime", name, threading.get_ident(), begin_us, {"correlation": correlation})

    @contextmanager
    def step(self, number: int) -> Generator[None]:
        """A training step."""
        begin_us = self.now_us()
        yield
        self._record("user_annotation", f"ProfilerStep#{number}", threading.get_ident(), begin_us, {})

    def _open(self, stream: int) -> None:
        if stream not in self._queues:
            self._queues[stream] = SimpleQueue()
            self._room[stream] = threading.Semaphore(self.depth)
            self._threads.append(threading.Thread(target=self._serve, args=(stream,), daemon=True))
            self._threads[-1].start()

    def _serve(self, stream: int) -> None:
        while (work := self._queues[stream].get()) is not None:
            if work.waits is not None:
                work.waits.wait()
            begin_us = self.now_us()
            self._room[stream].release()
            _sleep_us(work.duration_us)
            self._record(
                "kernel", work.name, stream, begin_us,
                {"correlation": work.correlation, "device": 0, "stream": stream}, process=0,
            )  # fmt: skip
            work.done.set()

    def _record(
        self, category: str, name: str, thread: int, begin_us: float, args: dict[str, Any], process: int = 1
    ) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread}
        self.events.append(event | {"ts": begin_us, "dur": self.now_us() - begin_us, "args": args})


def _sleep_us(duration_us: float) -> None:
    time.sleep(duration_us / 1e6)


def work_us(duration_us: float) -> None:
    """What a thread does between calls."""
    _sleep_us(duration_us)
