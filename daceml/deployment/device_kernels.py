"""Kernels of a module for CUDA devices, compiled on a machine that may have none."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from daceml.codegen.kernel_objects import KernelObjects
from daceml.codegen_cuda.device_objects import cuda_functions
from daceml.codegen_cuda.toolchain import device_architecture
from daceml.compiler.call import making_of
from daceml.compiler.gradient_request import gradients_wanted
from daceml.compiler.guards import call_key, named_key
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.call_device import without_autocast
from daceml.frontend.capture.capture import capture
from daceml.frontend.capture.trace_lock import tracing
from daceml.garbage_collection import without_collection
from daceml.toolchain.cache import Cache

if TYPE_CHECKING:
    from daceml.module.session import Session


@dataclass(frozen=True, kw_only=True)
class ExportedKernels:
    """What was written.

    Attributes:
        kernels: how many there are.
        size_bytes: of all their files.
    """

    kernels: int
    size_bytes: int


def compile_device_kernels(
    session: Session,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    folder: Path,
    *,
    architecture: int | None = None,
) -> ExportedKernels:
    """Compile the kernels of a call for a CUDA device, and copy them into a cache of their own.

    A machine that has a device, and the same release of CUDA, finds them there: `DACEML_CACHE=FOLDER`.

    Args:
        session: of a compiled module; with gradients those of its backward pass are compiled, too.
        args, kwargs: of the call, on the CPU.
        folder: of a cache; made where there is none, and added to.
        architecture: 90 for compute capability 9.0; that of the device of this machine where None, else 9.0.
    Raises:
        EnvironmentProblem: there is no CUDA compiler.
        ExportError, NoImplementationError, ShapeError, BuildError: see `compile_variant`.
    """
    arguments, stages = Arguments(args, kwargs), Stages()
    architecture = architecture or device_architecture()
    modes = named_key(call_key(arguments.tensors)).modes
    request = session.request
    with tracing(), without_autocast():
        gradients = gradients_wanted(request, arguments, modes)
        with torch.set_grad_enabled(modes.grad_enabled):
            captured = capture(request.module, arguments, autocast=modes.autocast, gradients=gradients)
        making, _ = making_of(request, arguments, modes, captured, stages)
        objects = KernelObjects(making.cache, "cuda", architecture)
        making = replace(making, device=torch.device("cuda"), architecture=architecture, objects=objects)
        with torch.no_grad(), without_collection():
            for part in making.optimised():
                objects.begin_all(part.network)
        common = cuda_functions(making.cache, architecture).parent
    made = [_copied(entry, Cache(folder)) for entry in (*objects.folders(), common)]
    files = [file for entry in made for file in entry.iterdir()]
    return ExportedKernels(kernels=len(made) - 1, size_bytes=sum(file.stat().st_size for file in files))


def _copied(entry: Path, cache: Cache) -> Path:
    def copy(folder: Path) -> None:
        for file in entry.iterdir():
            if file.name != "entry.json":
                shutil.copy2(file, folder)

    return cache.get("kernels", entry.name, copy)
