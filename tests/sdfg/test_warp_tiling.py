"""Rows divided among threads: what each has, what all join, and which nests stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dace
import pytest
import torch
from dace.symbolic import int_floor

from daceml.sdfg.nest import Loop, Nest, Operator, Write, loop_parameters, points
from daceml.sdfg.scalar import apply, literal, read
from daceml.sdfg.warp_tiling import MOST_THREADS, NEIGHBOUR, THREAD, WARP, over_threads, threads_of
from tests.support.golden import golden
from tests.support.nests import ROWS, run, shares
from tests.support.sampling import sampled


@pytest.mark.parametrize(
    ("elements", "threads"),
    [(1, 32), (256, 32), (257, 128), (1024, 128), (4096, MOST_THREADS), (10**6, MOST_THREADS)],
)
def test_long_rows_have_more_threads(elements: int, threads: int) -> None:
    assert threads_of(elements) == threads


LONG = 8 * MOST_THREADS + 7


@pytest.mark.parametrize("columns", sampled([WARP, WARP + 1, 3 * WARP - 1, 300, LONG], WARP + 1, 300, LONG))
def test_threads_give_the_same_sum_and_extremum(tmp_path: Path, columns: int) -> None:
    tiled = over_threads(shares(columns))
    assert isinstance(tiled, Nest)
    assert tiled.extents == (ROWS, threads_of(columns))
    ours, expected = run(tiled, columns, tmp_path, f"threads{columns}", on_device=True)
    torch.testing.assert_close(ours, expected)


def test_every_thread_has_its_part_of_a_row_that_is_kept() -> None:
    tiled = over_threads(kept(100))
    assert isinstance(tiled, Nest)
    assert tiled.local["row"] == ((4,), dace.float32)  # 100 elements among 32 threads
    assert [loop.extents for loop in tiled.loops[:2]] == [(1, 2), (int_floor(18 + 31 - THREAD, 32), 2)]


def test_neighbours_are_taken_together_where_they_divide_the_rows() -> None:
    for columns, width in ((101, 1), (102, 2), (1024, 4)):
        tiled = over_threads(kept(columns))
        assert isinstance(tiled, Nest)
        assert {loop.extents[-1] for loop in tiled.loops if NEIGHBOUR in loop.params} == ({width} - {1})


def test_places_in_a_part_of_a_row_are_known_where_loops_are_unrolled() -> None:
    tiled = over_threads(kept(1030))
    assert isinstance(tiled, Nest)
    places = [write.index[0] for loop in tiled.loops for write in loop.writes if write.target == "row"]
    (v,) = loop_parameters(0, 1)
    # 2 times 2 elements in each of 256 threads, and 6 more among 3 of them
    assert places == [2 * v + NEIGHBOUR, NEIGHBOUR + 4]


def test_what_is_no_row_is_written_by_the_first_thread() -> None:
    nest = shares(70)
    (row,) = points(1)
    total = read("total", dace.float64, (0,), (1,)).astype(dace.float32)
    also = Loop(params=(), extents=(), writes=(Write(target="Y", index=(row, 3), value=total),))
    tiled = over_threads(replace(nest, loops=(*nest.loops, also)))
    assert isinstance(tiled, Nest)
    written = tiled.loops[-1]
    assert [str(extent) for extent in written.extents] == ["int_floor(32 - t, 32)"]  # 1 for t = 0, else 0


@pytest.mark.parametrize(
    ("nest", "facts"),
    [
        (lambda: shares(WARP - 1), ["31 elements", "warp"]),
        (lambda: kept(100, shift=1), ["row is", "other places"]),
        (lambda: kept(100, apart=True), ["row is", "apart"]),
        (lambda: again(100), ["total", "read"]),
        (lambda: begun(100), ["total", "threads"]),
        (lambda: followed(100), ["total", "threads"]),
        (lambda: read_back(100), ["Y is", "another thread"]),
    ],
)
def test_nests_that_stay_as_they_are(nest, facts: list[str]) -> None:
    reason = over_threads(nest())
    assert reason == golden()
    assert all(fact in reason for fact in facts)


def kept(columns: int, *, shift: int = 0, apart: bool = False) -> Nest:
    """Y[v] = row[v + shift] where row[v] = 2 X[v]."""
    (row,), (v,) = points(1), loop_parameters(0, 1)
    doubled = read("X", dace.float32, (row, v), (ROWS, columns)) * literal(2.0, dace.float32)
    held = read("row", dace.float32, (v + shift,), (columns,))
    first = Loop(
        params=(), extents=(), writes=(Write(target="row", index=(0,), value=literal(1.0, dace.float32)),)
    )
    return Nest(
        label="kept",
        params=(row,),
        extents=(ROWS,),
        loops=(
            Loop(params=(v,), extents=(columns,), writes=(Write(target="row", index=(v,), value=doubled),)),
            *([first] if apart else []),
            Loop(
                params=(v,),
                extents=(columns - shift,),
                writes=(Write(target="Y", index=(row, v), value=held),),
            ),
        ),
        local={"row": ((columns,), dace.float32)},
    )


def again(columns: int) -> Nest:
    """A sum that is read, and then goes on."""
    nest = shares(columns)
    adds = next(loop for loop in nest.loops if any(write.operator == "sum" for write in loop.writes))
    return replace(nest, loops=(*nest.loops, adds))


def adding(columns: int) -> tuple[int, Nest]:
    """Where the loop that adds up stands in a nest."""
    nest = shares(columns)
    return next(i for i, loop in enumerate(nest.loops) if any(write.operator for write in loop.writes)), nest


def one_more(operator: Operator | None) -> Loop:
    value = literal(3.0, dace.float64)
    return Loop(
        params=(), extents=(), writes=(Write(target="total", index=(0,), value=value, operator=operator),)
    )


def begun(columns: int) -> Nest:
    """A sum that starts with 3, which every thread would add."""
    place, nest = adding(columns)
    return replace(nest, loops=(*nest.loops[:place], one_more(None), *nest.loops[place:]))


def followed(columns: int) -> Nest:
    """A sum to which 3 is added behind the row, which every thread would do."""
    place, nest = adding(columns)
    return replace(nest, loops=(*nest.loops[: place + 1], one_more("sum"), *nest.loops[place + 1 :]))


def read_back(columns: int) -> Nest:
    """A loop that reads what another one has written to the network."""
    (row,), (v,) = points(1), loop_parameters(0, 1)
    nest = shares(columns)
    there = read("Y", dace.float32, (row, columns - 1 - v), (ROWS, columns))
    last = Loop(params=(v,), extents=(columns,), writes=(Write(target="Z", index=(row, v), value=there),))
    return replace(nest, loops=(*nest.loops, last))


def test_a_bool_of_all_threads() -> None:
    (row,), (k,), (v,) = points(1), loop_parameters(1, 1), loop_parameters(0, 1)
    positive = apply("gt", read("X", dace.float32, (row, k), (ROWS, 64)), 0.0)
    held = read("any", dace.bool_, (0,), (1,)).astype(dace.float32)
    nest = Nest(
        label="any",
        params=(row,),
        extents=(ROWS,),
        loops=(
            Loop(
                params=(),
                extents=(),
                writes=(Write(target="any", index=(0,), value=literal(False, dace.bool_)),),
            ),
            Loop(
                params=(k,),
                extents=(64,),
                writes=(Write(target="any", index=(0,), value=positive, operator="max"),),
                sequential=1,
            ),
            Loop(params=(v,), extents=(64,), writes=(Write(target="Y", index=(row, v), value=held),)),
        ),
        local={"any": ((1,), dace.bool_)},
    )
    tiled = over_threads(nest)
    assert isinstance(tiled, Nest)
    (joined,) = (w.value for loop in tiled.loops for w in loop.writes if w.target == "any_of_all")
    assert joined.dtype == dace.bool_
