"""Figures with a unit."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.network.quantities import bytes_per_s, duration_us, size_bytes
from tests.support.golden import raises


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100Gbps", 12.5e9),
        ("100 Gbit/s", 12.5e9),
        ("25GB/s", 25e9),
        ("25 GiB/s", 25 * 2**30),
        ("1.5e3Mb/s", 187.5e6),
        ("8bps", 1),
    ],
)
def test_bits_are_an_eighth_of_bytes(text: str, value: float):
    assert bytes_per_s(text) == value


def test_sizes_and_times_have_units():
    assert (size_bytes("102MB"), size_bytes("25MiB"), size_bytes("4096")) == (102e6, 25 * 2**20, 4096)
    assert (duration_us("5us"), duration_us("1.5ms"), duration_us("0 s")) == (5, 1500, 0)


@pytest.mark.parametrize("text", ["100", "100Gb", "fast", "-3GB/s", "GB/s", "0GB/s", "1e999GB/s"])
def test_what_is_no_bandwidth_is_refused(text: str):
    with raises(WhatIfError, repr(text)):
        bytes_per_s(text)


def test_what_is_no_size_or_time_is_refused():
    with raises(WhatIfError, "'25 apples'", "25MiB"):
        size_bytes("25 apples")
    with raises(WhatIfError, "'5'"):
        duration_us("5")
