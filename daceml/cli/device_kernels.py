"""`daceml compile --device-kernels`: kernels for a CUDA device of another machine."""

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


def refuse_beside_kernels(options: Mapping[str, object]) -> None:
    """Refuse options that have no effect on the kernels of a device.

    Raises:
        ConfigurationError: one of them was given.
    """
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigurationError(
            f"{given[0]} does not go with --device-kernels",
            why="--device-kernels compiles for fixed sizes by the recipe for devices, and writes no more",
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
            f"{model.name} has no --device-kernels",
            why=".onnx files are compiled for the processor",
            fix="name the PyTorch module: path.py:Name",
        )
    return model, make_inputs(model, inputs, dims, inputs_file)


def compile_for_device(
    call: tuple[Any, ModelInputs], folder: Path, *, architecture: int | None, backward: bool
) -> dict[str, Any]:
    """What was compiled, for people and as JSON."""
    import torch

    from daceml.codegen_cuda.toolchain import cuda_toolchain
    from daceml.deployment.device_kernels import compile_device_kernels
    from daceml.module.module import DaceModule, compile_module

    module, given = call
    tools = cuda_toolchain(architecture)
    chosen = module.session.options if isinstance(module, DaceModule) else {}
    compiled: Any = compile_module(module, **{**chosen, "backward": backward})
    with torch.set_grad_enabled(backward):
        made = compile_device_kernels(
            compiled.session, given.args, given.kwargs, folder, architecture=tools.architecture
        )
    release = ".".join(map(str, tools.release))
    return {**asdict(made), "folder": str(folder), "architecture": tools.architecture, "cuda": release}


def device_kernels_text(made: Mapping[str, Any]) -> str:
    """A sentence or two."""
    capability, megabytes = made["architecture"] / 10, made["size_bytes"] / 1e6
    return (
        f"{made['kernels']} kernels for compute capability {capability:.1f}, {megabytes:.1f} MB, "
        f"in {made['folder']}\n"
        f"on the machine with the device and CUDA {made['cuda']}: DACEML_CACHE={made['folder']}"
    )
