"""Arguments of a call against the inputs of a program: what does not fit is named."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from daceml.errors import CallError
from daceml.frontend.call_inputs import collect_inputs, signature, to_numpy
from daceml.runtime.manifest import TensorRecord

X = TensorRecord(name="x", dtype=6, shape=("N", 3))
MASK = TensorRecord(name="mask", dtype=11, shape=("N",))
x, mask = torch.ones(2, 3), torch.tensor([True, False])


def collect(*args: Any, **kwargs: Any) -> tuple[list[torch.Tensor], bool]:
    return collect_inputs("net", (X, MASK), args, kwargs)


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(CallError) as caught:
        collect(*args, **kwargs)
    return str(caught.value)


def test_inputs_come_by_position_or_by_name():
    for tensors, numpy_came_in in (collect(x, mask), collect(x, mask=mask), collect(mask=mask, x=x)):
        assert tensors[0] is x and tensors[1] is mask
        assert not numpy_came_in


def test_numpy_arrays_share_their_memory():
    array = np.ones((2, 3), dtype=np.float32)
    tensors, numpy_came_in = collect(array, np.array([True, False]))
    assert numpy_came_in
    array[0, 0] = 5
    assert tensors[0][0, 0] == 5


def test_one_tensor_among_arrays_makes_the_results_tensors():
    assert not collect(np.ones((2, 3), dtype=np.float32), mask)[1]


def test_arrays_that_torch_cannot_wrap_are_copied():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    array.flags.writeable = False
    assert torch.equal(collect(array, mask)[0][0], torch.arange(6.0).reshape(2, 3))
    assert torch.equal(collect(array[::-1], mask)[0][0], torch.tensor([[3.0, 4, 5], [0, 1, 2]]))


def test_bfloat16_arrays_come_through_ml_dtypes():
    wanted = TensorRecord(name="x", dtype=15, shape=(2,))
    array = np.array([1.5, -2.0], dtype=ml_dtypes.bfloat16)
    ((tensor,), _) = collect_inputs("net", (wanted,), (array,), {})
    assert torch.equal(tensor, torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert np.array_equal(to_numpy(tensor), array)


def test_strided_tensors_are_made_contiguous():
    ((tensor, _), _) = collect(torch.ones(3, 2).T, mask)
    assert tensor.is_contiguous() and tensor.shape == (2, 3)


def test_too_many_inputs():
    assert refusal(x, mask, x) == (
        "[DML203] net was called with 3 inputs by position and has 2\n"
        "  why:   it takes x, mask\n"
        "  fix:   pass one tensor for each input"
    )


def test_a_missing_input():
    assert refusal(x) == (
        "[DML203] net was called without input 'mask'\n"
        "  why:   it takes x, mask\n"
        "  fix:   pass one tensor for each input, in this order or by name"
    )


def test_a_misspelt_input():
    assert refusal(x, Masc=mask) == (
        "[DML203] net has no input 'Masc'\n  why:   it takes x, mask\n  fix:   did you mean 'mask'?"
    )


def test_an_input_given_twice():
    assert refusal(x, mask, x=x) == (
        "[DML203] net was given input 'x' twice\n"
        "  why:   once by position, as input 0, and once by name\n"
        "  fix:   pass it once"
    )


def test_a_wrong_element_type():
    assert refusal(x.double(), mask) == (
        "[DML203] input 'x' of net has element type float64\n"
        "  why:   it has to be float32 (N, 3)\n"
        "  fix:   convert it: tensor.to(torch.float32), array.astype('float32')"
    )
    assert "has element type <U1" in refusal(np.array(["a"]), mask)


def test_a_wrong_kind():
    assert refusal([1.0], mask) == (
        "[DML203] input 'x' of net is a list\n"
        "  why:   it has to be float32 (N, 3)\n"
        "  fix:   pass a torch.Tensor or a numpy array"
    )


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((2, 3, 1), "3 dimensions instead of 2"), ((2, 4), "dimension 1 is 4 instead of 3")],
)
def test_a_wrong_shape(shape: tuple[int, ...], reason: str):
    assert refusal(torch.ones(shape), mask) == (
        f"[DML203] input 'x' of net has shape {shape}\n"
        f"  why:   it has to be float32 (N, 3): {reason}\n"
        "  fix:   pass a tensor of that shape; a named dimension takes any size, but one size a call"
    )


def test_a_named_dimension_has_one_size():
    assert "it has to be bool (N,): dimension 0 is 2, but N is 5 in input 'x'" in refusal(
        torch.ones(5, 3), mask
    )


def test_another_device():
    assert refusal(torch.ones(2, 3, device="meta"), mask).startswith("[DML203] input 'x' of net lies on meta")


def test_a_signature_in_words():
    assert signature((X, MASK)) == "x: float32 (N, 3), mask: bool (N,)"
    assert signature(()) == "no inputs"
