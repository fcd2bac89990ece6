"""Flattened dimensions and vectors: what a kernel looks like, and that its numbers stay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.codegen_cuda.kernel_unit import kernel_unit
from daceml.sdfg.outline import Outliner
from daceml.sdfg.scopes import top_maps
from daceml.transformations.hardware.gpu_flattening import flatten_dimensions
from daceml.transformations.standard import device_recipe
from tests.support.tensor_functions import Apply, Function, optimised


def kernel_of(function: Function, *shapes: tuple[int, ...]):
    network = optimised(function, *shapes, recipe=device_recipe())
    (entry,) = top_maps(network.state)
    return Outliner().outline(network.sdfg, network.state, entry).kernel


@pytest.mark.parametrize(
    ("function", "shapes", "extents"),
    [
        (lambda x: x * 2, [(3, 5, 7)], [105]),
        (lambda x, s: x * s[:, None, None], [(2, 3, 7, 7), (3,)], [2, 3, 49]),
        (lambda x, s: x * s, [(2, 3, 7), (7,)], [6, 7]),
        (lambda x, y: x + y.transpose(1, 2), [(2, 3, 5), (2, 5, 3)], [2, 3, 5]),
        (lambda x: x.flip(2), [(2, 3, 5)], [6, 5]),
    ],
)
def test_dimensions_that_follow_each_other_in_all_arrays_become_one(function, shapes, extents):
    sdfg = kernel_of(function, *shapes).sdfg
    (state,) = sdfg.states()
    (entry,) = top_maps(state)
    flatten_dimensions(sdfg, state, entry)
    assert list(entry.map.range.size()) == extents
    sdfg.validate()


def test_neighbours_are_loaded_and_stored_together_and_others_one_by_one():
    text = kernel_unit(kernel_of(lambda x, s, y: x * s[:, None] + y.t(), (6, 10), (6,), (10, 6))).text
    assert (text.count("load_vector<4>"), text.count("store_vector<4>")) == (1, 1)
    assert "v0 < Min(4," in text  # y is read one by one, and not beyond its end
    assert "v0 < 4" in kernel_unit(kernel_of(lambda x, s: x * s[:, None], (6, 10), (6,))).text


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_vector_has_128_bits(dtype: torch.dtype):
    module = Apply(lambda x: x * 2 + 1)
    emulated = daceml.compile(module, recipe=device_recipe(), backward=False)
    x = torch.randn(1 + 3 * 37).to(dtype)
    torch.testing.assert_close(emulated(x[1:]), module(x[1:]))  # which begins at an odd place
    torch.testing.assert_close(emulated(x[:-1].clone()), module(x[:-1]))
    made = kernel_of(lambda x: x.to(dtype) * 2 + 1, (111,))
    widest = max(4, dtype.itemsize)  # it is converted from float32
    assert f"store_vector<{16 // widest}>" in kernel_unit(made).text


@pytest.mark.parametrize("shape", [(2, 3, 7, 7), (1, 1, 1, 1), (3, 4, 1, 5), (2, 8, 6, 6)])
def test_numbers_stay(shape: tuple[int, ...]):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(shape[1]).eval()
    norm.running_mean.normal_()
    x, y = torch.randn(shape), torch.randn(shape)
    module = Apply(lambda x, y: torch.relu(norm(x) + y.flip(3)))
    emulated = daceml.compile(module, recipe=device_recipe(), backward=False)
    torch.testing.assert_close(emulated(x, y), module(x, y))


@pytest.mark.parametrize("columns", [2, 3, 6, 7])
def test_a_vector_of_a_short_row_has_a_power_of_2_elements(columns: int):
    module = Apply(lambda x: x * x[:, :1] + 1)
    emulated = daceml.compile(module, recipe=device_recipe(), backward=False)
    x = torch.randn(9, columns).half()
    torch.testing.assert_close(emulated(x).double(), module(x.double()), rtol=2e-3, atol=2e-3)
