"""Kernels of the processor, compiled several at once.

Of the 0.11 s that g++ takes for a small kernel, 0.08 s go into starting it and loading the precompiled header
(median of 48 kernels). Kernels that wait for a compiler are therefore compiled as one text, 0.03 s each, and
their objects separated afterwards: the cache has one entry for each kernel.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path

from daceml.codegen.kernel_source import entry_of
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import precompiled_header, toolchain
from daceml.toolchain.trusted_paths import private_folder

# Kernels in one text, and its size: a compiler takes longer than in proportion for a long one.
_MOST, _MOST_BYTES = 8, 40_000
# So many kernels are worth a compiler before all are known.
_ENOUGH = 4


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    source: str
    made: Future[Path] = field(default_factory=Future[Path])


class KernelBatches:
    """Compiles kernels of the processor in a pool of compilers.

    Args:
        jobs: compilers of the pool that run at once.
    """

    def __init__(self, cache: Cache, pool: Executor, jobs: int) -> None:
        self._cache, self._pool, self._jobs = cache, pool, jobs
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()

    def add(self, source: str) -> Future[Path]:
        """The object of a kernel, once it is compiled; call `flush` before you wait for it."""
        kernel = _Waiting(source=source)
        with self._lock:
            self._waiting.append(kernel)
            enough = len(self._waiting) >= _ENOUGH
        if enough:
            self._pool.submit(self._compile)
        return kernel.made

    def flush(self) -> None:
        """Compile what waits, however little it is."""
        with self._lock:
            count = min(self._jobs, len(self._waiting))
        for _ in range(count):
            self._pool.submit(self._compile)

    def close(self) -> None:
        """Compile nothing more."""
        with self._lock:
            while self._waiting:
                self._waiting.popleft().made.cancel()

    def _compile(self) -> None:
        while batch := self._claim():
            with contextlib.suppress(
                Exception
            ):  # what fails is left to `kernel_object`, whose error names it
                _compile_together([kernel.source for kernel in batch], self._cache)
            for kernel in batch:
                try:
                    kernel.made.set_result(kernel_object(kernel.source, self._cache))
                except BaseException as error:  # the thread that waits for the kernel raises it
                    kernel.made.set_exception(error)

    def _claim(self) -> list[_Waiting]:
        """A share of what waits, so that every compiler of the pool gets one."""
        with self._lock:
            count, size = min(_MOST, -(-len(self._waiting) // self._jobs)), 0
            claimed: list[_Waiting] = []
            while len(claimed) < count:
                size += len(self._waiting[0].source)
                if claimed and size > _MOST_BYTES:
                    break
                claimed.append(self._waiting.popleft())
            return claimed


def kernel_object(source: str, cache: Cache) -> Path:
    """The object of a text for this processor.

    Raises:
        BuildError: the compiler refused it.
    """
    tools = toolchain()
    header = precompiled_header(cache)
    return (
        cache.get("kernels", _key(source), lambda folder: tools.compile_kernel(source, folder, header))
        / "kernel.o"
    )


def _key(source: str) -> str:
    return digest(toolchain().fingerprint, source)


def _compile_together(sources: list[str], cache: Cache) -> None:
    """Put the objects of kernels into the cache, compiled as one text.

    Raises:
        BuildError: the compiler refused one of them, or the linker did not separate their objects.
    """
    missing = [source for source in sources if cache.find("kernels", _key(source)) is None]
    linker = shutil.which("ld")
    if len(missing) < 2 or linker is None:
        return
    tools = toolchain()
    with private_folder() as work:
        together = tools.compile_kernels(missing, work, precompiled_header(cache))
        for source in missing:

            def take(folder: Path, source: str = source) -> None:
                tools.take_kernel(source, entry_of(source), together, folder, linker)

            cache.get("kernels", _key(source), take)
