"""Arrays of other libraries as tensors and back, without a copy where the memory allows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import CallError
from daceml.module.arrays.dlpack import NotAnArrayError, memory_of, tensor_of

if TYPE_CHECKING:
    import numpy as np

Convert = Callable[[torch.Tensor], Any]


def to_tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor that shares the value's memory where torch can address it.

    Args:
        value: a tensor, a numpy array or scalar, an object with `__dlpack__`, or a Python number.
        dtype: that is wanted; Python numbers take it if it holds them exactly, other values keep their own.
    Raises:
        NotAnArrayError: something else, or memory or elements that programs cannot take.
    """
    if isinstance(value, torch.Tensor):
        return value
    if _is_numpy(value):  # before numbers: numpy's float64 is a float
        return _from_numpy(value)
    if isinstance(value, bool | int | float | complex):
        return _from_number(value, dtype)
    if hasattr(type(value), "__dlpack__"):
        return tensor_of(value)
    kind = type(value).__name__
    fix = "pass a torch.Tensor, a numpy array, or any array with __dlpack__"
    if isinstance(value, list | tuple):
        fix = "convert it, and say which element type it has: torch.tensor(values, dtype=...)"
    raise NotAnArrayError(f"is a {kind}", fix)


def write_problem(value: Any, tensor: torch.Tensor) -> str | None:
    """Why what is written to a tensor would not reach the value that it was made of, or must not."""
    if isinstance(value, torch.Tensor):
        return "is a view that is computed when it is read" if value.is_conj() or value.is_neg() else None
    if _is_numpy(value):
        if not value.flags.writeable:
            return "is read-only"
        address: int = value.__array_interface__["data"][0]
    elif hasattr(type(value), "__dlpack__"):
        memory = memory_of(value)
        if memory.read_only:
            return "is read-only"
        address = memory.address
    else:
        return "is a number"
    shared = tensor.numel() == 0 or tensor.data_ptr() == address
    return None if shared else "its byte order, strides or alignment are none that torch has"


def results_like(values: Iterable[Any]) -> Convert | None:
    """How results are made the kind of what came in; None where they stay tensors.

    One tensor among the inputs makes them tensors; else the first array that is not numpy's decides: results
    become arrays of its library, if that makes its own from DLPack (`__array_namespace__().from_dlpack`, or
    `from_dlpack` of the package that the array's class comes from), else tensors. Numpy arrays alone make
    them numpy arrays, numbers alone tensors.
    """
    values = [
        value for value in values if not isinstance(value, bool | int | float | complex) or _is_numpy(value)
    ]
    if not values or any(isinstance(value, torch.Tensor) for value in values):
        return None
    foreign = [value for value in values if not _is_numpy(value)]
    if not foreign:
        return to_numpy
    return _maker(foreign[0])


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
    if array.dtype.names is not None:
        raise NotAnArrayError(f"has element type {kind}", "pass its fields one by one: array['name']")
    if array.dtype.hasobject or (array.dtype.kind in "SUVmM" and kind != "bfloat16"):
        raise NotAnArrayError(f"has element type {kind}", "pass an array of numbers")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.aligned or any(step < 0 or step % array.itemsize for step in array.strides):
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


def _maker(value: Any) -> Convert | None:
    """What makes a value's library take a tensor's memory for an array of its own."""
    for namespace in (_namespace(value), _package(value)):
        from_dlpack = getattr(namespace, "from_dlpack", None)
        if callable(from_dlpack):
            return lambda tensor: _handed_over(tensor, from_dlpack, type(value))
    return None


def _handed_over(tensor: torch.Tensor, from_dlpack: Callable[[torch.Tensor], Any], kind: type) -> Any:
    try:
        return from_dlpack(tensor)
    except Exception as error:  # another library's code
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise CallError(
            f"a result of type {str(tensor.dtype).removeprefix('torch.')} cannot become a {name}",
            why=f"its from_dlpack says: {str(error).strip().split(chr(10))[0] or type(error).__name__}",
            fix="pass one of the inputs as a torch.Tensor: then results are tensors",
        ) from error


def _namespace(value: Any) -> Any:
    """The array library of a value, if it keeps the array-API standard."""
    try:
        return value.__array_namespace__()
    except (AttributeError, TypeError, ValueError, NotImplementedError):
        return None


def _package(value: Any) -> Any:
    """The package that a value's class comes from."""
    return sys.modules.get(type(value).__module__.partition(".")[0])
