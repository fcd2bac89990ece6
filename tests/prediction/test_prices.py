"""Prices, which the user gives with their dates."""

from __future__ import annotations

import pytest

from daceml.devices.catalogue import find_device
from daceml.errors import DeviceError, PriceError
from daceml.prediction.prices import Price, price_of, prices_of
from tests.support.golden import raises


def test_a_price_has_a_device_an_amount_and_a_date():
    assert price_of("H100=2.95@2026-05-20") == (
        find_device("H100"),
        Price(usd_per_hour=2.95, date="2026-05-20"),
    )


@pytest.mark.parametrize(
    ("text", "fact", "exact"),
    [
        ("H100=2.95", "date", True),
        ("H100", "", True),
        ("=2.95@2026-05-20", "", True),
        ("H100=cheap@2026-05-20", "'cheap'", False),
        ("H100=2.95@May", "'May'", False),
        ("H100=0@2026-05-20", "0", True),
        ("H100=nan@2026-05-20", "nan", True),
    ],
)
def test_what_is_no_price(text: str, fact: str, exact: bool):
    with raises(PriceError, repr(text), "--price H100=2.95@2026-05-20", exact=exact) as refusal:
        price_of(text)
    assert fact in refusal.value.why


def test_a_price_of_a_device_that_nobody_knows():
    with raises(DeviceError, "'H1000'"):
        price_of("H1000=2.95@2026-05-20")


def test_prices_are_of_devices_that_are_asked_about_and_one_each():
    h100, l4 = find_device("H100"), find_device("L4")
    found = prices_of(["h100=3@2026-05-20", "L4=0.5@2026-05-20"], [h100, l4])
    assert {name: one.usd_per_hour for name, one in found.items()} == {h100.name: 3.0, l4.name: 0.5}
    with raises(PriceError, "'L4=0.5@2026-05-20'", h100.name, "--to"):
        prices_of(["L4=0.5@2026-05-20"], [h100])
    with raises(PriceError, h100.name, "'h100=2@2026-05-21'"):
        prices_of(["H100=3@2026-05-20", "h100=2@2026-05-21"], [h100])


def test_what_a_dollar_buys():
    price = Price(usd_per_hour=2.0, date="2026-05-20")
    assert price.usd(1800.0) == 1.0 and price.samples_per_usd(10.0) == 18000.0


def test_a_price_that_is_none_is_none_in_python_too():
    with raises(PriceError, "0"):
        Price(usd_per_hour=0.0, date="2026-05-20")
    with raises(PriceError, "-3"):
        Price(usd_per_hour=-3.0, date="2026-05-20")
    with raises(PriceError, "'some day'", "2026-05-20", exact=False):
        Price(usd_per_hour=3.0, date="some day")
