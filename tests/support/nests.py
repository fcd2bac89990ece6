"""A nest with two loops over a row: the shares of its exponentials, as a program beside torch's numbers."""

from __future__ import annotations

from pathlib import Path

import dace
import torch

from daceml.sdfg.builder import Builder
from daceml.sdfg.nest import Loop, Nest, Write, emit_nest, loop_parameters, points, start
from daceml.sdfg.network import Network
from daceml.sdfg.scalar import apply, read
from daceml.transformations.hardware.device_schedule import schedule_on_device
from tests.support.small_networks import build

ROWS = 5


def arrays(columns: int) -> dace.SDFG:
    """X and Y, with nothing between them."""
    sdfg = dace.SDFG("network")
    sdfg.add_state()
    sdfg.add_array("X", [ROWS, columns], dace.float32)
    sdfg.add_array("Y", [ROWS, columns], dace.float32)
    return sdfg


def shares(columns: int) -> Nest:
    """Y = exp(X) / sum of exp(X) over the row, with the largest element beside the sum."""
    (row,) = points(1)
    (k,), (v,) = loop_parameters(1, 1), loop_parameters(0, 1)
    local = {"total": ((1,), dace.float64), "largest": ((1,), dace.float32)}

    def exponential(column: object) -> object:
        return apply("exp", read("X", dace.float32, (row, column), (ROWS, columns)))

    terms = (
        Write(target="total", index=(0,), value=exponential(k).astype(dace.float64), operator="sum"),  # pyright: ignore
        Write(target="largest", index=(0,), value=exponential(k), operator="max"),  # pyright: ignore
    )
    total = read("total", dace.float64, (0,), (1,)).astype(dace.float32)
    largest = read("largest", dace.float32, (0,), (1,))
    share = apply("div", exponential(v), total)  # pyright: ignore
    return Nest(
        label="share",
        params=(row,),
        extents=(ROWS,),
        loops=(
            start("total", (1,), dace.float64, "sum"),
            start("largest", (1,), dace.float32, "max"),
            Loop(params=(k,), extents=(columns,), writes=terms, sequential=1),
            Loop(
                params=(v,),
                extents=(columns,),
                writes=(Write(target="Y", index=(row, v), value=apply("min", share, largest)),),
            ),
        ),
        local=local,
    )


def run(
    nest: Nest, columns: int, folder: Path, key: str, *, on_device: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a nest of shares computes, and torch's numbers."""
    sdfg = arrays(columns)
    emit_nest(Builder(sdfg, next(iter(sdfg.states()))), nest)
    network = Network(sdfg=sdfg, inputs=("X",), outputs=("Y",))
    if on_device:
        schedule_on_device(network)
    sdfg.validate()
    x = torch.randn(ROWS, columns, generator=torch.Generator().manual_seed(columns))
    (y,) = build(network, folder, key=key)([x])
    e = x.double().exp()
    return y, torch.minimum(e / e.sum(1, keepdim=True), e.amax(1, keepdim=True)).float()
