"""ONNX's TopK by torch's sort, of more elements than a loop compares: of equal ones the first comes first."""

from __future__ import annotations

import torch

from tests.support.operator_programs import chosen, program

NAN = float("nan")


def first(shape: str, kind: str, axis: int, largest: int, k: int) -> str:
    result = [int(s) for s in shape.split(",")]
    result[axis] = k
    rest = f"{', '.join(map(str, result))}"
    return (
        f"g ({kind}[{shape}] X) => ({kind}[{rest}] V, int64[{rest}] I) "
        f"{{ k = Constant <value_ints = [{k}]> () V, I = TopK <axis = {axis}, largest = {largest}> (X, k) }}"
    )


def test_equal_elements_come_in_their_order():
    text = first("40", "float", 0, 1, 5)
    assert chosen(text) == "aten:sort"
    values, indices = program(text)([torch.tensor([2.0, 1, 2, 2, 1, 3, 0, 2, 2, 1, *[0] * 30])])
    assert values.tolist() == [3, 2, 2, 2, 2] and indices.tolist() == [5, 0, 2, 3, 7]


def test_smallest_along_an_outer_axis_of_a_type_that_torchs_topk_lacks():
    x = torch.tensor([[3, 0], [1, 0], [1, 2], [3, 0], *[[4, 3]] * 36], dtype=torch.uint64)
    text = first("40, 2", "uint64", 0, 0, 3)
    assert chosen(text) == "aten:sort"
    values, indices = program(text)([x])
    assert values.dtype == torch.uint64 and values.tolist() == [[1, 0], [1, 0], [3, 0]]
    assert indices.tolist() == [[1, 0], [2, 1], [0, 3]]


def test_nan_is_the_largest_and_all_or_none_may_be_taken():
    x = torch.tensor([1.0, NAN, 2.0, NAN, *[0.5] * 36])
    _, indices = program(first("40", "float", 0, 1, 40))([x])
    assert indices.tolist() == [1, 3, 2, 0, *range(4, 40)]
    values, indices = program(first("40", "float", 0, 1, 0))([x])
    assert values.shape == indices.shape == (0,)
