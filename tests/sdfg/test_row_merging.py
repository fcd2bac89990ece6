"""The last dimensions of a loop as one row."""

from __future__ import annotations

import operator

import dace
import pytest
import torch
from dace.symbolic import int_floor
from torch import nn

import daceml
from daceml.sdfg.nest import Loop, Nest, Write, loop_parameters, points, start
from daceml.sdfg.row_merging import is_merged, merge_rows
from daceml.sdfg.scalar import read
from daceml.transformations.standard import device_recipe

SHAPE = (3, 5, 7)


def image_sums(*, flipped: bool = False) -> Nest:
    """The sum of each image."""
    (image,), (h, w) = points(1), loop_parameters(2, 2)
    at = (image, h, 6 - w) if flipped else (image, h, w)
    value = read("X", dace.float64, at, SHAPE)
    adds = Loop(
        params=(h, w),
        extents=SHAPE[1:],
        writes=(Write(target="s", index=(0,), value=value, operator="sum"),),
        sequential=2,
    )
    local = {"s": ((1,), dace.float64)}
    return Nest(
        label="s",
        params=(image,),
        extents=(3,),
        loops=(start("s", (1,), dace.float64, "sum"), adds),
        local=local,
    )


def test_images_are_rows() -> None:
    *_, loop = merge_rows(image_sums(), {"X": SHAPE}).loops
    _, element = loop_parameters(2, 2)
    assert (loop.params, loop.extents, loop.sequential) == ((element,), (35,), 1)
    image, row, column = loop.writes[0].value.data[1]
    assert (row, column) == (int_floor(element, 7), element - 7 * int_floor(element, 7))
    assert is_merged((image, row, column), str(element)) and not is_merged((row, column), "k0")


def test_volumes_are_rows() -> None:
    volume, (d, h, w) = (4, 5, 7), loop_parameters(3, 3)
    (batch,) = points(1)
    value = read("X", dace.float64, (batch, d, h, w), (2, *volume))
    write = Write(target="s", index=(0,), value=value, operator="sum")
    adds = Loop(params=(d, h, w), extents=volume, writes=(write,), sequential=3)
    nest = Nest(label="s", params=(batch,), extents=(2,), loops=(adds,), local={"s": ((1,), dace.float64)})
    (loop,) = merge_rows(nest, {"X": (2, *volume)}).loops
    assert (loop.params, loop.extents, loop.sequential) == ((w,), (140,), 1)
    index = loop.writes[0].value.data[1]
    assert is_merged(index, str(w))
    assert not is_merged(index[:-1], str(w)) and not is_merged((batch, w, w), str(w))
    for element in (0, 6, 7, 34, 35, 139):
        at = [i.subs(w, element).replace(int_floor, operator.floordiv) for i in index[1:]]
        assert at == [element // 35, element // 7 % 5, element % 7]
    # a part of each volume: its images are rows still
    (loop,) = merge_rows(nest, {"X": (2, 6, 5, 7)}).loops
    assert loop.extents == (140,)
    (loop,) = merge_rows(nest, {"X": (2, 4, 6, 7)}).loops
    assert loop.extents == (4, 35)


@pytest.mark.parametrize(
    ("nest", "shapes"),
    [
        (image_sums(flipped=True), {"X": SHAPE}),  # backwards in each row
        (image_sums(), {"X": (3, 5, 8)}),  # a part of each row
        (image_sums(), {}),  # an array with gaps
    ],
)
def test_loops_that_keep_their_dimensions(nest: Nest, shapes: dict[str, tuple[int, ...]]) -> None:
    assert merge_rows(nest, shapes) == nest


def test_sums_of_images_use_all_threads() -> None:
    class Statistics(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            centred = x - x.mean((0, 2, 3), keepdim=True)
            return centred / (centred.square().mean((0, 2, 3), keepdim=True) + 0.1).sqrt()

    module = Statistics()
    for shape in ((2, 3, 9, 11), (2, 3, 40, 52)):
        x = torch.randn(shape)
        emulated = daceml.compile(module, recipe=device_recipe(), backward=False)
        torch.testing.assert_close(emulated(x).double(), module(x.double()), rtol=1e-6, atol=1e-6)
