"""Objects of kernels for a device: compiled for a CUDA device, or for this processor, which emulates one."""

from __future__ import annotations

from pathlib import Path

from daceml.codegen_cuda.block_size import BlockShape, Trial, choose_shape, rules, shape_of, with_shape
from daceml.codegen_cuda.emulation.compiler import (
    compile_header,
    compile_kernel,
    compile_scheduler,
    fingerprint,
)
from daceml.codegen_cuda.kernel_facts import CompiledFacts, save_facts
from daceml.codegen_cuda.kernel_unit import HEADERS
from daceml.codegen_cuda.toolchain import INCLUDE, CudaToolchain, cuda_toolchain
from daceml.runtime.records.kernel_facts import KernelFacts
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import include_folder, shared_header, toolchain

_SHARED = include_folder() / "daceml" / "scalar_math.h"  # with the kernels of the processor
_FUNCTIONS = INCLUDE.parent / "device_functions.cu"


def cuda_object(source: str, cache: Cache, architecture: int | None = None) -> Path:
    """The object of one kernel for a CUDA device.

    Args:
        architecture: see `cuda_toolchain`.
    Raises:
        EnvironmentProblem: there is no CUDA compiler.
        BuildError: it refused the kernel.
    """
    tools = cuda_toolchain(architecture)

    def build(folder: Path) -> None:
        _compile_in_shape(source, folder, tools)

    key = digest(tools.fingerprint, _SHARED.read_text(), rules(), source)
    return cache.get("kernels", key, build) / "kernel.o"


def _compile_in_shape(source: str, folder: Path, tools: CudaToolchain) -> None:
    """Leave the object of a kernel in a folder, in blocks of the size that is chosen for it."""
    said = tools.compile(source, folder, includes=(include_folder(),))
    if len(said) != 1:
        return
    ((name, facts),) = said.items()
    chosen = compiled_in_shape(source, facts, folder, tools)
    if chosen is None:
        return
    known = CompiledFacts(
        architecture=tools.architecture,
        kernels={name: chosen.facts},
        threads=chosen.shape.threads,
        min_blocks=chosen.shape.min_blocks,
    )
    save_facts(known, folder / "kernel.o")


def compiled_in_shape(source: str, facts: KernelFacts, folder: Path, tools: CudaToolchain) -> Trial | None:
    """The shape that is chosen for a kernel; its object is left in the folder, unless the first shape is it.

    Args:
        facts: what the assembler said of the text as it is.
    Returns:
        None for a text that is no generated kernel.
    """
    found = shape_of(source)
    if found is None:
        return None
    first, is_open = found
    last = first

    def compiled(shape: BlockShape) -> KernelFacts:
        nonlocal last
        last = shape
        text = with_shape(source, shape)
        (facts,) = tools.compile(text, folder, includes=(include_folder(),)).values()
        return facts

    chosen = choose_shape(tools.architecture, Trial(shape=first, facts=facts), compiled, is_open=is_open)
    if chosen.shape != last:
        compiled(chosen.shape)
    return chosen


def cuda_functions(cache: Cache, architecture: int | None = None) -> Path:
    """The object of what every program on a CUDA device calls besides its kernels.

    Raises:
        EnvironmentProblem, BuildError: see `cuda_object`.
    """
    return cuda_object(_FUNCTIONS.read_text(), cache, architecture)


def emulated_object(source: str, cache: Cache) -> Path:
    """The object of one kernel for this processor.

    Raises:
        BuildError: the compiler refused it.
    """
    tools, includes = toolchain(), (include_folder(),)

    def write_header(folder: Path) -> None:
        compile_header(HEADERS, folder, cxx=tools.cxx, includes=includes)

    def build(folder: Path) -> None:
        header = shared_header(cache, digest(tools.fingerprint, "emulation", fingerprint()), write_header)
        compile_kernel(source, folder, cxx=tools.cxx, includes=includes, header=header)

    key = digest(tools.fingerprint, fingerprint(), source)
    return cache.get("kernels", key, build) / "kernel.o"


def emulation_objects(cache: Cache) -> list[Path]:
    """What runs the threads of all emulated kernels of a program; made once for each toolchain.

    Raises:
        BuildError: the compiler refused it.
    """
    tools = toolchain()

    def build(folder: Path) -> None:
        compile_scheduler(folder, cxx=tools.cxx, includes=(include_folder(),))

    folder = cache.get("emulation", digest(tools.fingerprint, fingerprint()), build)
    return sorted(folder.glob("*.o"))
