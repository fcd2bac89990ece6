"""From the arguments of a call to the tensors of a program: every input that does not fit is named."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import CallError
from daceml.runtime.torch_types import DTYPES

if TYPE_CHECKING:
    import numpy as np

    from daceml.runtime.manifest import TensorRecord


def collect_inputs(
    model: str, expected: Sequence[TensorRecord], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], bool]:
    """Contiguous tensors in the order of `expected`.

    Args:
        model: its name, for messages.
        expected: what the program takes.
        args: tensors or numpy arrays by position.
        kwargs: the others by name.
    Returns:
        the tensors, and whether all that came in were numpy arrays.
    Raises:
        CallError: wrong number, name, kind, element type, device or shape.
    """
    values = _by_name(model, [record.name for record in expected], args, kwargs)
    tensors = [_tensor(model, record, values[record.name]) for record in expected]
    symbols: dict[str, tuple[int, str]] = {}
    for record, tensor in zip(expected, tensors, strict=True):
        _check(model, record, tensor, symbols)
    numpy_came_in = bool(values) and not any(isinstance(value, torch.Tensor) for value in values.values())
    return [tensor.contiguous() for tensor in tensors], numpy_came_in


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The array that shares a tensor's memory."""
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes  # onnx needs it

    return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)


def signature(expected: Sequence[TensorRecord]) -> str:
    """The inputs of a program in words: `x: float32 (N, 3), mask: bool (N)`."""
    return ", ".join(f"{record.name}: {_type(record)}" for record in expected) or "no inputs"


def _by_name(model: str, names: list[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    takes = f"it takes {', '.join(names)}" if names else "it takes none"
    if len(args) > len(names):
        raise CallError(
            f"{model} was called with {len(args)} inputs by position and has {len(names)}",
            why=takes,
            fix="pass one tensor for each input",
        )
    values = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            lower = {known.lower(): known for known in names}
            close = [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n=1)]
            raise CallError(
                f"{model} has no input {name!r}",
                why=takes,
                fix=f"did you mean {close[0]!r}?" if close else "remove it",
            )
        if name in values:
            raise CallError(
                f"{model} was given input {name!r} twice",
                why=f"once by position, as input {names.index(name)}, and once by name",
                fix="pass it once",
            )
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise CallError(
            f"{model} was called without input {', '.join(map(repr, missing))}",
            why=takes,
            fix="pass one tensor for each input, in this order or by name",
        )
    return values


def _tensor(model: str, record: TensorRecord, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    import numpy as np

    if not isinstance(value, np.ndarray):
        raise CallError(
            f"input {record.name!r} of {model} is a {type(value).__name__}",
            why=f"it has to be {_type(record)}",
            fix="pass a torch.Tensor or a numpy array",
        )
    try:
        # torch can neither wrap memory that is read-only nor strides that are negative
        plain = value.flags.writeable and all(stride >= 0 for stride in value.strides)
        value = value if plain else value.copy()
        if str(value.dtype) == "bfloat16":  # numpy knows it through ml_dtypes only
            return torch.from_numpy(value.view(np.uint16)).view(torch.bfloat16)
        return torch.from_numpy(value)
    except (TypeError, ValueError) as error:
        raise _wrong_type(model, record, str(value.dtype)) from error


def _check(
    model: str, record: TensorRecord, tensor: torch.Tensor, symbols: dict[str, tuple[int, str]]
) -> None:
    dtype = DTYPES[record.dtype]
    if tensor.dtype != dtype:
        raise _wrong_type(model, record, str(tensor.dtype).removeprefix("torch."))
    if tensor.device.type != "cpu":
        raise CallError(
            f"input {record.name!r} of {model} lies on {tensor.device}",
            why="programs are compiled for the CPU",
            fix="pass input.cpu()",
        )
    reason = _shape_problem(record, tuple(tensor.shape), symbols)
    if reason:
        raise CallError(
            f"input {record.name!r} of {model} has shape {tuple(tensor.shape)}",
            why=f"it has to be {_type(record)}: {reason}",
            fix="pass a tensor of that shape; a named dimension takes any size, but one size a call",
        )


def _shape_problem(record: TensorRecord, shape: tuple[int, ...], symbols: dict[str, tuple[int, str]]) -> str:
    if len(shape) != len(record.shape):
        return f"{len(shape)} dimensions instead of {len(record.shape)}"
    for axis, (wanted, given) in enumerate(zip(record.shape, shape, strict=True)):
        if isinstance(wanted, int):
            if wanted != given:
                return f"dimension {axis} is {given} instead of {wanted}"
        elif wanted.isidentifier():
            size, first = symbols.setdefault(wanted, (given, record.name))
            if size != given:
                return f"dimension {axis} is {given}, but {wanted} is {size} in input {first!r}"
    return ""


def _wrong_type(model: str, record: TensorRecord, given: str) -> CallError:
    wanted = str(DTYPES[record.dtype]).removeprefix("torch.")
    return CallError(
        f"input {record.name!r} of {model} has element type {given}",
        why=f"it has to be {_type(record)}",
        fix=f"convert it: tensor.to(torch.{wanted}), array.astype({wanted!r})",
    )


def _type(record: TensorRecord) -> str:
    shape = ", ".join(map(str, record.shape)) + ("," if len(record.shape) == 1 else "")
    return f"{str(DTYPES[record.dtype]).removeprefix('torch.')} ({shape})"
