"""Inputs of a model from the command line: `--input`, `--inputs`, or what an ONNX file says itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daceml.cli.input_file import load_inputs
from daceml.cli.input_text import TYPES, TensorText, parse_input
from daceml.errors import ModelReferenceError
from daceml.runtime.timing.available_memory import available_bytes

if TYPE_CHECKING:
    from torch import nn

    from daceml.module.onnx_model import ONNXModel

DEFAULT_SIZE = 2  # of a named dimension; not 1, which would broadcast


@dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def make_inputs(
    model: nn.Module | ONNXModel,
    texts: Sequence[str] | None = None,
    dims: Sequence[str] | None = None,
    file: Path | None = None,
) -> ModelInputs:
    """What the model is called with; random tensors are the same ones every time.

    Args:
        model: an ONNX model has inputs of its own, used where none are given.
        texts: values of `--input`.
        dims: values of `--dim`, for ONNX models.
        file: value of `--inputs`.
    Raises:
        ModelReferenceError: a text that is no shape, type or size, a file that cannot be read, or inputs that
            the model cannot be called with.
    """
    import torch

    from daceml.module.onnx_model import ONNXModel

    if texts and file is not None:
        raise ModelReferenceError(
            "--input and --inputs were both given",
            why="the file has every input",
            fix="leave one of them out",
        )
    onnx_model = isinstance(model, ONNXModel)
    if dims and not onnx_model:
        raise ModelReferenceError(
            "--dim was given for a module",
            why="only .onnx files have named dimensions",
            fix="write the sizes in --input",
        )
    if file is not None:
        args, kwargs = load_inputs(file)
    else:
        wanted = [parse_input(text) for text in texts or ()]
        if isinstance(model, ONNXModel):
            wanted = wanted or _declared(model, parse_dims(dims or ()))
        _check_memory(wanted)
        generator = torch.Generator().manual_seed(0)
        args, kwargs = tuple(text.draw(generator) for text in wanted), {}
    if not isinstance(model, ONNXModel):
        _check_call(model, args, kwargs)
    return ModelInputs(args=args, kwargs=kwargs)


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """`["batch=8"]` -> {"batch": 8}.

    Raises:
        ModelReferenceError: it does not parse.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdecimal():
            raise ModelReferenceError(
                f"--dim {text} is no size", why="it has to be NAME=SIZE", fix="write for example batch=8"
            )
        sizes[name] = int(size)
    return sizes


def _declared(model: ONNXModel, sizes: Mapping[str, int]) -> list[TensorText]:
    import onnx

    graph = model.model.graph
    data = {tensor.name for tensor in graph.initializer}
    wanted: list[TensorText] = []
    names: set[str] = set()
    for value in (i for i in graph.input if i.name not in data):
        tensor = value.type.tensor_type
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        kind = {"float": "float32", "double": "float64"}.get(kind, kind)
        if kind not in TYPES:
            raise ModelReferenceError(
                f"no values can be made up for input {value.name!r} of {model.name}",
                why=f"its element type is {kind}",
                fix="call the model from Python with daceml.ONNXModel",
            )
        names |= {dim.dim_param for dim in tensor.shape.dim if dim.dim_param}
        shape = (
            dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, DEFAULT_SIZE)
            for dim in tensor.shape.dim
        )
        wanted.append(TensorText(shape=tuple(shape), kind=kind))
    if unknown := sorted(set(sizes) - names):
        raise ModelReferenceError(
            f"{model.name} has no dimension named {', '.join(unknown)}",
            why=f"its inputs have {', '.join(sorted(names)) or 'no named dimensions'}",
            fix="correct the name in --dim",
        )
    return wanted


def _check_call(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a number or names of inputs that forward does not take, before anything is compiled."""
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = type(module).__name__
        given = len(args) + len(kwargs)
        raise ModelReferenceError(
            f"{name} cannot be called with {given} input{'' if given == 1 else 's'}",
            why=f"{error}; it is {name}{signature}",
            fix="pass one --input SHAPE[:TYPE] for each tensor, in order, or a file with --inputs",
        ) from error


def _check_memory(wanted: Sequence[TensorText]) -> None:
    """Inputs that fill the memory would have the process killed without a word."""
    needed, free = sum(text.size_bytes for text in wanted), available_bytes()
    if free is not None and needed > free:
        raise ModelReferenceError(
            "the inputs do not fit into memory",
            why=f"they take {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB are available",
            fix="ask for smaller sizes",
        )
