"""What is known of one operation on one device: what it was, where it ran, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from daceml.errors import EntryError

Attribute = (
    bool | int | float | str | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
)
Direction = Literal["forward", "backward"]
Mode = Literal["eager", "graph", "cold"]
Provenance = Literal["measured", "imported", "predicted"]


@dataclass(frozen=True, kw_only=True)
class Operand:
    """One tensor of an operation.

    Attributes:
        shape: sizes, outermost first.
        dtype: as numpy calls it, and "bfloat16", "float8_e4m3fn", …
        layout: "contiguous", "channels_last", or strides in elements.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str | tuple[int, ...] = "contiguous"

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Of all elements, by the digits of their type's name; those of less than a byte take one.

        Raises:
            EntryError: the name says no size.
        """
        bits = "".join(c for c in self.dtype.partition("_")[0] if c.isdigit())
        if not bits and self.dtype != "bool":
            raise EntryError(
                f"elements of type {self.dtype!r} have no size that is known",
                fix="name the type as numpy does: float32, int64, bool",
            )
        return self.elements * max(1, int(bits or 8) // 8)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What was computed, without where and when.

    Attributes:
        operator: the framework's name ("aten::mm"), that of an ONNX operator ("Gemm"), or "kernel" for one of
            daceml's own fused kernels.
        operands: inputs in the operator's order.
        attributes: everything else that decides what is computed.
        direction: "backward" is the gradient of all operands that have one.
        kernel: name of the compiled kernel, its text's digest, and its launch, where an operation is one.
    """

    operator: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    direction: Direction = "forward"
    kernel: str = ""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where something ran.

    Attributes:
        device: its name, as `daceml devices` lists it where it does.
        fingerprint: what tells one such device from another: memory, power limit, clocks, cores.
        software: component -> version.
    """

    device: str
    fingerprint: str = ""
    software: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Duration:
    """How long it took, of `samples` observations.

    Attributes:
        median_s: of one execution, in seconds; never negative.
        mad_s: median absolute deviation; None where the source does not say.
        p10_s, p90_s: deciles; None where the source does not say.
        mode: "eager" as calls come, "graph" in a captured graph, "cold" with no operand in a cache.
    """

    median_s: float
    samples: int = 1
    mad_s: float | None = None
    p10_s: float | None = None
    p90_s: float | None = None
    mode: Mode = "eager"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of the database.

    Attributes:
        source: who measured, or the file that was imported, or the model that predicted.
        licence: of the number; SPDX where there is one.
        date: ISO 8601.
    """

    operation: Operation
    environment: Environment
    duration: Duration
    provenance: Provenance
    source: str
    licence: str
    date: str
