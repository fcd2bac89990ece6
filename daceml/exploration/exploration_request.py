"""What an exploration is asked for, looked at before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import torch

from daceml.devices.catalogue import find_device
from daceml.errors import ExplorationError
from daceml.exploration.results import Objective
from daceml.tuning.call_precision import TORCH_TYPES

if TYPE_CHECKING:
    from daceml.prediction.prices import Price
    from daceml.tuning.model_call import Subject


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is varied besides the recipe, each value once, and what counts.

    Attributes:
        devices: as it was given, a name, an alias or a file -> its name; each device once.
        batches: numbers of samples besides that of the call itself.
        ranks: more than one.
        prices: name of a device -> price of an hour.
    """

    objective: Objective = "time"
    devices: Mapping[str, str] = field(default_factory=dict[str, str])
    precisions: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict[str, "Price"])


def question(
    subject: Subject,
    *,
    objective: Any = "time",
    devices: Any = (),
    precisions: Any = (),
    batches: Any = (),
    ranks: Any = (),
    prices: Mapping[str, Price] | None = None,
) -> Question:
    """What somebody asks about a subject.

    Raises:
        ExplorationError: something that cannot be asked, with how it may be.
        DeviceError: there is no such device.
    """
    if objective not in get_args(Objective):
        raise ExplorationError(
            f"objective={objective!r}", fix="give one of " + ", ".join(get_args(Objective))
        )
    names = {find_device(str(one)).name: str(one) for one in _each(devices, "devices", '["H100"]')}
    priced = {find_device(name).name: price for name, price in (prices or {}).items()}
    if objective == "cost" and not any(name in priced for name in names):
        raise ExplorationError(
            'objective="cost" without prices' if not priced else "none of the devices has a price",
            why=f"prices are of {', '.join(priced)}" if priced else "",
            fix='give devices=["H100"], prices={"H100": Price(usd_per_hour=2.95, date="2026-05-20")}, '
            "or --device H100 --price H100=2.95@2026-05-20",
        )
    shared = tuple(count for count in _numbers(ranks, "ranks", least=1) if count > 1)
    if shared and not names:
        raise ExplorationError(
            "ranks without a device",
            why="they are predicted on other devices, never run here",
            fix='name one as well: devices=["H100"], or --device H100',
        )
    sizes = _numbers(batches, "batches", least=1)
    if sizes:
        sizes = tuple(size for size in sizes if size != subject.samples)
    return Question(
        objective=objective,
        devices={given: name for name, given in names.items()},
        precisions=_precisions(_each(precisions, "precisions", '["bfloat16"]')),
        batches=sizes,
        ranks=shared,
        prices=priced,
    )


def _each(given: Any, name: str, example: str) -> Sequence[Any]:
    """Values of a list, which a text or a number is not."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ExplorationError(f"{name}={given!r}", why="it is not a list", fix=f"write {name}={example}")
    found: list[Any] = [*given]
    return found


def _numbers(given: Any, name: str, *, least: int) -> tuple[int, ...]:
    values = _each(given, name, "[8, 16]")
    for one in values:
        if not isinstance(one, int) or isinstance(one, bool) or one < least:
            raise ExplorationError(f"{name} of {one!r}", fix=f"give whole numbers from {least} on")
    return tuple(dict.fromkeys(values))


def _precisions(names: Sequence[Any]) -> tuple[str, ...]:
    names = [TORCH_TYPES.get(name, name) if isinstance(name, str) else name for name in names]
    for name in names:
        dtype = getattr(torch, name, None) if isinstance(name, str) else None
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ExplorationError(
                f"{name!r} is no precision", fix="name a floating type of torch: bfloat16, float16"
            )
    return tuple(dict.fromkeys(names))
