"""Kernels through nvcc, in the blocks that programs launch them in, and the machine code that came out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.device_code.generated import GeneratedKernel
from daceml.errors import BuildError

if TYPE_CHECKING:
    from benchmarks.device_code.disassembler import Disassembler
    from benchmarks.device_code.sass import Instruction
    from daceml.codegen_cuda.toolchain import CudaToolchain
    from daceml.runtime.records.kernel_facts import KernelFacts

# of one run of nvcc, whose own start takes as long as several kernels
_KERNELS_OF_A_UNIT = 24


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A kernel after the compiler.

    Attributes:
        facts: what the assembler says of it, or why it was refused.
        code: its machine code, or why it could not be read.
        seconds: its share of those of its unit, and those of further shapes.
    """

    kernel: GeneratedKernel
    facts: KernelFacts | str
    code: Sequence[Instruction] | str
    seconds: float


def compiled(
    kernels: Sequence[GeneratedKernel],
    tools: CudaToolchain,
    folder: Path,
    disassembler: Disassembler | str,
) -> list[CompiledKernel]:
    """Compile each kernel and read its machine code.

    Args:
        disassembler: or why there is none, which stands in each `code` then.
    """
    found: list[CompiledKernel] = []
    for begin in range(0, len(kernels), _KERNELS_OF_A_UNIT):
        found += _unit(kernels[begin : begin + _KERNELS_OF_A_UNIT], tools, folder, disassembler)
    return found


def _unit(
    kernels: Sequence[GeneratedKernel], tools: CudaToolchain, folder: Path, disassembler: Disassembler | str
) -> Iterable[CompiledKernel]:
    from daceml.codegen_cuda.kernel_facts import CompiledFacts
    from daceml.toolchain.cxx import include_folder

    start = time.monotonic()
    try:
        text = "\n".join(kernel.unit.text for kernel in kernels)
        said = tools.compile(text, folder, includes=(include_folder(),))
    except BuildError as error:
        if len(kernels) > 1:  # which of them
            return [one for kernel in kernels for one in _unit([kernel], tools, folder, disassembler)]
        seconds = time.monotonic() - start
        return [CompiledKernel(kernel=kernels[0], facts=error.why, code="it was refused", seconds=seconds)]
    facts = CompiledFacts(architecture=tools.architecture, kernels=said)
    # now: kernels in other shapes are compiled into the same file
    code = _code(kernels, folder, disassembler)
    share_s = (time.monotonic() - start) / len(kernels)
    return [
        _in_shape(
            CompiledKernel(
                kernel=kernel,
                facts=facts.of(kernel.unit.launched.function) or "the assembler says nothing of it",
                code=one,
                seconds=share_s,
            ),
            tools,
            folder,
            disassembler,
        )
        for kernel, one in zip(kernels, code, strict=True)
    ]


def _in_shape(
    first: CompiledKernel, tools: CudaToolchain, folder: Path, disassembler: Disassembler | str
) -> CompiledKernel:
    """The kernel in the blocks that programs launch it in."""
    from daceml.codegen_cuda.block_size import shape_of
    from daceml.codegen_cuda.device_objects import compiled_in_shape

    if isinstance(first.facts, str):
        return first
    start = time.monotonic()
    unit = first.kernel.unit
    chosen = compiled_in_shape(unit.text, first.facts, folder, tools)
    if chosen is None:
        return first
    code, shape = first.code, shape_of(unit.text)
    if shape is not None and chosen.shape != shape[0]:
        (code,) = _code([first.kernel], folder, disassembler)
    launched = unit.launched.with_threads(chosen.shape.threads)
    return CompiledKernel(
        kernel=replace(first.kernel, unit=replace(unit, launched=launched)),
        facts=chosen.facts,
        code=code,
        seconds=first.seconds + time.monotonic() - start,
    )


def _code(
    kernels: Sequence[GeneratedKernel], folder: Path, disassembler: Disassembler | str
) -> list[Sequence[Instruction] | str]:
    """Machine code of each kernel of the object in a folder, or why it was not read."""
    from daceml.codegen_cuda.kernel_facts import mangled

    if isinstance(disassembler, str):
        return [disassembler] * len(kernels)
    functions = disassembler.functions(folder / "kernel.o")
    if isinstance(functions, str):
        return [functions] * len(kernels)
    found: list[Sequence[Instruction] | str] = []
    for kernel in kernels:
        begin = mangled(kernel.unit.launched.function)
        of = (code for name, code in functions.items() if name.startswith(begin))
        found.append(next(of, "the object has no machine code of it"))
    return found
