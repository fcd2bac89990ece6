"""The roofline of a toy device whose numbers divide well, and of every device of the catalogue."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.devices.catalogue import catalogue, find_device
from daceml.devices.roofline import (
    USUAL_CACHE_TIMES_MEMORY,
    USUAL_FLOOR_US,
    USUAL_SHARE_OF_GEMM,
    USUAL_SHARE_OF_MEMORY,
    Work,
    expected,
    fits_cache,
    lower_bound,
    memory_bytes_per_s,
    peak_flops_per_s,
    ridge_flops_per_byte,
)
from daceml.devices.specification import Device, Sourced
from daceml.errors import DeviceError
from tests.devices.neusight import needs_data, rows
from tests.support.golden import golden, raises
from tests.support.sampling import sampled


def figure(value: float) -> Sourced:
    return Sourced(value=value, source="a toy", verified=True)


# 100 flops a byte at the ridge: 1e12 bytes/s, 100e12 flop/s
TOY = Device(
    name="Toy", kind="gpu", vendor="Acme", architecture="One", memory_bytes_per_s=figure(1e12),
    peak_flops_per_s={"float32": figure(100e12)}, l2_bytes=figure(1e6),
)  # fmt: skip
MEASURED = replace(
    TOY, achieved_bytes_per_s=figure(0.5e12), achieved_gemm_flops_per_s={"float32": figure(50e12)},
    l2_bytes_per_s=figure(4e12), floor_us=figure(2),
)  # fmt: skip


def test_a_copy_is_bound_by_memory():
    bound = lower_bound(Work(flops=0, bytes_moved=1e9), TOY)
    assert (bound.duration_us, bound.limited_by, bound.notes) == (1000, "memory", ())


def test_a_product_is_bound_by_arithmetic():
    bound = lower_bound(Work(flops=1e12, bytes_moved=1e9), TOY)
    assert (bound.compute_us, bound.memory_us, bound.duration_us) == (10_000, 1000, 10_000)
    assert bound.limited_by == "compute"


def test_the_ridge_point():
    assert ridge_flops_per_byte(TOY, "float32") == 100
    assert ridge_flops_per_byte(TOY, "float32", bytes_per_s=0.5e12) == 200
    at_ridge = lower_bound(Work(flops=100e9, bytes_moved=1e9), TOY)
    assert at_ridge.compute_us == at_ridge.memory_us == 1000
    # NVIDIA V100: 15.7 Tflop/s over 900 GB/s
    assert ridge_flops_per_byte(find_device("V100"), "float32") == pytest.approx(17.44, abs=0.01)


def test_what_may_lie_in_the_cache_is_not_bound_by_memory():
    work = Work(flops=0, bytes_moved=1e6, working_set_bytes=0.5e6)
    bound = lower_bound(work, MEASURED)
    assert bound.duration_us == 0 and bound.notes == (golden(),)
    assert expected(work, MEASURED).duration_us == pytest.approx(2 + 1e6 / 4e12 * 1e6)
    assert lower_bound(replace(work, working_set_bytes=1e6), MEASURED).duration_us == 1, (
        "as large as the cache"
    )


def test_what_is_expected_of_a_measured_device():
    found = expected(Work(flops=1e9, bytes_moved=1e9), MEASURED)
    assert (found.compute_us, found.memory_us, found.floor_us) == (20, 2000, 2)
    assert (found.duration_us, found.limited_by, found.notes) == (2002, "memory", ())
    assert expected(Work(flops=1e12, bytes_moved=1e9), MEASURED).limited_by == "compute"
    assert expected(Work(flops=0, bytes_moved=1e3), MEASURED).limited_by == "launch"


def test_what_stands_in_for_a_measurement_is_said():
    found = expected(Work(flops=1e12, bytes_moved=1e9), TOY)
    assert found.compute_us == pytest.approx(10_000 / 0.83)
    assert found.memory_us == pytest.approx(1000 / 0.82)
    assert found.floor_us == USUAL_FLOOR_US == 3
    assert found.notes == (golden(), golden(), golden())
    products, memory, floor = found.notes
    assert all(fact in products for fact in ("float32", "Toy", "0.83"))
    assert "0.82" in memory and "3.0 us" in floor
    cached = memory_bytes_per_s(TOY, working_set_bytes=1000)
    assert cached.per_s == pytest.approx(0.82e12 * USUAL_CACHE_TIMES_MEMORY)
    assert cached.notes == (memory, golden())
    assert "Toy" in cached.notes[1] and str(USUAL_CACHE_TIMES_MEMORY) in cached.notes[1]


def test_peaks_alone():
    assert memory_bytes_per_s(MEASURED, achieved=False).per_s == 1e12
    assert memory_bytes_per_s(MEASURED, achieved=False, working_set_bytes=10).per_s == 2e12
    assert memory_bytes_per_s(MEASURED).per_s == 0.5e12


def test_what_is_not_known_is_refused():
    bare = Device(name="Bare", kind="cpu", vendor="Acme", architecture="One")
    with raises(DeviceError, "memory_bytes_per_s", "Bare"):
        lower_bound(Work(flops=0, bytes_moved=1), bare)
    with raises(DeviceError, "memory_bytes_per_s", "Bare"):
        expected(Work(flops=0, bytes_moved=1), bare)
    with raises(DeviceError, "peak_flops_per_s.bfloat16", "V100-SXM2-16GB", "float32, float16"):
        lower_bound(Work(flops=1, bytes_moved=0, arithmetic="bfloat16"), find_device("V100"))
    with raises(DeviceError, "'float64'", "float32, tf32"):
        peak_flops_per_s(TOY, "float64")
    assert not fits_cache(bare, 1), "of a cache that nobody knows nothing is expected"
    # a processor that was measured needs no data sheet for what only moves
    processor = replace(bare, achieved_bytes_per_s=figure(20e9))
    assert expected(Work(flops=0, bytes_moved=20e9), processor).memory_us == 1e6
    unbounded = lower_bound(Work(flops=1e9, bytes_moved=20e9), processor)
    assert (unbounded.duration_us, unbounded.notes) == (0, (golden(),))
    assert "Bare" in unbounded.notes[0]


def test_the_usual_shares_are_the_medians_of_those_that_were_measured():
    memory = [
        device.achieved_bytes_per_s.value / device.need("memory_bytes_per_s", why="")
        for device in catalogue()
        if device.achieved_bytes_per_s is not None
    ]
    gemm = [
        reached.value / device.peak_flops_per_s[name].value
        for device in catalogue()
        for name, reached in device.achieved_gemm_flops_per_s.items()
    ]
    assert (len(memory), len(gemm)) == (14, 7)
    assert pytest.approx(median(memory), abs=0.005) == USUAL_SHARE_OF_MEMORY
    assert pytest.approx(median(gemm), abs=0.005) == USUAL_SHARE_OF_GEMM


amounts = st.floats(1, 1e15)


@given(flops=amounts, moved=amounts, more=st.floats(1, 10), device=st.sampled_from(catalogue()))
def test_laws(flops: float, moved: float, more: float, device: Device):
    work = Work(flops=flops, bytes_moved=moved)
    bound, usual = lower_bound(work, device), expected(work, device)
    assert bound.duration_us <= usual.duration_us, "nothing is expected below its bound"
    assert lower_bound(replace(work, flops=more * flops), device).duration_us >= bound.duration_us
    assert expected(replace(work, bytes_moved=more * moved), device).duration_us >= usual.duration_us
    limited = "compute" if flops / moved > ridge_flops_per_byte(device, "float32") * (1 + 1e-9) else "memory"
    if abs(flops / moved / ridge_flops_per_byte(device, "float32") - 1) > 1e-9:
        assert bound.limited_by == limited


ADD, LINEAR = ("add", 8750, 0.7), ("linear", 32224, 0.65)


def share_of_bound(operator: str) -> dict[str, list[float]]:
    """Device -> lower bound over measured duration of every row."""
    shares: dict[str, list[float]] = {}
    for row in rows(operator):
        if operator == "add":
            b, h = row.sizes
            flops, moved = b * h, 12 * b * h
        else:
            b, m, n, k = row.sizes
            flops, moved = 2 * b * m * n * k, 4 * b * (m * n + m * k + n * k)
        bound = lower_bound(Work(flops=flops, bytes_moved=moved, working_set_bytes=moved), row.device)
        shares.setdefault(row.device.name, []).append(bound.duration_us / row.duration_us)
    return shares


@needs_data
@pytest.mark.parametrize(
    ("operator", "count", "near"),
    sampled([ADD, LINEAR, ("bmm", 87623, 0.7)], ADD, LINEAR),
)
def test_no_measurement_is_faster_than_its_bound(operator: str, count: int, near: float):
    """On five devices, in caches or not; the largest come near, so that the bound is no empty promise."""
    shares = share_of_bound(operator)
    assert (len(shares), sum(map(len, shares.values()))) == (5, count)
    for name, found in shares.items():
        assert near < max(found) <= 1, name
