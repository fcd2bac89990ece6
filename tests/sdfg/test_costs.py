"""Static costs, counted by hand."""

from __future__ import annotations

import dace
import pytest

from daceml.sdfg.costs import Cost
from daceml.sdfg.loops import shared_iterations
from daceml.sdfg.network import Network
from daceml.sdfg.network_costs import maps_cost
from daceml.transformations.hardware.streamed_stores import stream_stores
from daceml.transformations.local.map_fusion import fuse_maps
from tests.support.small_networks import elementwise


def test_an_elementwise_map_reads_and_writes_each_element_once():
    count, cost = maps_cost(elementwise(["_out = exp(_a) * dace.float32(2)"], (8, 32)))
    assert count == 1
    assert cost.unique_bytes == cost.total_bytes == 2 * 8 * 32 * 4
    assert (cost.flops, cost.special_functions) == (8 * 32, 8 * 32)


def test_fusion_saves_the_array_between():
    network = elementwise(["_out = exp(_a)", "_out = _a + dace.float32(1)", "_out = _a * _a"], (8, 32))
    _, before = maps_cost(network)
    fuse_maps(network)
    count, after = maps_cost(network)
    assert count == 1
    assert before.unique_bytes == 6 * 8 * 32 * 4
    assert after.unique_bytes == 2 * 8 * 32 * 4
    assert after.flops == before.flops


def test_symbolic_costs_take_values_later():
    sdfg = dace.SDFG("network")
    sdfg.add_symbol("N", dace.int64)
    n = dace.symbol("N")
    state = sdfg.add_state()
    for name in ("x", "y"):
        sdfg.add_array(name, [n], dace.float64)
    state.add_mapped_tasklet(
        "m",
        {"i": "0:N"},
        {"a": dace.Memlet("x[i]")},
        "o = a + a",
        {"o": dace.Memlet("y[i]")},
        external_edges=True,
    )
    _, cost = maps_cost(Network(sdfg=sdfg, inputs=("x",), outputs=("y",)))
    assert cost.at({"N": 10}).unique_bytes == 160
    assert cost.at({"N": 10}).flops == 10


def test_a_triangle_of_iterations_counts_exactly():
    from tests.support.operator_programs import lowered

    text = "g (float[3, 6] X) => (float[3, 6] Y) { A = Constant <value_int = 1> () Y = CumSum (X, A) }"
    _, cost = maps_cost(lowered(text, ("native",))[1].network)
    additions = 3 * (1 + 2 + 3 + 4 + 5 + 6)
    assert cost.flops >= additions
    assert cost.total_bytes == (additions + 3 * 6) * 4


def test_a_segment_counts_one_row():
    from tests.support.operator_programs import lowered

    text = "g (float[T, 5] R, int64[3] O) => (float[3, 5] Y) { Y = daceml.SegmentSum (R, O) }"
    _, cost = maps_cost(lowered(text, ("native",))[1].network)
    assert cost.at({"T": 9}).flops > 0


def _mapped(code: str, ranges: dict[str, str], read: str, written: str, schedule: dace.ScheduleType) -> Cost:
    """Cost of one map from x[6, 8] to y[6, 8]."""
    sdfg = dace.SDFG("network")
    for name in ("x", "y"):
        sdfg.add_array(name, [6, 8], dace.float32)
    sdfg.add_state().add_mapped_tasklet(
        "m", ranges, {"a": dace.Memlet(read)}, code, {"o": dace.Memlet(written)},
        schedule=schedule, external_edges=True,
    )  # fmt: skip
    return maps_cost(Network(sdfg=sdfg, inputs=("x",), outputs=("y",)))[1]


_ROWS = {"i": "0:6", "j": "0:8"}


@pytest.mark.parametrize(
    ("ranges", "read", "written", "vector", "scalar", "strided", "starts"),
    [
        (_ROWS, "x[i, j]", "y[i, j]", 48 * 3, 0, 0, 6),
        (_ROWS, "x[i, 0]", "y[i, j]", 48 * 3, 0, 0, 6),  # one value for a whole row
        (_ROWS, "x[i, 7 - j]", "y[i, j]", 0, 48 * 3, 0, 6),  # backwards
        ({"j": "0:8", "i": "0:6"}, "x[i, j]", "y[i, j]", 0, 48 * 3, 0, 8),  # columns
        ({"i": "0:6", "j": "0:8:2"}, "x[i, j]", "y[i, j]", 0, 24 * 3, 0, 6),
        ({"i": "0:6", "j": "0:8", "k": "0:1"}, "x[i, j]", "y[i, j + k]", 48 * 3, 0, 0, 6),
        ({"k": "0:1"}, "x[0, k]", "y[0, k]", 3, 0, 0, 1),
    ],
)
def test_operations_by_what_their_loop_lets_them_do(
    ranges: dict[str, str], read: str, written: str, vector: int, scalar: int, strided: int, starts: int
):
    cost = _mapped("o = -a", ranges, read, written, dace.ScheduleType.Default)
    found = (cost.vector_operations, cost.scalar_operations, cost.strided_accesses, cost.loop_starts)
    assert found == (vector, scalar, strided, starts)


def cost_of_column_sums(
    rows: list[int], columns: int, schedule: dace.ScheduleType, written: str = "o = a"
) -> Cost:
    """Of y[j] = the sum of x[..., j] over all rows, in loops over rows inside of one over columns.

    Args:
        written: what is made of a sum.
    """
    names = [f"i{place}" for place in range(len(rows))]
    sdfg = dace.SDFG("network")
    sdfg.add_array("x", [*rows, columns], dace.float32)
    sdfg.add_array("y", [columns], dace.float32)
    sdfg.add_scalar("t", dace.float32, transient=True)
    state = sdfg.add_state()
    x, y, t = state.add_read("x"), state.add_write("y"), state.add_access("t")
    outer, end = state.add_map("columns", {"j": f"0:{columns}"}, schedule=schedule)
    ranges = {name: f"0:{count}" for name, count in zip(names, rows, strict=True)}
    inner, inner_end = state.add_map("rows", ranges, schedule=dace.ScheduleType.Sequential)
    add = state.add_tasklet("add", {"a"}, {"o"}, "o = a")
    write = state.add_tasklet("write", {"a"}, {"o"}, written)
    read = dace.Memlet(f"x[{', '.join([*names, 'j'])}]")
    state.add_memlet_path(x, outer, inner, add, dst_conn="a", memlet=read)
    total = dace.Memlet("t[0]", wcr="lambda a, b: a + b")
    state.add_memlet_path(add, inner_end, t, src_conn="o", memlet=total)
    state.add_memlet_path(t, write, dst_conn="a", memlet=dace.Memlet("t[0]"))
    state.add_memlet_path(write, end, y, src_conn="o", memlet=dace.Memlet("y[j]"))
    return maps_cost(Network(sdfg=sdfg, inputs=("x",), outputs=("y",)))[1]


@pytest.mark.parametrize(
    ("rows", "columns", "schedule", "vector", "strided"),
    [
        (512, 8, dace.ScheduleType.Sequential, 8 * 512 * 2, 0),  # columns side by side
        (64, 512, dace.ScheduleType.CPU_Multicore, 0, 512 * 64),  # each thread goes down its own ones
        (64, 511, dace.ScheduleType.CPU_Multicore, 0, 0),  # in short steps, which are fetched ahead
        (8, 512, dace.ScheduleType.CPU_Multicore, 0, 0),  # so few lines stay in the nearest cache
    ],
)
def test_sums_of_columns(rows: int, columns: int, schedule: dace.ScheduleType, vector: int, strided: int):
    cost = cost_of_column_sums([rows], columns, schedule)
    assert cost.strided_accesses == strided
    assert (cost.vector_operations >= vector) and (vector > 0 or cost.scalar_operations >= columns * rows * 2)
    assert cost.dependent_operations == (0 if vector else columns * rows)


@pytest.mark.parametrize("written", ["o = a if a > 0 else 0", "o = max(a, 0)", "o = exp(a)"])
def test_a_decision_beside_a_loop_lets_compilers_do_one_iteration_at_a_time(written: str):
    straight = cost_of_column_sums([64], 32, dace.ScheduleType.Sequential, "o = sqrt(a)")
    decided = cost_of_column_sums([64], 32, dace.ScheduleType.Sequential, written)
    assert straight.dependent_operations == 0 and straight.scalar_operations == 0
    assert decided.dependent_operations == 64 * 32 and decided.scalar_operations >= 2 * 64 * 32


@pytest.mark.parametrize(("columns", "left"), [(2, 2), (3, 3), (4, 0), (7, 3), (14, 6), (16, 0), (56, 8)])
def test_iterations_that_fill_no_vector_are_done_one_by_one(columns: int, left: int):
    cost = cost_of_column_sums([64], columns, dace.ScheduleType.Sequential)
    assert cost.dependent_operations == 64 * left


@pytest.mark.parametrize(
    ("rows", "columns", "far"),
    [
        (128, 3136, False),  # 12,544 bytes are 196 lines: 16 sets of 8 lines keep 128 rows
        (129, 3136, True),
        (16, 512, False),  # 2,048 bytes: 2 sets
        (17, 512, True),
    ],
)
def test_lines_that_stay_until_a_loop_comes_back_are_not_far(rows: int, columns: int, far: bool):
    cost = cost_of_column_sums([rows], columns, dace.ScheduleType.Sequential, "o = max(a, 0)")
    assert cost.strided_accesses == (rows * columns if far else 0)


def test_a_sum_waits_for_itself():
    from tests.support.operator_programs import lowered

    text = "g (float[3, 6] X) => (float[3, 1] Y) { A = Constant <value_ints = [1]> () Y = ReduceSum (X, A) }"
    _, cost = maps_cost(lowered(text, ("native",))[1].network)
    assert cost.scalar_operations >= 3 * 6 * 2
    assert cost.dependent_operations == 3 * 6
    assert cost.strided_accesses == 0


@pytest.mark.parametrize(
    ("schedule", "collapse", "pieces"),
    [
        (dace.ScheduleType.CPU_Multicore, 1, 6),
        (dace.ScheduleType.CPU_Multicore, 2, 48),
        (dace.ScheduleType.Default, 1, 6),
        (dace.ScheduleType.Sequential, 1, 1),
    ],
)
def test_threads_share_what_the_schedule_collapses(schedule: dace.ScheduleType, collapse: int, pieces: int):
    sdfg = dace.SDFG("network")
    sdfg.add_array("y", [6, 8], dace.float32)
    _, entry, _ = sdfg.add_state().add_mapped_tasklet(
        "m", _ROWS, {}, "o = 1", {"o": dace.Memlet("y[i, j]")}, schedule=schedule, external_edges=True
    )
    entry.map.collapse = collapse
    assert shared_iterations(sdfg) == pieces


def test_loops_of_symbolic_lengths_cost_what_they_would():
    sdfg = dace.SDFG("network")
    sdfg.add_symbol("N", dace.int64)
    for name in ("x", "y"):
        sdfg.add_array(name, [4, dace.symbol("N")], dace.float32)
    sdfg.add_state().add_mapped_tasklet(
        "m", {"i": "0:4", "j": "0:N"}, {"a": dace.Memlet("x[i, j]")}, "o = -a",
        {"o": dace.Memlet("y[i, j]")}, external_edges=True,
    )  # fmt: skip
    _, cost = maps_cost(Network(sdfg=sdfg, inputs=("x",), outputs=("y",)))
    assert cost.at({"N": 10}).vector_operations == 4 * 10 * 3
    assert cost.at({"N": 10}).loop_starts == 4
    assert shared_iterations(sdfg) == 4


def test_functions_count_by_what_they_take():
    sdfg = dace.SDFG("network")
    for name in "xy":
        sdfg.add_array(name, [6, 8], dace.float32)
    state = sdfg.add_state()
    code = "o = sigmoid(a) + log(a) / erf(a) + pow(a, a)"
    state.add_mapped_tasklet(
        "f", {"i": "0:6", "j": "0:8"}, {"a": dace.Memlet("x[i, j]")}, code, {"o": dace.Memlet("y[i, j]")},
        external_edges=True,
    )  # fmt: skip
    _, cost = maps_cost(Network(sdfg=sdfg, inputs=("x",), outputs=("y",)))
    assert (cost.exponential_tenths, cost.logarithm_tenths, cost.error_function_tenths) == (480, 480, 480)
    assert (cost.division_tenths, cost.power_tenths, cost.special_functions) == (960, 480, 4 * 48)


def test_sums_over_two_dimensions_are_not_turned_inside_out():
    cost = cost_of_column_sums([5, 7], 8, dace.ScheduleType.Sequential)
    assert cost.dependent_operations == 5 * 7 * 8


def test_what_is_written_past_the_caches_is_told():
    sdfg = dace.SDFG("network")
    n = 2**26
    for name in "xy":
        sdfg.add_array(name, [64, n // 64], dace.float32)
    state = sdfg.add_state()
    state.add_mapped_tasklet(
        "f", {"i": "0:64", "j": f"0:{n // 64}"}, {"a": dace.Memlet("x[i, j]")}, "o = a + 1",
        {"o": dace.Memlet("y[i, j]")}, external_edges=True,
    )  # fmt: skip
    network = Network(sdfg=sdfg, inputs=("x",), outputs=("y",))
    assert maps_cost(network)[1].streamed_bytes == 0
    assert stream_stores(network) == ("y",)
    cost = maps_cost(network)[1]
    assert cost.streamed_bytes == 4 * n and cost.unique_bytes == 8 * n
