"""Nests: what is emitted, and what it computes."""

from __future__ import annotations

from pathlib import Path

import dace
import sympy
import torch
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder
from daceml.sdfg.nest import (
    Chunks,
    Loop,
    Nest,
    Write,
    emit_chunks,
    emit_nest,
    hand_over,
    loop_parameters,
    points,
    points_of_chunks,
)
from daceml.sdfg.network import Network
from daceml.sdfg.scalar import read
from tests.support.nests import ROWS, arrays, run, shares
from tests.support.small_networks import build


def test_values_go_from_loop_to_loop_in_registers(tmp_path: Path) -> None:
    for columns in (1, 31, 70):
        ours, expected = run(shares(columns), columns, tmp_path, f"plain{columns}")
        torch.testing.assert_close(ours, expected)  # float32 exponentials, at most 4 ulp


def test_loops_with_independent_iterations_are_marked() -> None:
    sdfg = arrays(70)
    state = next(iter(sdfg.states()))
    entry = emit_nest(Builder(sdfg, state), shares(70))
    assert entry is not None
    inner = [n.map.params for n in state.nodes() if isinstance(n, nodes.MapEntry) and n is not entry]
    assert inner == [["k0"], ["v0"]]


def test_a_nest_without_points_is_nothing() -> None:
    sdfg = arrays(4)
    sdfg.arrays["X"].shape = sdfg.arrays["Y"].shape = (0, 4)
    nest = shares(4)
    empty = Nest(label="x", params=nest.params, extents=(0,), loops=nest.loops, local=nest.local)
    assert emit_nest(Builder(sdfg, next(iter(sdfg.states()))), empty) is None


def test_chunks_of_points_share_a_sum(tmp_path: Path) -> None:
    """Y = X + 1, and the sums of Y's columns over the rows 0 to 2, and 3 to 4."""
    columns = 18
    sdfg = arrays(columns)
    sdfg.add_array("S", [2, columns], dace.float64)
    (chunk,), (point,), (v,) = points(1), points_of_chunks(1), loop_parameters(0, 1)
    row = 3 * chunk + point
    value = read("X", dace.float32, (row, v), (ROWS, columns)) + 1
    writes = (
        Write(target="Y", index=(row, v), value=value),
        Write(target="total", index=(v,), value=value.astype(dace.float64), operator="sum"),
    )
    loop = Loop(params=(v,), extents=(columns,), writes=writes)
    nest = Nest(label="rows", params=(chunk,), extents=(2,), loops=(loop,), local={})
    chunks = Chunks(
        nest=nest,
        params=(point,),
        extents=(sympy.Min(3, ROWS - 3 * chunk),),
        sums={"total": ((columns,), dace.float64)},
        last=(hand_over("total", (columns,), dace.float64, "S", (chunk,)),),
    )
    assert emit_chunks(Builder(sdfg, next(iter(sdfg.states()))), chunks) is not None
    sdfg.validate()
    x = torch.randn(ROWS, columns, generator=torch.Generator().manual_seed(0))
    network = Network(sdfg=sdfg, inputs=("X",), outputs=("Y", "S"))
    y, s = build(network, tmp_path, key="chunks")([x])
    assert torch.equal(y, x + 1)
    # three float64 additions in the order of the rows
    assert torch.equal(s, torch.stack([part.double().cumsum(0)[-1] for part in (y[:3], y[3:])]))
