"""Arrays of other libraries as tensors and back, without a copy where the memory allows it."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np

Convert = Callable[[torch.Tensor], Any]


class NotAnArrayError(Exception):
    """A value that is no array, or one that holds no numbers; the text says what it is and what helps."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


def to_tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor that shares the value's memory where torch can address it.

    Args:
        value: a tensor, a numpy array or scalar, an object with `__dlpack__`, or a Python number.
        dtype: that is wanted; Python numbers take it if it holds them exactly, other values keep their own.
    Raises:
        NotAnArrayError: something else.
    """
    if isinstance(value, torch.Tensor):
        return value
    if _is_numpy(value):  # before numbers: numpy's float64 is a float
        return _from_numpy(value)
    if isinstance(value, bool | int | float | complex):
        return _from_number(value, dtype)
    if hasattr(type(value), "__dlpack__"):
        return _from_dlpack(value)
    kind = type(value).__name__
    fix = "pass a torch.Tensor, a numpy array, or any array with __dlpack__"
    if isinstance(value, list | tuple):
        fix = "convert it, and say which element type it has: torch.tensor(values, dtype=...)"
    raise NotAnArrayError(f"is a {kind}", fix)


def results_like(values: Iterable[Any]) -> Convert | None:
    """How results are made the kind of what came in; None where they stay tensors.

    One tensor among the inputs makes them tensors; else arrays of a library that says how to make its own
    (`__array_namespace__().from_dlpack`) make them that; else numpy arrays make them numpy arrays.
    """
    values = [
        value for value in values if not isinstance(value, bool | int | float | complex) or _is_numpy(value)
    ]
    if not values or any(isinstance(value, torch.Tensor) for value in values):
        return None
    foreign = [value for value in values if not _is_numpy(value)]
    if not foreign:
        return to_numpy
    namespace = _namespace(foreign[0])
    return None if namespace is None else namespace.from_dlpack


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The array that shares a tensor's memory."""
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes  # onnx needs it

    return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)


def _is_numpy(value: Any) -> bool:
    import numpy as np

    return isinstance(value, np.ndarray | np.generic)


def _from_number(value: complex, dtype: torch.dtype) -> torch.Tensor:
    try:
        tensor = torch.tensor(value, dtype=dtype)
    except (RuntimeError, OverflowError, TypeError, ValueError):
        tensor = None
    held = None if tensor is None else tensor.item()
    same_kind = isinstance(value, bool) == (dtype is torch.bool)
    if tensor is None or not same_kind or not (held == value or (held != held and value != value)):
        name = str(dtype).removeprefix("torch.")
        raise NotAnArrayError(
            f"is the number {value!r}, which {name} does not hold exactly",
            f"say that rounding is meant: torch.tensor({value!r}, dtype=torch.{name})",
        )
    return tensor


def _from_numpy(value: np.ndarray | np.generic) -> torch.Tensor:
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise NotAnArrayError(
            "is a masked array", "fill it first, array.filled(value), and pass the mask by itself"
        )
    array = np.asarray(value)
    kind = str(array.dtype)
    if (
        array.dtype.names is not None
        or array.dtype.hasobject
        or (array.dtype.kind in "SUVmM" and kind != "bfloat16")
    ):
        raise NotAnArrayError(f"has element type {kind}", "pass an array of numbers")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = array.copy()  # torch counts strides in whole elements, forwards
    if kind == "bfloat16":  # numpy knows it through ml_dtypes only
        return _wrap(array.view(np.uint16)).view(torch.bfloat16)
    try:
        return _wrap(array)
    except (TypeError, ValueError) as error:
        raise NotAnArrayError(f"has element type {kind}", "convert it to a type that torch has") from error


def _wrap(array: np.ndarray) -> torch.Tensor:
    import numpy as np

    # Programs never write to their inputs, so read-only memory is as good; torch would warn.
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Writeable(array)))


class _Writeable:
    """Claims that the memory of an array may be written, and keeps it alive."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def _from_dlpack(value: Any) -> torch.Tensor:
    kind = type(value).__name__
    try:
        tensor = torch.from_dlpack(value)
    except Exception as error:  # another library's code
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise NotAnArrayError(
            f"is a {kind} that cannot be read through DLPack: {reason}",
            "pass a dense array in the CPU's memory",
        ) from error
    return tensor


def _namespace(value: Any) -> types.ModuleType | Any | None:
    """The array library of a value, if it makes its arrays from DLPack."""
    try:
        namespace = value.__array_namespace__()
    except (AttributeError, TypeError, ValueError, NotImplementedError):
        return None
    return namespace if callable(getattr(namespace, "from_dlpack", None)) else None
