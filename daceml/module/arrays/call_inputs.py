"""From the arguments of a call to the tensors of a program: every input that does not fit is named."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from daceml.errors import CallError
from daceml.module.arrays.array_kinds import Convert, results_like, to_numpy, to_tensor
from daceml.module.arrays.dlpack import NotAnArrayError
from daceml.runtime.torch_types import DTYPES

if TYPE_CHECKING:
    from daceml.runtime.records.manifest import TensorRecord

__all__ = ["collect_inputs", "signature", "to_numpy"]

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]


def collect_inputs(
    model: str, expected: Sequence[TensorRecord], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], Convert | None]:
    """Contiguous tensors in the order of `expected`.

    Args:
        model: its name, for messages.
        expected: what the program takes.
        args: tensors, numpy arrays, other arrays with `__dlpack__`, or numbers for rank 0, by position.
        kwargs: the others by name.
    Returns:
        the tensors, and what makes results the kind of what came in; None where they stay tensors.
    Raises:
        CallError: wrong number, name, kind, element type, device or shape.
    """
    values = by_name(model, [record.name for record in expected], args, kwargs)
    tensors = [_tensor(model, record, values[record.name]) for record in expected]
    symbols: dict[str, tuple[int, str]] = {}
    for record, tensor in zip(expected, tensors, strict=True):
        _check(model, record, tensor, symbols)
    plain = [tensor.resolve_conj().resolve_neg().contiguous() for tensor in tensors]
    return plain, results_like(values.values())


def signature(expected: Sequence[TensorRecord]) -> str:
    """The inputs of a program in words: `x: float32 (N, 3), mask: bool (N)`."""
    return ", ".join(f"{record.name}: {_type(record)}" for record in expected) or "no inputs"


def by_name(
    model: str,
    names: Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    optional: Collection[str] = (),
) -> dict[str, Any]:
    """The values of a call by the names of what it takes; `optional` ones may be absent.

    Raises:
        CallError: too many values, a name that nothing has, a value given twice or not at all.
    """
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
    missing = [name for name in names if name not in values and name not in optional]
    if missing:
        raise CallError(
            f"{model} was called without input {', '.join(map(repr, missing))}",
            why=takes,
            fix="pass one tensor for each input, in this order or by name",
        )
    return values


def _tensor(model: str, record: TensorRecord, value: Any) -> torch.Tensor:
    try:
        return to_tensor(value, DTYPES[record.dtype])
    except NotAnArrayError as error:
        raise CallError(
            f"input {record.name!r} of {model} {error.what}",
            why=f"it has to be {_type(record)}",
            fix=error.fix,
        ) from error


def _check(
    model: str, record: TensorRecord, tensor: torch.Tensor, symbols: dict[str, tuple[int, str]]
) -> None:
    if problem := not_plain(tensor):
        what, fix = problem
        raise CallError(
            f"input {record.name!r} of {model} {what}", why="generated code reads plain dense memory", fix=fix
        )
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


def not_plain(tensor: torch.Tensor) -> tuple[str, str] | None:
    """What a tensor is besides its memory, and how to get rid of that."""
    if type(tensor) not in _PLAIN:
        kind = type(tensor).__name__
        return (
            f"is a tensor subclass, {kind}",
            "pass input.as_subclass(torch.Tensor), if its memory alone matters",
        )
    if _is_wrapped(tensor):
        return "belongs to a function transform (vmap, grad, jvp)", "call the model outside of the transform"
    if tensor.layout is not torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        return f"is stored as {layout}", "pass input.to_dense()"
    if tensor.is_quantized:
        return "is quantised", "pass input.dequantize(), or input.int_repr() for a model that takes integers"
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:  # pyright: ignore[reportPrivateUsage]
        return (
            "carries a forward-mode tangent",
            "pass the primal: programs of ONNX models compute no derivatives",
        )
    if tensor.device.type == "cpu" and _missing_bytes(tensor) > 0:
        return f"lacks {_missing_bytes(tensor)} bytes of its memory", "pass it before its storage is resized"
    return None


def _missing_bytes(tensor: torch.Tensor) -> int:
    """Bytes that a tensor's sizes claim beyond the end of its storage, which somebody has made smaller."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    claimed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return int(claimed - tensor.untyped_storage().nbytes())


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
