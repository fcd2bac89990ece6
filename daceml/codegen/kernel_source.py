"""The text of a kernel, by DaCe's code generator, and what its entry takes."""

from __future__ import annotations

import re
from functools import lru_cache

from dace.codegen import codegen

from daceml.codegen.loop_hints import with_bools_as_bytes, with_independent_iterations
from daceml.codegen_cuda.kernel_unit import kernel_unit
from daceml.sdfg.outline import Kernel
from daceml.sdfg.scopes import top_maps
from daceml.transformations.hardware.sum_blocks import with_sums_in_blocks

# what every generated kernel includes; the precompiled header stands for it
_GENERATED_INCLUDES = re.compile(
    r'^#include ["<](dace/dace\.h|\.\./\.\./include/hash\.h)[">]\n', re.MULTILINE
)
# in which the plain names of special functions are those of `daceml/vector_math.h`
_NAMESPACE = "daceml::kernel"
_DEFINITION = re.compile(
    r'^(?:DACE_EXPORTED void (?=__program_)|extern "C" int (?=daceml_launch_))'
    r"(?P<name>\w+)\((?P<parameters>[^)]*)\)",
    re.MULTILINE,
)


@lru_cache(maxsize=1024)
def kernel_source(kernel: Kernel) -> str:
    """C++ or CUDA source of one kernel, by DaCe's code generator."""
    if kernel.on_device:
        return kernel_unit(kernel).text
    sdfg = with_sums_in_blocks(kernel.sdfg)
    main = next(o for o in codegen.generate_code(sdfg, validate=True) if o.name == kernel.name)
    (state,) = sdfg.states()
    (entry,) = top_maps(state)
    source = _GENERATED_INCLUDES.sub("", main.clean_code)
    source = with_bools_as_bytes(with_independent_iterations(source, len(entry.map.params)))
    return f"namespace {_NAMESPACE} {{\n{source}\n}}\n"


def entry_of(source: str) -> str:
    """Name of the function that a kernel exports to drivers."""
    return _entry(source)["name"]


def signature(source: str) -> tuple[str, ...]:
    """Parameter names of a kernel's entry, without the state or stream: `a00, a01, …, s00, …`."""
    found = _entry(source)
    parameters = [p.strip() for p in found["parameters"].split(",")]
    return tuple(re.split(r"[\s*]+", p)[-1] for p in parameters[1:])


def _entry(source: str) -> re.Match[str]:
    found = _DEFINITION.search(source)
    assert found is not None, "DaCe's code has an entry"
    return found
