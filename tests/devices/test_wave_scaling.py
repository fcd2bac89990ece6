"""Wave scaling: the paper's equations by hand, its additions one by one, and what it refuses."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.devices.catalogue import catalogue, find_device
from daceml.devices.specification import Device, Sourced
from daceml.devices.wave_scaling import (
    Additions,
    KernelRun,
    exact_ratio,
    many_waves_ratio,
    memory_share,
    scale_kernel,
    wave_blocks,
)
from daceml.errors import DeviceError, ScalingError
from tests.devices.neusight import Row, needs_data, rows
from tests.support.golden import golden, raises


def figure(value: float) -> Sourced:
    return Sourced(value=value, source="a toy", verified=True)


# as a V100 holds blocks; the second has twice of everything
SMALL = Device(
    name="Small", kind="gpu", vendor="Acme", architecture="One", compute_capability=70,
    multiprocessors=figure(10), boost_clock_hz=figure(1e9), memory_bytes_per_s=figure(1e12),
    peak_flops_per_s={"float32": figure(50e12)},
)  # fmt: skip
LARGE = replace(
    SMALL, name="Large", multiprocessors=figure(20), boost_clock_hz=figure(2e9),
    memory_bytes_per_s=figure(2e12), peak_flops_per_s={"float32": figure(200e12)},
)  # fmt: skip
# two blocks of 32 warps on a multiprocessor: waves of 20 and 40
KERNEL = KernelRun(duration_us=100, blocks=4000, threads=1024, registers=32)
PAPER = Additions(achieved_memory=False, floor=False, cache=False)


@pytest.mark.parametrize(("gamma", "ratio"), [(1, 0.5), (0, 0.25), (0.5, 0.3535534)])
def test_equation_2_by_hand(gamma: float, ratio: float):
    found = many_waves_ratio(wave_blocks_ratio=(20, 40), bandwidth_ratio=0.5, clock_ratio=0.5, gamma=gamma)
    assert found == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("blocks", "gamma", "ratio"),
    [
        (20, 1, 1.0),  # one wave on either: the larger one is as slow, its blocks share twice the bandwidth
        (30, 1, 0.5),  # two waves become one
        (30, 0, 0.25),
        (41, 1, 2 / 3),  # three waves become two
        (41, 0, 1 / 3),
        (4000, 1, 0.5),  # as equation 2
    ],
)  # fmt: skip
def test_equation_1_by_hand(blocks: int, gamma: float, ratio: float):
    found = exact_ratio(
        blocks=blocks, wave_blocks_ratio=(20, 40), bandwidth_ratio=0.5, clock_ratio=0.5, gamma=gamma
    )
    assert found == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("intensity", "gamma"), [(0, 1), (50, 0.75), (99.999999, 0.5), (100, 0.5), (400, 0.125), (1e12, 0)]
)
def test_equation_3_by_hand(intensity: float, gamma: float):
    assert memory_share(intensity, 100) == pytest.approx(gamma, abs=1e-8)


def test_a_kernel_bound_by_memory():
    found = scale_kernel(KERNEL, SMALL, LARGE)
    assert (found.origin_wave_blocks, found.wave_blocks) == (20, 40)
    assert (found.duration_us, found.ratio, found.memory_share) == (50, 0.5, 1)
    assert found.notes == (golden(), golden(), golden())
    memory, share, floor = found.notes
    assert all(name in memory and name in floor for name in ("Small", "Large")) and "4.2" in share


def test_a_kernel_at_the_ridge_of_the_destination():
    # 100 flops a byte on the larger device: gamma is a half
    found = scale_kernel(replace(KERNEL, flops=1e9, bytes_moved=1e7), SMALL, LARGE, additions=PAPER)
    assert (found.memory_share, found.notes) == (0.5, ())
    assert found.duration_us == pytest.approx(35.3553, abs=1e-4)
    beyond = scale_kernel(replace(KERNEL, flops=1e9, bytes_moved=0), SMALL, LARGE, additions=PAPER)
    assert (beyond.memory_share, beyond.duration_us) == (0, 25)
    nothing = scale_kernel(replace(KERNEL, flops=0, bytes_moved=0), SMALL, LARGE, additions=PAPER)
    assert nothing.memory_share == 1


def test_the_exact_equation_counts_waves():
    one_wave = replace(KERNEL, blocks=20)
    assert scale_kernel(one_wave, SMALL, LARGE, equation="exact").duration_us == 100
    assert scale_kernel(one_wave, SMALL, LARGE).duration_us == 50


def test_waves_of_real_devices():
    """128 threads of 37 registers, of the Best Practices Guide: 12 blocks on a V100, 8 on a T4."""
    kernel = KernelRun(duration_us=100, blocks=9600, threads=128, registers=37)
    assert wave_blocks(kernel, find_device("V100")) == 960
    assert wave_blocks(kernel, find_device("T4")) == 320
    found = scale_kernel(kernel, find_device("V100"), find_device("T4"))
    assert found.duration_us == pytest.approx(100 * 739 / 239), "measured rates"
    paper = scale_kernel(kernel, find_device("V100"), find_device("T4"), additions=PAPER)
    assert paper.duration_us == pytest.approx(100 * 900 / 320), "data sheets"
    bound = replace(kernel, flops=1e12, bytes_moved=1)
    by_clock = scale_kernel(bound, find_device("V100"), find_device("T4"))
    assert by_clock.duration_us == pytest.approx(100 * 3 * 1530 / 1590, rel=1e-3)


def test_rates_are_measured_of_both_or_of_none():
    half = replace(SMALL, achieved_bytes_per_s=figure(0.5e12))
    assert scale_kernel(KERNEL, half, LARGE).ratio == 0.5
    (memory, _, _) = scale_kernel(KERNEL, half, LARGE).notes
    assert memory == golden() and "Large" in memory and "Small" not in memory
    both = replace(LARGE, achieved_bytes_per_s=figure(2e12))
    assert scale_kernel(KERNEL, half, both).ratio == 0.25
    assert scale_kernel(KERNEL, half, both, additions=PAPER).ratio == 0.5


def test_the_floor_is_not_scaled():
    slow, quick = replace(SMALL, floor_us=figure(2)), replace(LARGE, floor_us=figure(4))
    only = Additions(achieved_memory=False, cache=False)
    assert scale_kernel(replace(KERNEL, duration_us=102), slow, quick, additions=only).duration_us == 4 + 50
    assert scale_kernel(replace(KERNEL, duration_us=2), slow, quick, additions=only).duration_us == 4
    assert scale_kernel(replace(KERNEL, duration_us=1), slow, quick, additions=only).duration_us == 2
    assert scale_kernel(replace(KERNEL, duration_us=102), slow, quick, additions=PAPER).duration_us == 51
    assert scale_kernel(KERNEL, slow, LARGE, additions=only).duration_us == 50
    floor = scale_kernel(KERNEL, slow, LARGE, additions=only).notes[-1]
    assert floor == golden() and "Large" in floor and "Small" not in floor


def test_what_fits_into_one_cache_only():
    only = Additions(achieved_memory=False, floor=False)
    small, large = replace(SMALL, l2_bytes=figure(1e6)), replace(LARGE, l2_bytes=figure(10e6))
    # caches are taken for twice as fast as memory: 1 against 4 TB/s, then 2 against 4, then 1 against 2
    for working_set, ratio in ((5e6, 0.25), (0.5e6, 0.5), (50e6, 0.5)):
        kernel = replace(KERNEL, working_set_bytes=working_set)
        assert scale_kernel(kernel, small, large, additions=only).ratio == ratio
        assert scale_kernel(kernel, small, large, additions=PAPER).ratio == 0.5
    kernel = replace(KERNEL, working_set_bytes=5e6)
    unknown = scale_kernel(kernel, SMALL, large, additions=only)
    assert unknown.ratio == 0.5
    (cache, _) = unknown.notes
    assert cache == golden() and "Small" in cache and "Large" not in cache


def test_too_much_shared_memory_for_the_destination():
    kernel = KernelRun(duration_us=10, blocks=100, threads=256, registers=64, shared_bytes=96 << 10)
    numbers = (256, 64, 96 << 10, 1024, 255, 64 << 10)
    with raises(ScalingError, "T4", *numbers) as caught:
        scale_kernel(kernel, find_device("V100"), find_device("T4"))
    first = caught.value.why.splitlines()[0]
    assert "shared memory" in first and "registers" not in first


def test_what_did_not_run_on_the_origin_either():
    with raises(ScalingError, "Small", 128) as caught:
        scale_kernel(replace(KERNEL, registers=128), SMALL, LARGE)
    first = caught.value.why.splitlines()[0]
    assert "registers" in first and "shared memory" not in first


def test_kernels_of_devices_without_known_limits_are_not_scaled():
    with raises(ScalingError, "MI300X", "NVIDIA"):
        scale_kernel(KERNEL, find_device("V100"), find_device("MI300X"))
    with raises(ScalingError, "Large", "5.2", "daceml/devices/occupancy.py"):
        scale_kernel(KERNEL, SMALL, replace(LARGE, compute_capability=52))


@pytest.mark.parametrize("label", ["boost_clock_hz", "multiprocessors", "memory_bytes_per_s"])
def test_devices_of_which_too_little_is_known(label: str):
    with raises(DeviceError, label, "Large") as caught:
        scale_kernel(KERNEL, SMALL, replace(LARGE, **{label: None}))
    assert not isinstance(caught.value, ScalingError)
    with raises(DeviceError, label, "Small") as caught:
        scale_kernel(KERNEL, replace(SMALL, **{label: None}), LARGE)
    assert not isinstance(caught.value, ScalingError)


def test_a_type_that_the_destination_lacks_is_another_kernel():
    for known in ({}, {"flops": 1.0, "bytes_moved": 1.0}):
        kernel = replace(KERNEL, arithmetic="bfloat16", **known)
        with raises(DeviceError, "peak_flops_per_s.bfloat16", "V100-SXM2-16GB"):
            scale_kernel(kernel, find_device("A100"), find_device("V100"))


@pytest.mark.parametrize(
    "wrong",
    [{"blocks": 0}, {"threads": 0}, {"duration_us": -1.0}, {"flops": float("nan")}, {"bytes_moved": -1.0}],
)
def test_what_is_no_kernel(wrong: dict[str, float]):
    kernel = replace(KERNEL, **wrong)  # pyright: ignore[reportArgumentType]
    numbers = (kernel.blocks, kernel.threads, kernel.duration_us, kernel.flops, kernel.bytes_moved)
    with raises(ScalingError, *numbers):
        scale_kernel(kernel, SMALL, LARGE)


NVIDIA = [device for device in catalogue() if device.vendor == "NVIDIA"]
kernels = st.builds(
    KernelRun,
    duration_us=st.floats(0.1, 1e6),
    blocks=st.integers(1, 10**6),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 64),
    shared_bytes=st.integers(0, 48 << 10),
    flops=st.none() | st.floats(0, 1e15),
    bytes_moved=st.none() | st.floats(0, 1e12),
    working_set_bytes=st.none() | st.floats(0, 1e9),
)
equations = st.sampled_from(("many waves", "exact"))
devices = st.sampled_from(NVIDIA)


@given(kernel=kernels, device=devices, equation=equations, floor=st.none() | st.floats(0.5, 10))
def test_on_the_same_device_nothing_changes(
    kernel: KernelRun, device: Device, equation: str, floor: float | None
):
    known = device if floor is None else replace(device, floor_us=figure(floor))
    found = scale_kernel(kernel, known, known, equation=equation)  # pyright: ignore[reportArgumentType]
    assert found.duration_us == pytest.approx(kernel.duration_us)


@given(kernel=kernels, origin=devices, destination=devices, equation=equations)
def test_there_and_back(kernel: KernelRun, origin: Device, destination: Device, equation: str):
    """With one gamma for both ways; that of equation 3 belongs to the destination."""
    kernel = replace(kernel, flops=None)
    there = scale_kernel(kernel, origin, destination, equation=equation)  # pyright: ignore[reportArgumentType]
    moved = replace(kernel, duration_us=there.duration_us)
    back = scale_kernel(moved, destination, origin, equation=equation)  # pyright: ignore[reportArgumentType]
    assert back.duration_us == pytest.approx(kernel.duration_us)


@given(kernel=kernels, origin=devices, destination=devices, waves=st.integers(1, 100))
def test_whole_waves_make_both_equations_one(
    kernel: KernelRun, origin: Device, destination: Device, waves: int
):
    blocks = waves * wave_blocks(kernel, origin) * wave_blocks(kernel, destination)
    whole = replace(kernel, blocks=blocks)
    exact = scale_kernel(whole, origin, destination, equation="exact")
    assert exact.duration_us == pytest.approx(scale_kernel(whole, origin, destination).duration_us)


@needs_data
def test_measured_additions_of_80_to_200_mb_on_five_devices():
    """Every device predicted from every other: the kernel is the same, and where gamma is 1 waves cancel."""
    by_sizes: dict[tuple[int, ...], dict[str, Row]] = defaultdict(dict)
    for row in rows("add"):
        by_sizes[row.sizes][row.device.name] = row
    chosen = [found for (b, h), found in by_sizes.items() if 80e6 < 12 * b * h < 200e6]
    assert len(chosen) > 150 and all(len(found) == 5 for found in chosen)
    errors: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for found in chosen:
        for origin in found.values():
            for target in found.values():
                for achieved in (True, False):
                    kernel = KernelRun(
                        duration_us=origin.duration_us,
                        blocks=origin.blocks,
                        threads=origin.threads,
                        registers=32,
                    )
                    additions = Additions(achieved_memory=achieved)
                    predicted = scale_kernel(kernel, origin.device, target.device, additions=additions)
                    error = abs(predicted.duration_us / target.duration_us - 1)
                    errors[origin.device.name, target.device.name, achieved].append(error)
    measured = [
        mean(found) for (origin, target, achieved), found in errors.items() if achieved and origin != target
    ]
    sheets = [
        mean(found)
        for (origin, target, achieved), found in errors.items()
        if not achieved and origin != target
    ]
    assert len(measured) == len(sheets) == 20
    assert max(measured) < 0.04, "by measured rates"
    assert max(sheets) > 0.15 and mean(sheets) > 3 * mean(measured), "by data sheets"
