"""Every kernel of a case in emulation, alone, between closed pages and in two orders of its threads.

What a checker of memory finds on a device: accesses outside of arrays, memory that nothing has written, races
in shared memory, and barriers that not all threads reach.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.children import Tell, run_cases
from benchmarks.gpu.case import Case
from benchmarks.gpu.kernels import fused_programs
from daceml.codegen.planning.plan import make_plan
from daceml.codegen_cuda.device_objects import emulation_objects
from daceml.codegen_cuda.emulation.emulator import EmulatedUnit, Order, compile_unit
from daceml.codegen_cuda.kernel_unit import KernelUnit, kernel_unit
from daceml.config import config
from daceml.errors import ExecutionError
from daceml.onnx_ops.external import external_call
from daceml.runtime.torch_types import DTYPES
from daceml.sdfg.element_codes import torch_code
from daceml.sdfg.outline import Kernel
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import include_folder, toolchain

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_LIMIT_S = 120.0  # of one kernel
_MEMORY_BYTES = 64 << 30  # of address space, of which a torch with CUDA reserves much


def guarded(case: Case) -> dict[str, Any]:
    """Launch the kernels of a case one by one; `outside` names those with undefined behavior."""
    outside: list[str] = []
    known: dict[str, Kernel] = {}
    for part, made in fused_programs(case).parts.items():
        for kernel in make_plan(made.network, external_call, given=()).kernels:
            if not kernel.on_device or kernel.name in known:
                continue
            known[kernel.name] = kernel
            if fault := _fault(kernel):
                outside.append(f"{kernel_unit(kernel).launched.function} ({part}): {fault}")
    return {"kernels": len(known), "outside": outside}


def _fault(kernel: Kernel) -> str:
    arrays = random_arrays(kernel)
    if arrays is None:
        return ""
    unit = kernel_unit(kernel)
    with tempfile.TemporaryDirectory(prefix="daceml-guarded-") as scratch:
        scheduler = emulation_objects(Cache(config().cache_folder))
        made: EmulatedUnit = compile_unit(
            unit.text, Path(scratch), cxx=toolchain().cxx, scheduler=scheduler, includes=(include_folder(),)
        )
        given = [arrays[name] for name in unit.parameters]

        def work(_: int, tell: Tell) -> None:
            tell({"fault": _launched(made, unit, given)})

        # An access far outside meets other memory than a guard page, and may end the process.
        (outcome,) = run_cases(work, [0], processes=1, limit_s=_LIMIT_S, memory_bytes=_MEMORY_BYTES)
    if "fault" in outcome.told:
        return str(outcome.told["fault"])
    return f"its launch ended the process: {outcome.end}"


def _launched(made: EmulatedUnit, unit: KernelUnit, given: Sequence[Bytes]) -> str:
    """Launch a kernel in two orders; what it did that a device does not define, or empty."""
    try:
        first, second = (made.run(unit.launch, *given, order=o) for o in (Order.ASCENDING, Order.RANDOM))
    except ExecutionError as error:
        return error.why
    differing = [
        name for name, a, b in zip(unit.parameters, first, second, strict=True) if not np.array_equal(a, b)
    ]
    return f"{', '.join(differing)} depends on the order of threads" if differing else ""


def random_arrays(kernel: Kernel) -> dict[str, Bytes] | None:
    """The bytes of an array for each pointer of a kernel; None where sizes are not known.

    Positions are 0 and 1, in ascending order: within every array, and right as starts of segments.
    """
    generator = torch.Generator().manual_seed(0)
    arrays = {name: array for name, array in kernel.sdfg.arrays.items() if not array.transient}
    if kernel.sdfg.free_symbols - arrays.keys():
        return None
    positions = min([2, *(int(extent) for array in arrays.values() for extent in array.shape)])
    made: dict[str, Bytes] = {}
    for name in sorted(arrays):
        dtype, count = DTYPES[torch_code(arrays[name].dtype)], int(arrays[name].total_size)
        if dtype.is_floating_point:
            drawn = torch.randn(count, generator=generator).to(dtype)
        else:
            drawn = torch.randint(positions, (count,), generator=generator).sort().values.to(dtype)
        made[name] = drawn.view(torch.uint8).numpy()
    return made
