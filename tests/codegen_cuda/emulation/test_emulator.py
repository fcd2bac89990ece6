"""What right kernels compute, in any order of threads; and what is said of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.codegen_cuda.emulation.emulator import Edge, Order
from daceml.errors import ExecutionError
from tests.codegen_cuda.emulation.kernels import KERNELS
from tests.codegen_cuda.emulation.units import unit
from tests.support.golden import raises

BARRIER = "__syncthreads();"
ORDERS = [(Order.ASCENDING, 0), (Order.DESCENDING, 0), (Order.RANDOM, 1), (Order.RANDOM, 2)]


@pytest.mark.parametrize("edge", Edge)
@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_blocks_with_a_ragged_tail(order: Order, seed: int, edge: Edge):
    x = np.arange(131, dtype=np.float32)
    _, y = unit(KERNELS).run("launch_doubled", x, np.zeros_like(x), 131, order=order, seed=seed, edge=edge)
    assert (y == 2 * x).all()


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_reductions_of_a_block_give_every_thread_the_same_bits(order: Order, seed: int):
    x = np.random.default_rng(0).random((3, 777), np.float32)
    _, y = unit(KERNELS).run("launch_row_sums", x, np.zeros(3, np.float32), 3, 777, order=order, seed=seed)
    assert y == pytest.approx(x.astype(np.float64).sum(1) / x.max(1), rel=1e-6)
    _, first = unit(KERNELS).run("launch_row_sums", x, np.zeros(3, np.float32), 3, 777)
    assert (y == first).all()


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_a_barrier_that_is_there(order: Order, seed: int):
    x = np.arange(128, dtype=np.float32)
    _, y = unit(KERNELS).run("launch_reversed", x, x, 1, order=order, seed=seed)
    assert (y == x[::-1]).all()
    (y,) = unit(KERNELS).run("launch_overwritten", x[:64], 1, order=order, seed=seed)
    assert (y == 1).all()
    (y,) = unit(KERNELS).run("launch_in_warp", x[:32], 1, order=order, seed=seed)
    assert (y == x[31::-1]).all()


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_a_barrier_that_is_missing(order: Order, seed: int):
    x = np.arange(128, dtype=np.float32)
    exact = order is not Order.RANDOM  # which thread comes first is drawn by the C++ library
    with raises(ExecutionError, "launch_reversed", "shared array tile", exact=exact):
        unit(KERNELS).run("launch_reversed", x, x, 0, order=order, seed=seed)
    with raises(ExecutionError, "launch_overwritten", "shared array slot", exact=exact):
        unit(KERNELS).run("launch_overwritten", x[:64], 0, order=order, seed=seed)
    with raises(ExecutionError, "launch_in_warp", "shared array tile", exact=exact):
        unit(KERNELS).run("launch_in_warp", x[:32], 0, order=order, seed=seed)


def test_a_barrier_that_not_all_threads_reach():
    barriers = [number for number, line in enumerate(KERNELS.split("\n"), 1) if line == 8 * " " + BARRIER]
    first, second = barriers[-2:]
    with raises(ExecutionError, "(0, 0, 0)", "(32, 0, 0)", f"line {second}") as caught:
        unit(KERNELS).run("launch_some", 0)
    assert f"line {first}" not in caught.value.why
    with raises(ExecutionError, "(0, 0, 0)", f"line {first}", "(7, 0, 0)", f"line {second}"):
        unit(KERNELS).run("launch_some", 1)


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (0, lambda lane: lane ^ 1),
        (1, lambda lane: lane + 4 if lane % 8 < 4 else lane),
        (2, lambda lane: lane - 3 if lane >= 3 else lane),
        (3, lambda lane: lane // 16 * 16 + 5),
        (4, lambda lane: lane ^ 8 if lane < 16 else lane),
        (7, lambda lane: lane ^ 3),
        (8, lambda lane: 1),
    ],
)
def test_what_lanes_get_from_each_other(which: int, expected):
    (y,) = unit(KERNELS).run("launch_shuffles", np.zeros(32, np.float32), which)
    assert y.tolist() == [expected(lane) for lane in range(32)]


def test_lanes_that_a_shuffle_waits_for_in_vain():
    zeros = np.zeros(32, np.float32)
    with raises(ExecutionError, "ffffffff", "(16, 0, 0)"):
        unit(KERNELS).run("launch_shuffles", zeros, 5)
    with raises(ExecutionError, "lane 31", "0000ffff"):
        unit(KERNELS).run("launch_shuffles", zeros, 6)


@pytest.mark.parametrize("edge", Edge)
def test_an_array_is_left_at_its_end(edge: Edge):
    x, y = np.zeros(8, np.float32), np.zeros(6, np.float32)
    with raises(ExecutionError, "byte 24 of array 1", "has 24"):
        unit(KERNELS).run("launch_moved", x, y, 0, 0, 2, edge=edge)
    x = np.zeros(4096, np.float32)
    with raises(ExecutionError, "byte 16384 of array 0", "has 16384"):
        unit(KERNELS).run("launch_doubled", x, np.zeros(5000), 4100)


def test_an_array_is_left_at_its_begin():
    x = np.zeros(64, np.float32)
    for number, places in enumerate([(-4, 0), (0, -4)]):
        with raises(ExecutionError, f"byte -16 of array {number}", "has 256"):
            unit(KERNELS).run("launch_moved", x, x, *places, 2, edge=Edge.BEGIN)


def test_a_vector_at_an_odd_address():
    x = np.arange(64, dtype=np.float32)
    for source, target in [(0, 0), (1, 0), (0, 3), (2, 1)]:
        _, y = unit(KERNELS).run("launch_moved", x, np.zeros_like(x), source, target, 2)
        assert (y[target : target + 8] == x[source : source + 8]).all()
        assert y.sum() == x[source : source + 8].sum()


def test_shared_memory_that_nobody_has_written():
    with raises(ExecutionError, "launch_unwritten", "shared array tile"):
        unit(KERNELS).run("launch_unwritten", np.zeros(64, np.float32))


def test_a_run_after_one_that_failed():
    x = np.arange(64, dtype=np.float32)
    with raises(ExecutionError, "byte -16 of array 0"):
        unit(KERNELS).run("launch_moved", x, x, -4, 0, 2, edge=Edge.BEGIN)
    _, y = unit(KERNELS).run("launch_doubled", x, x, 64)
    assert (y == 2 * x).all()


def test_all_dimensions_of_blocks_and_threads_and_atomics_are_counted():
    emulated = unit(KERNELS)
    (y,) = emulated.run("launch_counted", np.zeros(1, np.float32), 5)
    assert y[0] == emulated.atomics == 5 * 2 * 3 * 4 * 4 * 2


def test_launches_that_no_device_runs():
    x = np.zeros(1, np.float32)
    with raises(ExecutionError, "launch_doubled", "0 blocks"):
        unit(KERNELS).run("launch_doubled", x, x, 0)
    with raises(ExecutionError, "launch_moved", "2000 threads"):
        unit(KERNELS).run("launch_moved", x, x, 0, 0, 2000)
