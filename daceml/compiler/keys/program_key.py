"""The key of a compiled program: everything that decides what is generated, and nothing else."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch

from daceml.codegen_cuda.toolchain import cuda_toolchain, nvtx_folder
from daceml.compiler.keys.recipe_key import recipe_key
from daceml.config import PACKAGE_FOLDER, config
from daceml.frontend.capture.module_attributes import places
from daceml.frontend.onnx_export.chosen_implementations import chosen_implementations
from daceml.frontend.onnx_export.chosen_kernels import torch_kernels
from daceml.toolchain.cache import digest
from daceml.toolchain.cxx import toolchain_for

if TYPE_CHECKING:
    import onnx
    from torch.export import ExportedProgram

    from daceml.compiler.stages.recomputation import Recomputation
    from daceml.runtime.records.gradients import Wanted
    from daceml.sdfg.network import Device
    from daceml.transformations.recipe import Recipe

# whose versions are part of every key
LIBRARIES = ("torch", "dace", "onnx", "onnx-ir", "onnxscript", "onnxruntime")


def program_key(
    program: ExportedProgram,
    *,
    auto_optimize: bool = True,
    freeze: bool = False,
    wanted: Wanted | None = None,
    recomputation: Recomputation | None = None,
    prefer_native: bool = False,
    recipe: Recipe | None = None,
    verify: bool = False,
    device: Device = "cpu",
    architecture: int | None = None,
    ranges: bool = False,
    averaging: str | None = None,
) -> str:
    """Hash of the graph, its signature, shapes, ties, constants, the options, versions and daceml's sources.

    Of a recipe it has the sources of all passes; a recipe that cannot be stored makes a key of its own.

    Values of parameters and buffers are not part of it: programs are bound to them when they are loaded.
    """
    buffers = frozenset(program.graph_signature.buffers)
    first: dict[object, str] = {}
    return digest(
        # parts under autocast or no_grad are graphs of their own, which the outer one only names
        *(
            f"{path} {part.graph}"
            for path, part in program.graph_module.named_modules()
            if hasattr(part, "graph")
        ),
        repr(program.graph_signature),
        *(f"torch's kernel {name}" for name in torch_kernels(program)),
        *(f"implementation {item}" for item in chosen_implementations(program).items()),
        *(_describe(n.name, n.meta.get("val")) for n in program.graph.nodes if n.op == "placeholder"),
        *(_content(n, value) for n, value in sorted(program.constants.items()) if n not in buffers),
        # several names of one tensor are one weight of the program
        *(f"{name} {first.setdefault(place, name)}" for name, place in places(program)),
        repr(sorted(str(item) for item in program.range_constraints.items())),
        # what torch concluded about sizes from the example's own: equal graphs may differ in it
        *(_sizes(n.meta.get("val")) for n in program.graph.nodes if program.range_constraints),
        f"auto_optimize {auto_optimize} freeze {freeze}",
        # how gradients come about matters to what has some only
        f"gradients {wanted} {recomputation} native {prefer_native and wanted is not None}",
        # what was verified once need not be again; what was not has to be
        f"recipe {recipe_key(recipe)} verified {verify}",
        *_instrumentation(ranges),
        *(() if averaging is None else (f"averaging {averaging}",)),
        # what tensors that forward makes are, where it does not say
        f"{torch.get_default_dtype()}",
        *(() if device == "cpu" else (device, cuda_toolchain(architecture).fingerprint)),
        *_surroundings(device),
    )


def model_key(
    model: onnx.ModelProto, dims: Mapping[str, int], bound: Collection[str] = (), *, ranges: bool = False
) -> str:
    """Hash of everything in a model that has a meaning, and of what surrounds it.

    Args:
        model: hashed in parts, since protobuf writes no message above 2 GB.
        dims: values given to named dimensions.
        bound: initializers that the program is bound to when it is loaded; their values are not part of it.
    """
    graph, names = model.graph, frozenset(bound)
    interface = (model.opset_import, model.functions, model.metadata_props, graph.input, graph.output)
    content = (graph.node, graph.sparse_initializer, graph.value_info)
    data = [tensor for tensor in graph.initializer if tensor.name not in names]
    sha = hashlib.sha256()
    for number, parts in enumerate((*interface, *content, data)):
        for part in parts:
            text = part.SerializeToString(deterministic=True)
            sha.update(f"{number} {len(text)} ".encode())
            sha.update(text)
    weights = [(t.name, t.data_type, tuple(t.dims)) for t in graph.initializer if t.name in names]
    return digest(
        "onnx",
        sha.hexdigest(),
        repr(weights),
        repr(sorted(dims.items())),
        *_instrumentation(ranges),
        *_surroundings(),
    )


def _instrumentation(ranges: bool) -> tuple[str, ...]:
    """What a program with ranges around its steps depends on besides."""
    return (f"ranges {nvtx_folder()}",) if ranges else ()


def _surroundings(device: Device = "cpu") -> tuple[str, ...]:
    """What decides what is generated besides the program: options, compiler, versions, our own sources."""
    options = config()
    return (
        f"{options.fallback} {options.parallel_threshold} {options.streaming_bytes}",
        f"{options.public_exporter}",
        toolchain_for(device).fingerprint,
        *_versions(),
        package_digest(),
        *_registered_by_users(),
    )


def _registered_by_users() -> tuple[str, ...]:
    """Implementations and rules that are not daceml's; who has any has loaded the registry."""
    registry = sys.modules.get("daceml.onnx_ops.registry")
    if registry is None:
        return ()
    return tuple(
        f"{row.domain} {row.op_type} {row.title} {row.rank} {_source(row.function)}"
        for row in registry.foreign_implementations()
    )


def _source(function: Callable[..., object]) -> str:
    """The text of a function; where there is none, its instructions."""
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        code = getattr(inspect.unwrap(function), "__code__", None)
        return repr(function) if code is None else f"{code.co_code.hex()} {code.co_consts}"


@lru_cache(maxsize=1)
def package_digest() -> str:
    """Hash of daceml's own sources: a change in any of them may change what is generated."""
    sha = hashlib.sha256()
    for file in sorted(PACKAGE_FOLDER.rglob("*")):
        if file.suffix in (".py", ".h", ".cpp", ".cu"):
            sha.update(file.relative_to(PACKAGE_FOLDER).as_posix().encode())
            sha.update(file.read_bytes())
    return sha.hexdigest()


@lru_cache(maxsize=1)
def _versions() -> tuple[str, ...]:
    return tuple(f"{name} {version(name)}" for name in LIBRARIES)


def _describe(name: str, value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{name} {value.dtype} {tuple(value.shape)} {tuple(value.stride())} {value.device}"
    return f"{name} {value!r}"


def _sizes(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return str(tuple(value.shape))
    return ", ".join(map(_sizes, value)) if isinstance(value, list | tuple) else str(value)


def _content(name: str, value: object) -> str:
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return f"{_describe(name, value)} {hashlib.sha256(data).hexdigest()}"
    return f"{name} {value!r}"
