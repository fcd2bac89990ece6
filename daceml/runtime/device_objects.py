"""Objects of kernels for a device: compiled for this processor, which emulates one."""

from __future__ import annotations

from pathlib import Path

from daceml.codegen_cuda.emulation.compiler import compile_kernel, compile_scheduler, fingerprint
from daceml.runtime.cache import Cache, digest
from daceml.runtime.toolchain import include_folder, toolchain


def device_object(source: str, cache: Cache) -> Path:
    """The object of one kernel.

    Raises:
        BuildError: the compiler refused it.
    """
    tools = toolchain()

    def build(folder: Path) -> None:
        compile_kernel(source, folder, cxx=tools.cxx, includes=(include_folder(),))

    key = digest(tools.fingerprint, fingerprint(), source)
    return cache.get("kernels", key, build) / "kernel.o"


def scheduler_objects(cache: Cache) -> list[Path]:
    """What runs the threads of all emulated kernels of a program; made once for each toolchain.

    Raises:
        BuildError: the compiler refused it.
    """
    tools = toolchain()

    def build(folder: Path) -> None:
        compile_scheduler(folder, cxx=tools.cxx, includes=(include_folder(),))

    folder = cache.get("emulation", digest(tools.fingerprint, fingerprint()), build)
    return sorted(folder.glob("*.o"))
