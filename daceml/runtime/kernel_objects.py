"""Objects of kernels, compiled several at once while Python goes on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.config import config
from daceml.runtime.cache import Cache, digest
from daceml.runtime.device_objects import device_object
from daceml.runtime.kernel_source import kernel_source
from daceml.runtime.toolchain import precompiled_header, toolchain
from daceml.sdfg.outline import Kernel, Outliner
from daceml.sdfg.scopes import top_maps

if TYPE_CHECKING:
    from daceml.sdfg.network import Network


class KernelObjects:
    """Compiles kernels as soon as they are known, and each of them once.

    The programs of a training step share one: the kernels of the forward pass are compiled while the backward
    pass is still optimised.

    Attributes:
        sources: name of a kernel -> its text.
        pool: of compilers.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.sources: dict[str, str] = {}
        self.pool = ThreadPoolExecutor(max_workers=config().compile_jobs)
        self._objects: dict[str, Future[Path]] = {}

    def begin(self, kernel: Kernel) -> Future[Path]:
        """The object of a kernel, once it is compiled."""
        if kernel.name not in self._objects:
            source = self.sources[kernel.name] = kernel_source(kernel)
            make = device_object if kernel.on_device else kernel_object
            self._objects[kernel.name] = self.pool.submit(make, source, self.cache)
        return self._objects[kernel.name]

    def begin_all(self, network: Network) -> None:
        """Begin with every kernel of a network that no pass will change any more."""
        outliner = Outliner()
        for entry in top_maps(network.state):
            self.begin(outliner.outline(network.sdfg, network.state, entry).kernel)

    def close(self) -> None:
        """Compile nothing more; what has not been started yet is not worth waiting for."""
        self.pool.shutdown(wait=False, cancel_futures=True)


def kernel_object(source: str, cache: Cache) -> Path:
    """The object of a text for this processor.

    Raises:
        BuildError: the compiler refused it.
    """
    tools = toolchain()
    header = precompiled_header(cache)
    key = digest(tools.fingerprint, source)
    return cache.get("kernels", key, lambda folder: tools.compile_kernel(source, folder, header)) / "kernel.o"
