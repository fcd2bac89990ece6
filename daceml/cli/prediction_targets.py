"""Options that `daceml predict` and `daceml trace predict` share: target devices, prices, sort criterion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from daceml.errors import DeviceError, ImplausibleAnswerError, PredictionError

if TYPE_CHECKING:
    from daceml.devices.specification import Device
    from daceml.prediction.prices import Price

Found = TypeVar("Found")

To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="DEVICE[,DEVICE]...",
        help="target devices: names of `daceml devices`, or files that describe one",
        show_default=False,
    ),
]
OtherDevices = Annotated[
    list[str] | None,
    typer.Option("--to", metavar="DEVICE[,DEVICE]...", help="devices of `daceml devices` to predict as well"),
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="DEVICE=USD@DATE", help="price of an hour, repeatable: H100=2.95@2026-05-20"
    ),
]
Database = Annotated[
    Path | None,
    typer.Option("--database", metavar="FILE", help="operation database of `daceml measure`"),
]
Models = Annotated[
    Path | None,
    typer.Option("--models", metavar="FILE", help="models of operations of `daceml learn`"),
]


class Criterion(StrEnum):
    """Criteria that sort the rows."""

    TIME = "time"
    THROUGHPUT = "throughput"
    COST = "cost"


Sort = Annotated[Criterion, typer.Option("--sort", help="criterion that sorts the rows, best first")]


def names_of(words: Sequence[str] | None) -> list[str]:
    """The names in the values of an option that may be repeated: ["H100,L4", "T4"] has three."""
    return [name.strip() for word in words or () for name in word.split(",") if name.strip()]


def devices_of(text: str) -> list[Device]:
    """The devices of "H100,L4", in this order.

    Raises:
        PredictionError: none is named.
        DeviceError: no device has one of the names.
    """
    from daceml.devices.catalogue import find_device

    devices = [find_device(name) for name in names_of([text])]
    if not devices:
        raise PredictionError("no device is named", fix="pass --to H100,L4; daceml devices lists the devices")
    return devices


def check_criterion(criterion: str, prices: Mapping[str, Price]) -> None:
    """Refuse to sort by cost without prices.

    Raises:
        PredictionError: no price is given.
    """
    if criterion == "cost" and not prices:
        raise PredictionError(
            "devices cannot be sorted by cost",
            why="no price is given; daceml has no list of prices, as they change",
            fix="give the price of each device: --price H100=2.95@2026-05-20",
        )


def predicted_each(
    devices: Sequence[Device], predicted: Callable[[Device], Found], *, precision: str | None
) -> list[Found]:
    """What is predicted of each device; of several, those without a plausible answer are named and left out.

    Raises:
        DeviceError, ImplausibleAnswerError: a single device has no answer.
        PredictionError: none of several has one.
    """
    found: list[Found] = []
    for device in devices:
        try:
            found.append(predicted(device))
        except (DeviceError, ImplausibleAnswerError) as error:
            if len(devices) == 1:
                raise
            reason = f"{error.what}: {error.why}" if error.why else error.what
            typer.echo(f"left out [{error.code}]: {device.name}: {reason}", err=True)
    if not found:
        raise PredictionError(
            f"none of the devices can be predicted{f' in {precision}' if precision else ''}",
            why="the lines above say why of each",
            fix="take another precision, or describe the devices: docs/devices.md",
        )
    return found
