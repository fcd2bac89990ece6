"""What both kinds of `daceml predict` ask about: devices, and by what they are sorted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daceml.errors import PredictionError

if TYPE_CHECKING:
    from daceml.devices.specification import Device
    from daceml.prediction.prices import Price


def devices_of(text: str) -> list[Device]:
    """The devices of "H100,L4", in this order.

    Raises:
        PredictionError: none is named.
        DeviceError: no device has one of the names.
    """
    from daceml.devices.catalogue import find_device

    devices = [find_device(name.strip()) for name in text.split(",") if name.strip()]
    if not devices:
        raise PredictionError("no device is named", fix="--to H100,L4; daceml devices lists what is known")
    return devices


def check_criterion(criterion: str, prices: Mapping[str, Price]) -> None:
    """Refuse to sort by what nobody has said.

    Raises:
        PredictionError: by cost without any price.
    """
    if criterion == "cost" and not prices:
        raise PredictionError(
            "devices cannot be sorted by cost",
            why="no price is given, and none is known here: prices change",
            fix="give one of each device: --price H100=2.95@2026-05-20",
        )
