"""Objects of kernels, compiled several at once while Python goes on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.codegen.kernel_batches import KernelBatches
from daceml.codegen.kernel_source import kernel_source
from daceml.codegen_cuda.device_objects import cuda_object, emulated_object
from daceml.codegen_cuda.kernel_facts import CompiledFacts, load_facts
from daceml.codegen_cuda.kernel_unit import KernelLaunch, kernel_unit
from daceml.config import config
from daceml.sdfg.outline import Kernel, Outliner
from daceml.sdfg.scopes import top_maps
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import toolchain

if TYPE_CHECKING:
    from daceml.sdfg.network import Device, Network

_LANES = Path(__file__).with_name("vector_lanes.cpp")


class KernelObjects:
    """Compiles kernels as soon as they are known, and each of them once.

    The programs of a training step share one: the kernels of the forward pass are compiled while the backward
    pass is still optimised.

    Attributes:
        sources: name of a kernel -> its text.
        launches: name of a kernel for a device -> how it is launched.
        pool: of compilers.
        outliner: of networks that no pass will change any more.
    """

    def __init__(self, cache: Cache, device: Device = "cpu", architecture: int | None = None) -> None:
        """
        Args:
            device: where the arrays of kernels lie; kernels of a device are emulated on the CPU.
            architecture: of the device, see `cuda_toolchain`.
        """
        self.cache, self.device, self.architecture = cache, device, architecture
        self.outliner = Outliner(final=True)
        self.sources: dict[str, str] = {}
        self.launches: dict[str, KernelLaunch] = {}
        jobs = config().compile_jobs
        self.pool = ThreadPoolExecutor(max_workers=jobs)
        self._batches = KernelBatches(cache, self.pool, jobs)
        self._objects: dict[str, Future[Path]] = {}

    def begin(self, kernel: Kernel) -> None:
        """Have a kernel compiled, soon."""
        if kernel.name in self._objects:
            return
        source = self.sources[kernel.name] = self._source(kernel)
        if kernel.on_device:
            self._objects[kernel.name] = self.pool.submit(self._maker(), source, self.cache)
        else:
            self._objects[kernel.name] = self._batches.add(source)

    def objects(self, kernels: Iterable[Kernel]) -> list[Future[Path]]:
        """The objects of kernels that were begun with, once they are compiled."""
        self._batches.flush()
        return [self._objects[kernel.name] for kernel in kernels]

    def _source(self, kernel: Kernel) -> str:
        if not kernel.on_device:
            return kernel_source(kernel)
        unit = kernel_unit(kernel)
        self.launches[kernel.name] = unit.launched
        return unit.text

    def facts(self, name: str) -> CompiledFacts | None:
        """What the CUDA compiler said of a kernel that is compiled; None in emulation."""
        self._batches.flush()
        return load_facts(self._objects[name].result())

    def begin_all(self, network: Network) -> None:
        """Begin with every kernel of a network that no pass will change any more."""
        for entry in top_maps(network.state):
            self.begin(self.outliner.outline(network.sdfg, network.state, entry).kernel)
        self._batches.flush()

    def folders(self) -> list[Path]:
        """The cache entries of all kernels that were begun with, once they are compiled."""
        self._batches.flush()
        return [made.result().parent for made in self._objects.values()]

    def _maker(self) -> Callable[[str, Cache], Path]:
        if self.device == "cpu":
            return emulated_object
        return functools.partial(cuda_object, architecture=self.architecture)

    def close(self) -> None:
        """Compile nothing more; what has not been started yet is not worth waiting for."""
        self._batches.close()
        self.pool.shutdown(wait=False, cancel_futures=True)


def lanes_object(cache: Cache) -> Path:
    """The object of `daceml/vector_lanes.h`, which every kernel may call; made once for each toolchain.

    Raises:
        BuildError: the compiler refused it.
    """
    tools = toolchain()
    key = digest(tools.fingerprint, _LANES.read_text())
    return cache.get("kernels", key, lambda folder: tools.compile_source(_LANES, folder)) / "vector_lanes.o"
