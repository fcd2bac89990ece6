"""Arrays of other libraries: what their capsules say, and how torch takes their memory over."""

from __future__ import annotations

import ctypes
import sys
import weakref
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from daceml.errors import CallError
from daceml.module.arrays.array_kinds import results_like
from daceml.module.arrays.dlpack import NotAnArrayError, describe, memory_of, tensor_of
from tests.support.golden import golden, raises

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


class Array:
    """An array of a library that speaks DLPack 1.0, over numpy's memory."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def __dlpack__(self, **options: Any) -> Any:
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()


class OldArray(Array):
    """One that knows no versions."""

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.memory.__dlpack__()


def altered(array: np.ndarray, **fields: Any) -> Array:
    """An array whose capsule says something else, by names of DLTensor's fields."""
    capsule = array.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    from daceml.module.arrays.dlpack import _Tensor  # pyright: ignore[reportPrivateUsage]

    tensor = _Tensor.from_address(get(capsule, b"dltensor"))
    for name, value in fields.items():
        setattr(tensor, name, value)

    class Altered(Array):
        def __dlpack__(self, **options: Any) -> Any:
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return tensor.device_type, tensor.device_id

    return Altered(array)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("kind", [Array, OldArray])
@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", "float64", "int8", "int64", "uint8", "uint16", "uint64", "bool", "complex64"],
)
def test_the_memory_is_shared(kind: type[Array], dtype: str):
    array = FLOATS.astype(dtype)
    tensor = tensor_of(kind(array))
    assert tensor.data_ptr() == address(array) and tensor.dtype is getattr(torch, dtype)
    assert np.array_equal(tensor.numpy(), array)


def test_bfloat16_is_shared():
    held = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    tensor = tensor_of(Array(held))
    assert tensor.dtype is torch.bfloat16 and tensor.data_ptr() == held.data_ptr()


@pytest.mark.parametrize("view", [FLOATS.T, FLOATS[:, 1:], FLOATS[:, ::2], FLOATS[1]])
def test_strides_are_kept(view: np.ndarray):
    tensor = tensor_of(Array(view))
    assert tensor.data_ptr() == address(view) and np.array_equal(tensor.numpy(), view)
    assert tuple(4 * step for step in tensor.stride()) == view.strides


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0, 2)])
def test_numbers_and_arrays_without_elements(shape: tuple[int, ...]):
    array = np.full(shape, 2, dtype=np.float32)
    assert tensor_of(Array(array)).shape == shape
    array.flags.writeable = False
    assert tensor_of(Array(array)).shape == shape


def test_the_memory_lives_as_long_as_the_tensor():
    array = FLOATS.copy()
    kept = weakref.ref(array)
    tensor = tensor_of(Array(array))
    del array
    assert kept() is not None and torch.equal(tensor, torch.from_numpy(FLOATS))
    del tensor
    assert kept() is None


@pytest.mark.parametrize("view", [FLOATS[::-1], FLOATS[:, ::-1]])
def test_strides_that_go_backwards_are_copied(view: np.ndarray):
    tensor = tensor_of(Array(view))
    assert np.array_equal(tensor.numpy(), view) and tensor.is_contiguous()
    assert not np.shares_memory(tensor.numpy(), view)


def test_elements_at_odd_addresses_are_copied():
    odd = np.zeros(25, dtype=np.uint8)[1:].view(np.float32)
    odd[:] = range(6)
    assert odd.__array_interface__["data"][0] % 4
    tensor = tensor_of(Array(odd))
    assert tensor.data_ptr() % 4 == 0 and tensor.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_capsule_is_described_and_stays_whole():
    view = FLOATS[:, 1:]
    for capsule in (view.__dlpack__(), view.__dlpack__(max_version=(1, 0))):
        described = describe(capsule)
        assert described.device == (1, 0) and described.element == (2, 32, 1)
        assert described.shape == (2, 2) and described.strides == (3, 1)
        assert described.address == address(view) and not described.read_only
        assert torch.from_dlpack(capsule).data_ptr() == address(view)


def test_strides_that_are_left_out_are_those_of_row_major_order():
    array = altered(FLOATS.copy(), strides=None)
    assert describe(array.__dlpack__()).strides == (3, 1)
    assert np.array_equal(tensor_of(array).numpy(), FLOATS)


def test_read_only_memory_says_so():
    array = FLOATS.copy()
    assert not memory_of(Array(array)).read_only
    array.flags.writeable = False
    assert memory_of(Array(array)).read_only
    assert tensor_of(Array(array)).data_ptr() == address(array)


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"device_type": 13}, ["managed"]),
        ({"device_type": 3}, ["pinned"]),
        ({"device_type": 8}, ["memory", 8]),
        ({"code": 10, "bits": 8}, ["code 10", "8 bits"]),
        ({"lanes": 4}, ["code 2", "32 bits", "4 lanes"]),
        ({"bits": 128}, ["code 2", "128 bits"]),
    ],
    ids=["managed memory", "pinned memory", "memory 8", "a type of 8 bits", "lanes", "128 bits"],
)
def test_memory_and_elements_that_programs_cannot_take(fields: dict[str, int], facts: list[object]):
    with raises(NotAnArrayError, "Altered", *facts) as caught:
        tensor_of(altered(FLOATS.copy(), **fields))
    assert caught.value.fix == golden()


def test_arrays_of_a_device_that_torch_does_not_have():
    if torch.cuda.is_available():
        pytest.skip("torch has CUDA devices here")
    with raises(NotAnArrayError, "Altered", "DLPack", exact=False):
        tensor_of(altered(FLOATS.copy(), device_type=2))


def test_capsules_that_are_none():
    class Broken(Array):
        def __dlpack__(self, **options: Any) -> Any:
            return 3

    with raises(NotAnArrayError, "Broken", "DLPack", exact=False):
        tensor_of(Broken(FLOATS))
    used = FLOATS.__dlpack__()
    torch.from_dlpack(used)
    with raises(BufferError, "used_dltensor"):
        describe(used)


def test_a_device_is_asked_with_the_stream_that_reads(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []

    class OnDevice(Array):
        def __dlpack__(self, **options: Any) -> Any:
            asked.append(options)
            return self.memory.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    class Stream:
        cuda_stream = 0

    def current_stream(device: int) -> Stream:
        assert device == 1
        return Stream()

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    tensor_of(OnDevice(FLOATS))
    Stream.cuda_stream = 4096
    tensor_of(OnDevice(FLOATS))
    # 1 is the protocol's name of CUDA's default stream
    assert asked == [{"max_version": (1, 0), "stream": 1}, {"max_version": (1, 0), "stream": 4096}]


def test_results_go_to_the_package_that_an_array_comes_from(monkeypatch: pytest.MonkeyPatch):
    package = ModuleType("arrays")
    kind = type("ndarray", (Array,), {"__module__": "arrays.core"})
    package.from_dlpack = kind  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "arrays", package)
    convert = results_like([FLOATS, kind(FLOATS)])
    tensor = torch.ones(2)
    assert convert is not None
    result = convert(tensor)
    assert type(result) is kind and tensor_of(result).data_ptr() == tensor.data_ptr()
    assert results_like([kind(FLOATS), tensor]) is None


def test_a_library_that_refuses_a_result(monkeypatch: pytest.MonkeyPatch):
    def from_dlpack(tensor: torch.Tensor) -> Any:
        raise BufferError("no bfloat16 here")

    package = ModuleType("arrays")
    package.from_dlpack = from_dlpack  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "arrays", package)
    convert = results_like([type("ndarray", (Array,), {"__module__": "arrays"})(FLOATS)])
    assert convert is not None
    with raises(CallError, "bfloat16", "arrays.ndarray", "from_dlpack", "no bfloat16 here", "torch.Tensor"):
        convert(torch.ones(2, dtype=torch.bfloat16))
