"""From a plan to a shared library: kernels compiled in parallel into cached objects, one driver linked around
them."""

from __future__ import annotations

from concurrent.futures import Future, as_completed
from pathlib import Path

from daceml.codegen.driver import driver_text
from daceml.codegen.driver_parts import parts_of
from daceml.codegen.kernel_objects import KernelObjects, lanes_object
from daceml.codegen.kernel_source import signature
from daceml.codegen.planning.plan import Plan
from daceml.codegen_cuda.device_objects import cuda_functions, emulation_objects
from daceml.codegen_cuda.toolchain import cuda_toolchain, nvtx_folder
from daceml.runtime.progress import publish
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import driver_header, toolchain_for, torch_header


def build_program(
    plan: Plan, cache: Cache, folder: Path, objects: KernelObjects | None = None, *, ranges: bool = False
) -> None:
    """Write `driver.cpp` and `program.so` of a plan into `folder`.

    Args:
        objects: what is compiled already, or on its way; it stays open.
        ranges: profilers see each step.
    Raises:
        BuildError: the compiler refused a kernel or the driver.
    """
    network = plan.network
    kernels = KernelObjects(cache, network.device, network.architecture) if objects is None else objects
    try:
        _build(plan, cache, folder, kernels, ranges=ranges)
    except BaseException:
        kernels.close()  # a refusal or Ctrl-C
        raise
    if objects is None:
        kernels.close()


def _build(plan: Plan, cache: Cache, folder: Path, kernels: KernelObjects, *, ranges: bool) -> None:
    tools, on_cuda = toolchain_for(plan.network.device), plan.network.device == "cuda"
    declared = kernels.pool.submit(torch_header, cache, tools)
    header = None if on_cuda else kernels.pool.submit(driver_header, cache)
    for done, kernel in enumerate(plan.kernels):
        publish("code", done, len(plan.kernels))
        kernels.begin(kernel)
    made = kernels.objects(plan.kernels)
    signatures = {k.name: signature(kernels.sources[k.name]) for k in plan.kernels}
    driver = driver_text(plan, signatures, ranges=ranges)
    # kernels of the processor call them
    lanes = [] if on_cuda else [kernels.pool.submit(lanes_object, cache)]
    nvtx = nvtx_folder() if ranges else None
    compiled = kernels.pool.submit(
        lambda: tools.compile_driver(
            driver, folder, declared.result(), header and header.result(), system=[nvtx] if nvtx else []
        )
    )
    made += [kernels.pool.submit(part.object, cache) for part in parts_of(plan.steps)]
    _await(made)
    compiled.result()
    linked = [one.result() for one in (*made, *lanes)]
    cudart = None
    if on_cuda:
        linked.append(cuda_functions(cache, kernels.architecture))
        cudart = cuda_toolchain(kernels.architecture).cudart
    elif any(kernel.on_device for kernel in plan.kernels):
        linked += emulation_objects(cache)
    tools.link_program(linked, folder, declared.result(), cudart=cudart)


def _await(objects: list[Future[Path]]) -> None:
    publish("kernels", 0, len(objects))
    for done, finished in enumerate(as_completed(objects), 1):
        finished.result()
        publish("kernels", done, len(objects))
