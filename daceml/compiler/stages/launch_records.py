"""How the kernels of a program run on a device, as the manifest keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dace
import sympy

from daceml.runtime.records.manifest import LaunchRecord
from daceml.sdfg.outline import KernelCall
from daceml.sdfg.sizes import Size, product, size
from daceml.sdfg.tensor_lists import ListCall

if TYPE_CHECKING:
    from daceml.codegen.kernel_objects import KernelObjects
    from daceml.codegen.planning.plan import Plan
    from daceml.codegen.planning.steps import Action
    from daceml.codegen_cuda.kernel_facts import CompiledFacts
    from daceml.codegen_cuda.kernel_unit import KernelLaunch


@dataclass(frozen=True, kw_only=True)
class BuiltLaunch:
    """How a kernel is launched, and what the CUDA compiler said of its object; None in emulation."""

    launch: KernelLaunch
    compiled: CompiledFacts | None


def built_launches(plan: Plan, objects: KernelObjects) -> dict[str, BuiltLaunch]:
    """Name -> launch, of the kernels of a program that are for a device; they are compiled."""
    names = [kernel.name for kernel in plan.kernels if kernel.name in objects.launches]
    return {name: BuiltLaunch(launch=objects.launches[name], compiled=objects.facts(name)) for name in names}


def launch_record(
    action: Action, launches: Mapping[str, BuiltLaunch], sizes: Mapping[str, int]
) -> LaunchRecord | None:
    """Of a step that launches a kernel; None of any other one.

    Args:
        sizes: of the example inputs, by the program's symbols.
    """
    if not isinstance(action, KernelCall | ListCall) or action.kernel.name not in launches:
        return None
    built = launches[action.kernel.name]
    compiled, launch = built.compiled, built.launch
    if compiled is not None and compiled.threads is not None:
        launch = launch.with_threads(compiled.threads)
    grid = tuple(_of_program(extent, action) for extent in launch.grid)
    block = tuple(_of_program(extent, action) for extent in launch.block)
    return LaunchRecord(
        function=launch.function,
        grid=_written(grid),
        block=_written(block),
        blocks=_at(product(grid), sizes),
        threads=_at(product(block), sizes),
        shared_bytes=launch.shared_bytes,
        goes_round=launch.goes_round,
        architecture=None if compiled is None else compiled.architecture,
        facts=None if compiled is None else compiled.of(launch.function),
    )


def _of_program(extent: Size, action: KernelCall | ListCall) -> Size:
    """A size over the symbols of a kernel, over those of the program that calls it."""
    if isinstance(extent, int):
        return extent
    if isinstance(action, ListCall):
        return size(extent.subs(dict.fromkeys(extent.free_symbols, action.elements)))
    names = {f"s{i:02d}": symbol for i, symbol in enumerate(action.symbols)}
    return size(extent.subs({s: _symbol(names[str(s)]) for s in extent.free_symbols}))


def _symbol(name: str) -> sympy.Symbol:
    return dace.symbol(name)


def _written(extents: tuple[Size, ...]) -> tuple[int | str, ...]:
    return tuple(extent if isinstance(extent, int) else str(extent) for extent in extents)


def _at(amount: Size, sizes: Mapping[str, int]) -> int:
    if isinstance(amount, int):
        return amount
    return int(size(amount.subs({s: sizes[str(s)] for s in amount.free_symbols})))  # pyright: ignore[reportArgumentType]
