"""From a plan to a shared library: kernels compiled in parallel into cached objects, one driver linked around
them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from dace.codegen import codegen

from daceml.config import config
from daceml.runtime.cache import Cache, digest
from daceml.runtime.driver import driver_text
from daceml.runtime.plan import Plan
from daceml.runtime.toolchain import precompiled_header, toolchain
from daceml.sdfg.outline import Kernel

log = logging.getLogger(__name__)

# what every generated kernel includes; the precompiled header stands for it
_GENERATED_INCLUDES = re.compile(
    r'^#include ["<](dace/dace\.h|\.\./\.\./include/hash\.h)[">]\n', re.MULTILINE
)
_DEFINITION = re.compile(r"^DACE_EXPORTED void __program_\w+\((?P<parameters>[^)]*)\)", re.MULTILINE)


def kernel_source(kernel: Kernel) -> str:
    """C++ source of one kernel, by DaCe's code generator."""
    main = next(o for o in codegen.generate_code(kernel.sdfg, validate=True) if o.name == kernel.name)
    return _GENERATED_INCLUDES.sub("", main.clean_code)


def signature(source: str) -> tuple[str, ...]:
    """Parameter names of a kernel's entry, without the state: `a00, a01, …, s00, …`."""
    found = _DEFINITION.search(source)
    assert found is not None, "DaCe's code has an entry"
    parameters = [p.strip() for p in found["parameters"].split(",")]
    return tuple(re.split(r"[\s*]+", p)[-1] for p in parameters[1:])


def build_program(plan: Plan, cache: Cache, folder: Path) -> None:
    """Write `driver.cpp` and `program.so` of a plan into `folder`.

    Raises:
        BuildError: the compiler refused a kernel or the driver.
    """
    objects, signatures = _compile_kernels(plan.kernels, cache)
    toolchain().link_program(driver_text(plan, signatures), objects, folder)


def _compile_kernels(
    kernels: Sequence[Kernel], cache: Cache
) -> tuple[list[Path], dict[str, tuple[str, ...]]]:
    if not kernels:
        return [], {}
    tools = toolchain()
    pending: list[Future[Path]] = []
    signatures: dict[str, tuple[str, ...]] = {}
    with ThreadPoolExecutor(max_workers=config().compile_jobs) as pool:
        header = pool.submit(precompiled_header, cache)

        def compile_one(source: str) -> Path:
            folder_of_header = header.result()
            entry = cache.get(
                "kernels",
                digest(tools.fingerprint, source),
                lambda folder: tools.compile_kernel(source, folder, folder_of_header),
            )
            return entry / "kernel.o"

        # DaCe generates in this thread while the compilers run in others
        for kernel in kernels:
            source = kernel_source(kernel)
            signatures[kernel.name] = signature(source)
            pending.append(pool.submit(compile_one, source))
        return [p.result() for p in pending], signatures
