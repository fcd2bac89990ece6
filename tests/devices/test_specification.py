"""A device's record: what it refuses to hold, and what it says of itself."""

from __future__ import annotations

import json

import pytest

from daceml.devices.specification import ARITHMETICS, Device, Sourced
from daceml.errors import DeviceError
from tests.support.golden import raises


def sure(value: float) -> Sourced:
    return Sourced(value=value, source="a data sheet", verified=True)


def guess(value: float) -> Sourced:
    return Sourced(value=value, source="somebody's memory", verified=False)


def device(**figures: object) -> Device:
    return Device(name="Toy", kind="gpu", vendor="Acme", architecture="One", **figures)  # pyright: ignore[reportArgumentType]


def test_figures_are_told_in_one_order_with_what_nobody_read_again():
    toy = device(
        floor_us=guess(2),
        multiprocessors=sure(4),
        peak_flops_per_s={"float16": guess(2e12), "float32": sure(1e12)},
    )
    assert [label for label, _ in toy.figures()] == [
        "multiprocessors", "peak_flops_per_s.float32", "peak_flops_per_s.float16", "floor_us",
    ]  # fmt: skip
    assert toy.unverified == ("peak_flops_per_s.float16", "floor_us")


def test_tables_are_told_even_where_the_figure_before_them_is_not_known():
    assert [label for label, _ in device(peak_flops_per_s={"tf32": sure(1)}).figures()] == [
        "peak_flops_per_s.tf32"
    ]


def test_what_is_needed_and_not_known_is_refused_with_what_to_do():
    toy = device(notes=("Sources disagree on the clock.",))
    with raises(DeviceError, "boost_clock_hz", "Toy", "docs/devices.md") as caught:
        toy.need("boost_clock_hz", why="the ratio of clocks is taken")
    assert caught.value.why == "the ratio of clocks is taken\nSources disagree on the clock."
    assert device(boost_clock_hz=sure(1e9)).need("boost_clock_hz", why="") == 1e9


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_figure_is_above_zero(value: float):
    with raises(DeviceError, "Toy", "memory_bytes", value):
        device(memory_bytes=sure(value))


def test_a_figure_without_a_source_is_none():
    with raises(DeviceError, "Toy", "memory_bytes", "source"):
        device(memory_bytes=Sourced(value=1, source=" ", verified=False))


def test_an_arithmetic_that_nobody_knows_is_refused():
    with raises(DeviceError, "peak_flops_per_s", "'float16_sparse'", ", ".join(ARITHMETICS)):
        device(peak_flops_per_s={"float16_sparse": sure(1)})


def test_nothing_reaches_more_than_its_peak():
    with raises(DeviceError, "Toy", "achieved_bytes_per_s", "9.01e+11", "9e+11"):
        device(memory_bytes_per_s=sure(900e9), achieved_bytes_per_s=sure(901e9))
    with raises(DeviceError, "Toy", "achieved_gemm_flops_per_s.tf32", 2, 1):
        device(peak_flops_per_s={"tf32": sure(1)}, achieved_gemm_flops_per_s={"tf32": sure(2)})


def test_names_are_compared_by_letters_and_digits():
    toy = device(aliases=("NVIDIA Toy-80GB",))
    assert toy.is_called("nvidia_toy 80gb") and toy.is_called("TOY")
    assert not toy.is_called("Toy 8") and not toy.is_called("")


def test_a_device_can_be_a_key():
    assert {device(peak_flops_per_s={"tf32": sure(1)}): 1}[device(peak_flops_per_s={"tf32": sure(1)})] == 1


def test_as_json():
    values = json.loads(
        json.dumps(device(multiprocessors=guess(4), peak_flops_per_s={"tf32": sure(1)}).as_dict())
    )
    assert values["multiprocessors"] == {"value": 4, "source": "somebody's memory", "verified": False}
    assert values["peak_flops_per_s"]["tf32"]["verified"] is True
    assert values["l2_bytes"] is None and values["aliases"] == []
