"""`daceml compile --export`: kernels for a CUDA device that is in another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daceml.cli.inputs import make_inputs, parse_dims
from daceml.cli.model_reference import resolve
from daceml.errors import ConfigurationError, ModelReferenceError

if TYPE_CHECKING:
    from daceml.cli.inputs import ModelInputs


def refuse_beside_export(options: Mapping[str, object]) -> None:
    """What has no meaning together with --export.

    Raises:
        ConfigurationError: one of them was given.
    """
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigurationError(
            f"{given[0]} was given beside --export",
            why="kernels are compiled for fixed sizes, by the recipe for devices; nothing else is written",
            fix=f"leave {given[0]} out, or compile twice",
        )


def resolve_call(
    reference: str,
    inputs: list[str] | None,
    inputs_file: Path | None,
    dims: list[str] | None,
    *,
    train: bool,
) -> tuple[Any, ModelInputs]:
    """A module and the arguments of a call.

    Raises:
        ModelReferenceError: it is a file of ONNX, whose programs are for the processor.
    """
    from daceml.module.onnx_model import ONNXModel

    model: Any = resolve(reference, train=train, dims=parse_dims(dims or ()))
    if isinstance(model, ONNXModel):
        raise ModelReferenceError(
            f"{model.name} was given with --export",
            why="files of ONNX are compiled for the processor",
            fix="name the PyTorch module: path.py:Name",
        )
    return model, make_inputs(model, inputs, dims, inputs_file)


def export_for_device(
    call: tuple[Any, ModelInputs], folder: Path, *, architecture: int | None, backward: bool
) -> dict[str, Any]:
    """What was compiled, for people and as JSON."""
    import torch

    from daceml.codegen_cuda.toolchain import cuda_toolchain
    from daceml.deployment.device_kernels import export_kernels
    from daceml.module.module import DaceModule, compile_module

    module, given = call
    tools = cuda_toolchain(architecture)
    chosen = module.session.options if isinstance(module, DaceModule) else {}
    compiled: Any = compile_module(module, **{**chosen, "backward": backward})
    with torch.set_grad_enabled(backward):
        made = export_kernels(
            compiled.session, given.args, given.kwargs, folder, architecture=tools.architecture
        )
    release = ".".join(map(str, tools.release))
    return {**asdict(made), "folder": str(folder), "architecture": tools.architecture, "cuda": release}


def exported_text(made: Mapping[str, Any]) -> str:
    """A sentence or two."""
    capability, megabytes = made["architecture"] / 10, made["size_bytes"] / 1e6
    return (
        f"{made['kernels']} kernels for compute capability {capability:.1f}, {megabytes:.1f} MB, "
        f"in {made['folder']}\n"
        f"beside the device, with CUDA {made['cuda']}: DACEML_CACHE={made['folder']}"
    )
