"""Inputs of a model from the command line: `8,3,224,224`, `2,128:int64`, or what an ONNX file says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from daceml.errors import ModelReferenceError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from daceml.frontend.onnx_model import ONNXModel

DEFAULT_SIZE = 2  # of a named dimension; not 1, which would broadcast
_TYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip


def make_inputs(
    model: nn.Module | ONNXModel, texts: Sequence[str], dims: Sequence[str]
) -> tuple[torch.Tensor, ...]:
    """Random tensors, the same ones every time.

    Args:
        model: an ONNX model has inputs of its own, used where no texts are given.
        texts: values of `--input`.
        dims: values of `--dim`, for ONNX models.
    Raises:
        ModelReferenceError: a text that is no shape, type or size.
    """
    import torch

    from daceml.frontend.onnx_model import ONNXModel

    generator = torch.Generator().manual_seed(0)
    if texts:
        wanted = [parse_input(text) for text in texts]
    elif isinstance(model, ONNXModel):
        wanted = _declared(model, parse_dims(dims))
    else:
        wanted = []
    return tuple(_draw(shape, kind, generator) for shape, kind in wanted)


def parse_input(text: str) -> tuple[tuple[int, ...], str]:
    """`2,128:int64` -> ((2, 128), "int64"); `:float32` is a scalar.

    Raises:
        ModelReferenceError: it does not parse.
    """
    sizes, colon, kind = text.partition(":")
    kind = kind.strip() if colon else "float32"
    parts = [part.strip() for part in sizes.split(",") if part.strip()] if sizes.strip() else []
    if kind not in _TYPES:
        raise _refuse(text, f"{kind!r} is none of {', '.join(_TYPES)}")
    if not all(part.isdecimal() for part in parts) or (not parts and not colon):
        raise _refuse(text, "a shape is whole numbers with commas between")
    return tuple(map(int, parts)), kind


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


def _declared(model: ONNXModel, sizes: Mapping[str, int]) -> list[tuple[tuple[int, ...], str]]:
    import onnx

    graph = model.model.graph
    data = {tensor.name for tensor in graph.initializer}
    wanted: list[tuple[tuple[int, ...], str]] = []
    names: set[str] = set()
    for value in (i for i in graph.input if i.name not in data):
        tensor = value.type.tensor_type
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        kind = {"float": "float32", "double": "float64"}.get(kind, kind)
        if kind not in _TYPES:
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
        wanted.append((tuple(shape), kind))
    if unknown := sorted(set(sizes) - names):
        raise ModelReferenceError(
            f"{model.name} has no dimension named {', '.join(unknown)}",
            why=f"its inputs have {', '.join(sorted(names)) or 'no named dimensions'}",
            fix="correct the name in --dim",
        )
    return wanted


def _draw(shape: tuple[int, ...], kind: str, generator: torch.Generator) -> torch.Tensor:
    import torch

    dtype: torch.dtype = getattr(torch, kind)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def _refuse(text: str, why: str) -> ModelReferenceError:
    return ModelReferenceError(
        f"--input {text} is no input", why=why, fix="write for example 8,3,224,224 or 2,128:int64"
    )
