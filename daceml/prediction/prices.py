"""What an hour of a device costs, as the user says, with the date of the price: nothing is known here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from daceml.devices.catalogue import find_device
from daceml.devices.specification import Device
from daceml.errors import PriceError

_FIX = "write it as --price H100=2.95@2026-05-20: device, US dollars an hour, and the day it was asked"


@dataclass(frozen=True, kw_only=True)
class Price:
    """Of one device for an hour.

    Attributes:
        date: ISO 8601, the day on which somebody asked.
    Raises:
        PriceError: it is not above 0, or the date is none.
    """

    usd_per_hour: float
    date: str

    def __post_init__(self) -> None:
        if not 0 < self.usd_per_hour < math.inf:
            raise PriceError(
                f"{self.usd_per_hour:g} is no price", why="an hour costs more than nothing", fix="correct it"
            )
        try:
            date.fromisoformat(self.date)
        except ValueError as error:
            raise PriceError(f"{self.date!r} is no date", why=str(error), fix="2026-05-20") from None

    def samples_per_usd(self, samples_per_s: float) -> float:
        """How many samples a dollar buys."""
        return samples_per_s * 3600.0 / self.usd_per_hour

    def usd(self, seconds: float) -> float:
        """What so many seconds cost."""
        return self.usd_per_hour * seconds / 3600.0


def price_of(text: str) -> tuple[Device, Price]:
    """A device and its price, of "H100=2.95@2026-05-20".

    Raises:
        PriceError: a part is missing, or is no price or date.
        DeviceError: no device has this name.
    """
    name, equals, rest = text.partition("=")
    amount, at, day = rest.partition("@")
    if not (name.strip() and equals and at):
        missing = "the date" if equals and not at else "a part"
        raise PriceError(f"{text!r} is no price", why=f"{missing} is missing: prices change", fix=_FIX)
    try:
        usd = float(amount)
        asked = date.fromisoformat(day.strip())
    except ValueError as error:
        raise PriceError(f"{text!r} is no price", why=str(error), fix=_FIX) from None
    if not 0 < usd < math.inf:
        raise PriceError(f"{text!r} is no price", why=f"an hour cannot cost {usd:g} dollars", fix=_FIX)
    return find_device(name.strip()), Price(usd_per_hour=usd, date=asked.isoformat())


def prices_of(texts: Sequence[str], devices: Sequence[Device]) -> Mapping[str, Price]:
    """Name of a device -> its price.

    Raises:
        PriceError: a price of a device that nobody asks about, or two prices of one.
    """
    known = {device.name for device in devices}
    found: dict[str, Price] = {}
    for text in texts:
        device, price = price_of(text)
        if device.name not in known:
            asked = ", ".join(sorted(known))
            raise PriceError(
                f"{text!r} is the price of {device.name}, for which nothing is predicted",
                why=f"asked for are {asked}",
                fix="leave it out, or add the device to --to",
            )
        if device.name in found:
            raise PriceError(f"{device.name} has two prices", why=f"the second is {text!r}", fix="give one")
        found[device.name] = price
    return found
