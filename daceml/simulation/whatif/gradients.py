"""The gradients of a model: how large each is, and where in the run it is computed.

A recording by `daceml.profile` tells them. Of other traces they have to be given: kernels do not say how
large the gradients are that they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daceml.errors import WhatIfError
from daceml.simulation.network.quantities import size_bytes

HOW_TO_GIVE = (
    'give `gradients`: their total ("102MB"), bytes by name of the parameter, or those of a recording by'
    " daceml.profile"
)


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """Of one parameter.

    Attributes:
        name: of the parameter, as in the model's state_dict.
        layer: the module that it belongs to.
        ready: place in the order in which gradients became ready, where that was seen.
        element: type of its elements; gradients of one bucket share it.
    """

    name: str
    layer: str
    size_bytes: float
    ready: int | None = None
    element: str = ""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Gradients that are sent together.

    Attributes:
        layers: that they belong to; empty where nobody knows.
    """

    size_bytes: float
    layers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """All that a backward phase computes for the optimizer.

    Attributes:
        rows: in the order of registration; empty where only the total is known.
        total_bytes: of all.
        sent: the buckets that a data-parallel run had; None where none was seen.
    """

    total_bytes: float
    rows: tuple[Gradient, ...] = ()
    sent: tuple[Bucket, ...] | None = None

    @classmethod
    def of(cls, told: str | float | Mapping[str, float]) -> Gradients:
        """From their total, or bytes of each parameter in the order of registration.

        Raises:
            WhatIfError: a size that is not above zero.
        """
        if isinstance(told, Mapping):
            rows = tuple(
                Gradient(name=name, layer=name.rpartition(".")[0], size_bytes=_checked(size, name))
                for name, size in told.items()
            )
            if not rows:
                raise WhatIfError("no gradient is given", fix=HOW_TO_GIVE)
            return cls(rows=rows, total_bytes=sum(row.size_bytes for row in rows))
        return cls(total_bytes=_checked(size_bytes(told) if isinstance(told, str) else told, "in all"))

    @classmethod
    def recorded(cls, header: Mapping[str, Any]) -> Gradients | None:
        """What the header of a trace says (`Trace.header`); None where `daceml.profile` has not made it.

        Raises:
            WhatIfError: it says so in another form.
        """
        told = header.get("daceml")
        if not isinstance(told, Mapping) or not told.get("gradients"):
            return None
        try:
            rows = tuple(_row(row) for row in told["gradients"])
            return cls(
                rows=rows,
                total_bytes=sum(row.size_bytes for row in rows),
                sent=_sent(told.get("buckets"), {row.name: row.layer for row in rows}),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WhatIfError(
                "the gradients in the trace's header cannot be read",
                why=f"{type(error).__name__}: {error}",
                fix="record the run again with daceml.profile, or " + HOW_TO_GIVE,
            ) from error


def _row(told: Mapping[str, Any]) -> Gradient:
    ready = told.get("ready")
    return Gradient(
        name=str(told["name"]),
        layer=str(told["layer"]),
        size_bytes=_checked(told["size_bytes"], str(told["name"])),
        ready=None if ready is None else int(ready),
        element=str(told.get("dtype", "")),
    )


def _sent(told: Mapping[str, Any] | None, layer_of: Mapping[str, str]) -> tuple[Bucket, ...] | None:
    """Buckets that DistributedDataParallel made; those that are only its rule are made anew."""
    if told is None or told.get("source") != "reducer" or not told.get("buckets"):
        return None
    buckets: list[Bucket] = []
    for row in told["buckets"]:
        layers = dict.fromkeys(layer_of[name] for name in row["parameters"] or ())
        buckets.append(Bucket(size_bytes=_checked(row["size_bytes"], "of a bucket"), layers=tuple(layers)))
    return tuple(buckets)


def _checked(size: Any, of: str) -> float:
    value = float(size)
    if not 0 < value < float("inf"):
        raise WhatIfError(f"gradients {of} have {size} bytes", fix="give a finite size above zero")
    return value
