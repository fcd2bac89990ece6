"""Arguments of a call against the inputs of a program: what does not fit is named."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from daceml.errors import CallError
from daceml.module.arrays.array_kinds import results_like
from daceml.module.arrays.call_inputs import collect_inputs, signature, to_numpy
from daceml.runtime.records.manifest import TensorRecord
from daceml.runtime.torch_types import DTYPES
from tests.support.golden import golden, raises

X = TensorRecord(name="x", dtype=6, shape=("N", 3))
MASK = TensorRecord(name="mask", dtype=11, shape=("N",))
x, mask = torch.ones(2, 3), torch.tensor([True, False])


def collect(*args: Any, **kwargs: Any) -> tuple[list[torch.Tensor], Any]:
    return collect_inputs("net", (X, MASK), args, kwargs)


def test_inputs_come_by_position_or_by_name():
    for tensors, convert in (collect(x, mask), collect(x, mask=mask), collect(mask=mask, x=x)):
        assert tensors[0] is x and tensors[1] is mask
        assert convert is None


def one(value: Any, dtype: int = 6, shape: tuple[int | str, ...] = (2, 3)) -> torch.Tensor:
    """What becomes of one input."""
    wanted = TensorRecord(name="x", dtype=dtype, shape=shape)
    ((tensor,), _) = collect_inputs("net", (wanted,), (value,), {})
    return tensor


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8", "bool", "complex64"])
def test_numpy_arrays_share_their_memory(dtype: str):
    array = np.ones((2, 3), dtype=dtype)
    tensor = one(array, dtype=next(k for k, v in DTYPES.items() if v is getattr(torch, dtype)))
    assert tensor.data_ptr() == address(array)
    results = to_numpy(tensor)
    assert results.dtype == array.dtype and address(results) == address(array)


def test_bfloat16_arrays_share_their_memory():
    array = np.array([[1.5, -2.0]], dtype=ml_dtypes.bfloat16)
    tensor = one(array, dtype=15, shape=(1, 2))
    assert tensor.dtype is torch.bfloat16 and tensor.data_ptr() == address(array)
    assert to_numpy(tensor).dtype == array.dtype and np.array_equal(to_numpy(tensor), array)


def test_read_only_arrays_share_their_memory_without_a_warning():
    array = FLOATS.copy()
    array.flags.writeable = False
    tensor = one(array)
    assert tensor.data_ptr() == address(array) and not array.flags.writeable
    held = one(np.broadcast_to(np.float32(2), (2, 3)))  # read-only, strides of zero
    assert torch.equal(held, torch.full((2, 3), 2.0))


def test_memory_of_an_array_lives_as_long_as_the_tensor():
    array = FLOATS.copy()
    array.flags.writeable = False
    kept = weakref.ref(array)
    tensor = one(array)
    del array
    assert kept() is not None and torch.equal(tensor, torch.from_numpy(FLOATS))


@pytest.mark.parametrize(
    "array",
    [
        FLOATS[::-1], FLOATS[:, ::-1], np.asfortranarray(FLOATS), FLOATS.astype(">f4"),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
        np.zeros(2, dtype=[("pad", "u1"), ("v", "f4", 3)])["v"],
        np.ones(25, dtype=np.uint8)[1:].view(np.float32).reshape(2, 3),
    ],
    ids=[
        "reversed", "reversed columns", "Fortran order", "big-endian", "strided", "misaligned strides",
        "odd address",
    ],
)  # fmt: skip
def test_layouts_that_programs_cannot_read_are_copied(array: np.ndarray):
    tensor = one(array)
    assert tensor.is_contiguous() and np.array_equal(tensor.numpy(), array)
    assert tensor.data_ptr() % 4 == 0 and not np.shares_memory(tensor.numpy(), array)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_arrays_without_elements(shape: tuple[int, ...]):
    array = np.empty(shape, dtype=np.float32)
    assert one(array, shape=shape).shape == one(array[::-1], shape=shape).shape == shape
    array.flags.writeable = False
    assert one(array, shape=shape).shape == shape and to_numpy(torch.empty(shape)).shape == shape


def test_numbers_are_inputs_of_rank_zero():
    assert one(np.float32(2.5), shape=()).item() == 2.5
    assert one(np.array(2.5, dtype=np.float32), shape=()).shape == ()
    assert one(2.5, shape=()).item() == 2.5 and one(2, shape=()).dtype is torch.float32
    assert one(3, dtype=4, shape=()).dtype is torch.int64
    assert one(True, dtype=11, shape=()).item() is True
    assert torch.isnan(one(float("nan"), shape=()))


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(0.1, 6), (2**24 + 1, 6), (2**63, 4), (2.5, 4), (300, 0), (True, 6), (1, 11), (1j, 6)],
)
def test_numbers_that_do_not_fit_exactly_are_refused(number: complex, dtype: int):
    name = str(DTYPES[dtype])
    with raises(CallError, "'x'", repr(number), name.removeprefix("torch.")) as caught:
        one(number, dtype=dtype, shape=())
    assert f"torch.tensor({number!r}, dtype={name})" in caught.value.fix


class Foreign:
    """An array of another library, without a namespace of its own."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class Standard(Foreign):
    """An array of a library that keeps the array-API standard."""

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return SimpleNamespace(from_dlpack=lambda other: Standard(torch.from_dlpack(other)))


def test_arrays_of_other_libraries_share_their_memory():
    tensor = one(Foreign(x))
    assert tensor.data_ptr() == x.data_ptr()
    converts = [collect(a, b)[1] for a, b in ((Foreign(x), mask.numpy()), (Standard(x), mask.numpy()))]
    assert converts[0] is None
    result = converts[1](tensor)
    assert isinstance(result, Standard) and result.tensor.data_ptr() == x.data_ptr()


def test_arrays_of_other_libraries_that_cannot_be_read():
    with raises(CallError, "'x'", "net", "Foreign", "DLPack", exact=False) as caught:  # with torch's reason
        collect(Foreign(torch.ones(2, 3).to_sparse()), mask)
    assert caught.value.fix == golden()


def test_what_comes_in_decides_what_goes_out():
    arrays = FLOATS, mask.numpy()
    assert collect(*arrays)[1] is to_numpy
    assert collect(FLOATS, mask)[1] is None and collect(Standard(x), mask)[1] is None
    assert (
        results_like([]) is None and results_like([2.0]) is None and results_like([2.0, FLOATS]) is to_numpy
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.array([["a"] * 3] * 2), "<U1"), (np.array([[None] * 3] * 2), "object"),
        (np.zeros((2, 3), dtype=[("a", "f4")]), "[('a', '<f4')]"),
        (np.zeros((2, 3), dtype="M8[s]"), "datetime64[s]"),
        (np.ma.masked_array(FLOATS, mask=FLOATS > 1), "masked"),
        ([[1.0] * 3] * 2, "list"), (None, "NoneType"), ("x", "str"), ({}, "dict"),
        (torch.ones(2, 3).to_sparse(), "sparse_coo"),
        (torch.ones(2, 3).as_subclass(type("Mine", (torch.Tensor,), {})), "Mine"),
        (torch.ones(2, 3, device="meta"), "meta"), (np.ones((2, 3), dtype=np.longdouble), "float128"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) > 1 else type(value).__name__,
)  # fmt: skip
def test_what_is_no_dense_array_of_numbers_is_refused(value: Any, kind: str):
    with raises(CallError, "'x'", "net", kind) as caught:
        collect(value, mask)
    assert kind in caught.value.what and caught.value.fix


def test_function_transforms_and_tangents_are_refused():
    with raises(CallError, "'x'", "transform"):
        torch.func.vmap(lambda row: one(row, shape=(3,)))(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2, 3), torch.ones(2, 3))
        with raises(CallError, "'x'", "tangent"):
            one(dual)


def test_tensors_without_their_memory_are_refused():
    freed = torch.ones(2, 3)
    freed.untyped_storage().resize_(20)
    with raises(CallError, "'x'", "net", "4 bytes"):
        collect(freed, mask)


def test_lazy_views_are_resolved():
    conjugated = torch.tensor([[1 + 2j, 3j, 1]]).conj()
    assert torch.equal(one(conjugated, dtype=9, shape=(1, 3)), torch.tensor([[1 - 2j, -3j, 1]]))
    negated = conjugated.imag
    assert negated.is_neg() and not one(negated, shape=(1, 3)).is_neg()
    assert one(negated, shape=(1, 3)).tolist() == [[-2.0, -3.0, 0.0]]


def test_strided_tensors_are_made_contiguous():
    ((tensor, _), _) = collect(torch.ones(3, 2).T, mask)
    assert tensor.is_contiguous() and tensor.shape == (2, 3)


def test_too_many_inputs():
    with raises(CallError, "net", "3 inputs", 2, "x, mask"):
        collect(x, mask, x)


def test_a_missing_input():
    with raises(CallError, "net", "'mask'", "x, mask"):
        collect(x)


def test_a_misspelt_input():
    with raises(CallError, "net", "'Masc'", "x, mask") as caught:
        collect(x, Masc=mask)
    assert "'mask'" in caught.value.fix


def test_an_input_given_twice():
    with raises(CallError, "net", "'x'", "input 0"):
        collect(x, mask, x=x)


def test_a_wrong_element_type():
    with raises(CallError, "'x'", "net", "float64", "float32 (N, 3)", "torch.float32", "astype('float32')"):
        collect(x.double(), mask)
    with raises(CallError, "'x'", "<U1"):
        collect(np.array(["a"]), mask)


def test_a_wrong_kind():
    with raises(CallError, "'x'", "net", "list", "float32 (N, 3)", "torch.tensor(values, dtype=...)"):
        collect([1.0], mask)


@pytest.mark.parametrize(
    ("shape", "facts"),
    [((2, 3, 1), ["3 dimensions"]), ((2, 4), ["dimension 1"])],
    ids=["a dimension too many", "another size"],
)
def test_a_wrong_shape(shape: tuple[int, ...], facts: list[object]):
    with raises(CallError, "'x'", "net", shape, "float32 (N, 3)", *facts):
        collect(torch.ones(shape), mask)


def test_a_named_dimension_has_one_size():
    with raises(CallError, "'mask'", "bool (N,)", "dimension 0", "N is 5", "'x'"):
        collect(torch.ones(5, 3), mask)


def test_another_device():
    with raises(CallError, "'x'", "net", "meta"):
        collect(torch.ones(2, 3, device="meta"), mask)


def test_a_signature_in_words():
    assert signature((X, MASK)) == "x: float32 (N, 3), mask: bool (N,)"
    assert signature(()) == golden()
