"""Prices, which the user gives with their dates."""

from __future__ import annotations

import pytest

from daceml.devices.catalogue import find_device
from daceml.errors import DeviceError, PriceError
from daceml.prediction.prices import Price, price_of, prices_of


def test_a_price_has_a_device_an_amount_and_a_date():
    assert price_of("H100=2.95@2026-05-20") == (
        find_device("H100"),
        Price(usd_per_hour=2.95, date="2026-05-20"),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("H100=2.95", "the date is missing: prices change"),
        ("H100", "a part is missing: prices change"),
        ("=2.95@2026-05-20", "a part is missing: prices change"),
        ("H100=cheap@2026-05-20", "could not convert string to float: 'cheap'"),
        ("H100=2.95@May", "Invalid isoformat string: 'May'"),
        ("H100=0@2026-05-20", "an hour cannot cost 0 dollars"),
        ("H100=nan@2026-05-20", "an hour cannot cost nan dollars"),
    ],
)
def test_what_is_no_price(text: str, why: str):
    with pytest.raises(PriceError) as refusal:
        price_of(text)
    assert str(refusal.value) == (
        f"[DML653] {text!r} is no price\n"
        f"  why:   {why}\n"
        "  fix:   write it as --price H100=2.95@2026-05-20: "
        "device, US dollars an hour, and the day it was asked"
    )


def test_a_price_of_a_device_that_nobody_knows():
    with pytest.raises(DeviceError, match="no device is called 'H1000'"):
        price_of("H1000=2.95@2026-05-20")


def test_prices_are_of_devices_that_are_asked_about_and_one_each():
    h100, l4 = find_device("H100"), find_device("L4")
    found = prices_of(["h100=3@2026-05-20", "L4=0.5@2026-05-20"], [h100, l4])
    assert {name: one.usd_per_hour for name, one in found.items()} == {h100.name: 3.0, l4.name: 0.5}
    with pytest.raises(PriceError, match="is the price of L4, for which nothing is predicted"):
        prices_of(["L4=0.5@2026-05-20"], [h100])
    with pytest.raises(PriceError, match="has two prices"):
        prices_of(["H100=3@2026-05-20", "h100=2@2026-05-21"], [h100])


def test_what_a_dollar_buys():
    price = Price(usd_per_hour=2.0, date="2026-05-20")
    assert price.usd(1800.0) == 1.0 and price.samples_per_usd(10.0) == 18000.0


@pytest.mark.parametrize(("usd", "day"), [(0.0, "2026-05-20"), (-3.0, "2026-05-20"), (3.0, "some day")])
def test_a_price_that_is_none_is_none_in_python_too(usd: float, day: str):
    with pytest.raises(PriceError, match=r"is no (price|date)"):
        Price(usd_per_hour=usd, date=day)
