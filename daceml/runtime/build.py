"""From a plan to a shared library: kernels compiled in parallel into cached objects, one driver linked around
them."""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from dace.codegen import codegen
from dace.sdfg import nodes

from daceml.codegen_cuda.kernel_unit import kernel_unit
from daceml.config import config
from daceml.runtime.cache import Cache, digest
from daceml.runtime.device_objects import device_object, scheduler_objects
from daceml.runtime.driver import driver_text, own_convolutions
from daceml.runtime.loop_hints import with_bools_as_bytes, with_independent_iterations
from daceml.runtime.plan import Plan
from daceml.runtime.progress import publish
from daceml.runtime.toolchain import precompiled_header, toolchain, torch_header
from daceml.sdfg.outline import Kernel

# what every generated kernel includes; the precompiled header stands for it
_GENERATED_INCLUDES = re.compile(
    r'^#include ["<](dace/dace\.h|\.\./\.\./include/hash\.h)[">]\n', re.MULTILINE
)
# in which the plain names of special functions are those of `daceml/vector_math.h`
_NAMESPACE = "daceml::kernel"
_CONVOLUTIONS = Path(__file__).with_name("convolutions.cpp")
_DEFINITION = re.compile(
    r'^(DACE_EXPORTED void __program_|extern "C" int daceml_launch_)\w+\((?P<parameters>[^)]*)\)',
    re.MULTILINE,
)


def kernel_source(kernel: Kernel) -> str:
    """C++ or CUDA source of one kernel, by DaCe's code generator."""
    if kernel.on_device:
        return kernel_unit(kernel).text
    main = next(o for o in codegen.generate_code(kernel.sdfg, validate=True) if o.name == kernel.name)
    (state,) = kernel.sdfg.states()
    scopes = state.scope_dict()
    (entry,) = [n for n in state.nodes() if isinstance(n, nodes.MapEntry) and scopes[n] is None]
    source = _GENERATED_INCLUDES.sub("", main.clean_code)
    source = with_bools_as_bytes(with_independent_iterations(source, len(entry.map.params)))
    return f"namespace {_NAMESPACE} {{\n{source}\n}}\n"


def signature(source: str) -> tuple[str, ...]:
    """Parameter names of a kernel's entry, without the state or stream: `a00, a01, …, s00, …`."""
    found = _DEFINITION.search(source)
    assert found is not None, "DaCe's code has an entry"
    parameters = [p.strip() for p in found["parameters"].split(",")]
    return tuple(re.split(r"[\s*]+", p)[-1] for p in parameters[1:])


def build_program(plan: Plan, cache: Cache, folder: Path) -> None:
    """Write `driver.cpp` and `program.so` of a plan into `folder`.

    Raises:
        BuildError: the compiler refused a kernel or the driver.
    """
    tools = toolchain()
    sources: dict[str, str] = {}
    for kernel in plan.kernels:
        publish("code", len(sources), len(plan.kernels))
        sources[kernel.name] = kernel_source(kernel)
    driver = driver_text(plan, {name: signature(source) for name, source in sources.items()})
    on_device = {kernel.name for kernel in plan.kernels if kernel.on_device}
    texts = [source for name, source in sources.items() if name not in on_device]
    texts += [_CONVOLUTIONS.read_text()] if own_convolutions(plan) else []
    with ThreadPoolExecutor(max_workers=config().compile_jobs) as pool:
        # the driver takes longest, so it goes first
        compiled = pool.submit(lambda: tools.compile_driver(driver, folder, torch_header(cache)))
        objects = [pool.submit(_kernel_object, text, cache) for text in texts]
        objects += [pool.submit(device_object, sources[name], cache) for name in sorted(on_device)]
        try:
            _await(objects)
            compiled.result()
        except BaseException:
            # a refusal or Ctrl-C: what has not been started yet is not worth waiting for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    made = [one.result() for one in objects]
    made += scheduler_objects(cache) if on_device else []
    tools.link_program(made, folder, torch_header(cache))


def _await(objects: list[Future[Path]]) -> None:
    publish("kernels", 0, len(objects))
    for done, finished in enumerate(as_completed(objects), 1):
        finished.result()
        publish("kernels", done, len(objects))


def _kernel_object(source: str, cache: Cache) -> Path:
    tools = toolchain()
    header = precompiled_header(cache)
    key = digest(tools.fingerprint, source)
    return cache.get("kernels", key, lambda folder: tools.compile_kernel(source, folder, header)) / "kernel.o"
