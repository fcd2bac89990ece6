"""Arrays of other libraries through DLPack: a capsule is read before torch takes it over.

torch 2.13 ends the process where strides go backwards, and reads memory at odd addresses as if it were
aligned, so what a capsule says is looked at first.

Source: dlpack.h 1.1; Python specification for DLPack, https://dmlc.github.io/dlpack/latest/.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils import dlpack

CPU, CUDA, ROCM = 1, 2, 10
_ELSEWHERE = {3: "pinned memory", 11: "pinned memory", 13: "managed memory", 14: "memory of oneAPI"}
_COMPLEX = 5
# Type code -> bits of the elements that programs can take.
_BITS = {
    0: (8, 16, 32, 64),  # integers
    1: (8, 16, 32, 64),  # without a sign
    2: (16, 32, 64),  # floating-point numbers
    4: (16,),  # bfloat16
    _COMPLEX: (64, 128),
    6: (8,),  # truth values
}
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_VERSION = (1, 0)


class NotAnArrayError(Exception):
    """A value that is no array of numbers that programs can read; the text says what it is and what helps."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a capsule says of an array.

    Attributes:
        device: DLPack's number of a kind of memory, and which one.
        element: type code, bits, lanes.
        shape, strides: in elements.
        address: of the first element.
        read_only: nobody may write to the memory.
    """

    device: tuple[int, int]
    element: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    read_only: bool


def tensor_of(array: Any) -> torch.Tensor:
    """A tensor that shares an array's memory; its producer has work of its own ordered before ours.

    An array in the CPU's memory whose strides go backwards, or whose address is no multiple of its element's
    size, is copied.

    Raises:
        NotAnArrayError: memory or elements that programs cannot take; the producer's own error is its cause.
    """
    kind = type(array).__name__
    try:
        capsule = _capsule(array)
        described = describe(capsule)
    except Exception as error:  # another library's code
        raise _refused(kind, error) from error
    if problem := _problem(described):
        raise NotAnArrayError(f"is a {kind} {problem[0]}", problem[1])
    direct = _addressable(described)
    if not direct and described.device[0] != CPU:
        raise NotAnArrayError(
            f"is a {kind} whose strides go backwards or whose elements are not aligned",
            "pass a contiguous copy: cupy.ascontiguousarray(array)",
        )
    try:
        return dlpack.from_dlpack(capsule) if direct else _copied(array)
    except Exception as error:
        raise _refused(kind, error) from error


def memory_of(array: Any) -> Description:
    """What an array's producer says of its memory; before DLPack 1.0 none could say that it is read-only."""
    return describe(_capsule(array))


def describe(capsule: Any) -> Description:
    """What a capsule says. It stays as it is: who owns it may still hand it over.

    Raises:
        ValueError: no capsule of DLPack's, or one that somebody has taken over.
    """
    name = _name(capsule)
    if name == b"dltensor":
        tensor, flags = _Tensor.from_address(_address(capsule, name)), 0
    elif name == b"dltensor_versioned":
        managed = _Managed.from_address(_address(capsule, name))
        if managed.major > _VERSION[0]:
            raise BufferError(f"it speaks version {managed.major} of DLPack")
        tensor, flags = managed.tensor, managed.flags
    else:
        raise BufferError(f"its capsule is named {name!r}")
    shape = tuple(tensor.shape[: tensor.ndim])
    row_major = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    return Description(
        device=(tensor.device_type, tensor.device_id),
        element=(tensor.code, tensor.bits, tensor.lanes),
        shape=shape,
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.strides else row_major,
        address=(tensor.data or 0) + tensor.byte_offset,
        read_only=bool(flags & _READ_ONLY),
    )


def _capsule(array: Any) -> Any:
    """Ask for an array's capsule, with the stream that will read it."""
    device, index = array.__dlpack_device__()
    options: dict[str, Any] = {}
    if device in (CUDA, ROCM):
        stream = torch.cuda.current_stream(index).cuda_stream
        # CUDA's legacy default stream is 1 in the protocol, where 0 may be that of a thread
        options["stream"] = 1 if device == CUDA and stream == 0 else stream
    try:
        return array.__dlpack__(max_version=_VERSION, **options)
    except TypeError:  # a producer from before DLPack 1.0
        return array.__dlpack__(**options)


def _problem(described: Description) -> tuple[str, str] | None:
    """Why programs cannot take such memory or elements, and what helps."""
    device = described.device[0]
    if device not in (CPU, CUDA, ROCM):
        where = _ELSEWHERE.get(device, f"memory that DLPack numbers {device}")
        return f"in {where}", "copy it into the CPU's memory, or a device's own"
    code, bits, lanes = described.element
    if bits not in _BITS.get(code, ()) or lanes != 1:
        shown = f"code {code}, {bits} bits" + (f", {lanes} lanes" if lanes != 1 else "")
        return f"of an element type that torch does not compute with ({shown})", "convert it, to float32 say"
    return None


def _addressable(described: Description) -> bool:
    code, bits, _ = described.element
    size = bits // (16 if code == _COMPLEX else 8)  # a complex number is aligned as its parts are
    return described.address % size == 0 and all(stride >= 0 for stride in described.strides)


def _copied(array: Any) -> torch.Tensor:
    import numpy as np

    return torch.from_numpy(np.from_dlpack(array).copy())


def _refused(kind: str, error: Exception) -> NotAnArrayError:
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    return NotAnArrayError(
        f"is a {kind} that cannot be read through DLPack: {reason}",
        "pass a dense array in the CPU's memory",
    )


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_name = ctypes.pythonapi.PyCapsule_GetName
_name.argtypes, _name.restype = (ctypes.py_object,), ctypes.c_char_p
_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.argtypes, _address.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
