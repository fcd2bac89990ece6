"""What is known of a device, each figure with its source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from daceml.errors import DeviceError

# Operands of these types, dense matrices. Sums are of float32 or wider but for the last, which stands apart
# because GeForce cards do twice as much of it, and because libraries do not use it unless they are asked to.
ARITHMETICS = ("float32", "tf32", "float16", "bfloat16", "float8", "float16_accumulate_float16")


@dataclass(frozen=True, kw_only=True)
class Sourced:
    """A figure, and who says so.

    Attributes:
        verified: somebody read it in the source, or measured it; else it is from memory, or sources disagree.
    """

    value: float
    source: str
    verified: bool


@dataclass(frozen=True, kw_only=True)
class Device:
    """One kind of device. None is unknown, or not there; `notes` say which where it matters.

    Attributes:
        name: unique in the catalogue; aliases: what drivers, traces and people call it.
        family: what its variants share: "V100".
        compute_capability: times 10; None where it is not NVIDIA's.
        multiprocessors: or compute units, or of a processor the threads that were measured.
        boost_clock_hz: that the peaks belong to.
        memory_bytes: nominal, with what the driver keeps.
        memory_bytes_per_s: peak, read and written together.
        peak_flops_per_s: by `ARITHMETICS`, dense; a multiplication with its addition are two.
        l2_bytes: of the last cache before memory; l2_bytes_per_s: that copies within it reach.
        link_bytes_per_s: to other devices, both directions together, as data sheets have it.
        pcie_generation: of 16 lanes.
        board_power_w: that the whole board may draw.
        achieved_bytes_per_s: of memory, measured.
        achieved_gemm_flops_per_s: by `ARITHMETICS`: of large products of matrices, measured.
        floor_us: what the smallest kernel takes, or on a processor the smallest call.
    """

    name: str
    aliases: tuple[str, ...] = ()
    family: str = ""
    kind: Literal["gpu", "cpu"]
    vendor: str
    architecture: str
    compute_capability: int | None = None
    multiprocessors: Sourced | None = None
    boost_clock_hz: Sourced | None = None
    memory_bytes: Sourced | None = None
    memory_bytes_per_s: Sourced | None = None
    peak_flops_per_s: Mapping[str, Sourced] = field(default_factory=dict[str, Sourced], hash=False)
    l2_bytes: Sourced | None = None
    l2_bytes_per_s: Sourced | None = None
    link_bytes_per_s: Sourced | None = None
    pcie_generation: Sourced | None = None
    board_power_w: Sourced | None = None
    achieved_bytes_per_s: Sourced | None = None
    achieved_gemm_flops_per_s: Mapping[str, Sourced] = field(default_factory=dict[str, Sourced], hash=False)
    floor_us: Sourced | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for label, figure in self.figures():
            if not (math.isfinite(figure.value) and figure.value > 0):
                raise _wrong(self, f"{label} is {figure.value}", "give a number above zero, or leave it out")
            if not figure.source.strip():
                raise _wrong(self, f"{label} has no source", "say where the figure is from")
        for label in PER_ARITHMETIC:
            for arithmetic in getattr(self, label):
                if arithmetic not in ARITHMETICS:
                    fix = f"name one of {', '.join(ARITHMETICS)}"
                    raise _wrong(self, f"{label} has an arithmetic {arithmetic!r}", fix)
        # A figure of another variant, or a peak that is not dense, shows here.
        _below(self, "achieved_bytes_per_s", self.achieved_bytes_per_s, self.memory_bytes_per_s)
        for arithmetic, achieved in self.achieved_gemm_flops_per_s.items():
            label = f"achieved_gemm_flops_per_s.{arithmetic}"
            _below(self, label, achieved, self.peak_flops_per_s.get(arithmetic))

    def figures(self) -> Iterator[tuple[str, Sourced]]:
        """Everything that is known, as ("peak_flops_per_s.float16", its value and source)."""
        for label in FIGURES:
            figure = getattr(self, label)
            if figure is not None:
                yield label, figure
            if label in AFTER:
                table: Mapping[str, Sourced] = getattr(self, AFTER[label])
                yield from ((f"{AFTER[label]}.{name}", table[name]) for name in ARITHMETICS if name in table)
                unknown = [name for name in table if name not in ARITHMETICS]
                yield from ((f"{AFTER[label]}.{name}", table[name]) for name in unknown)

    def is_called(self, name: str) -> bool:
        """Whether this is its name or an alias, in any case and with any separators."""
        return plain(name) in map(plain, (self.name, *self.aliases))

    @property
    def unverified(self) -> tuple[str, ...]:
        """Names of the figures that nobody read again."""
        return tuple(label for label, figure in self.figures() if not figure.verified)

    def need(self, label: str, *, why: str) -> float:
        """A figure that a question cannot do without.

        Args:
            label: "boost_clock_hz", or with an arithmetic: "peak_flops_per_s.float16".
            why: what it is needed for.
        Raises:
            DeviceError: it is not known.
        """
        found = dict(self.figures()).get(label)
        if found is None:
            raise DeviceError(
                f"{label} of {self.name} is not known",
                why=why + "".join(f"\n{note}" for note in self.notes),
                fix=f"describe the device in a TOML file with {label} and its source: docs/devices.md",
            )
        return found.value

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: figures as {value, source, verified}."""

        def plain(value: Any) -> Any:
            if isinstance(value, Sourced):
                return {"value": value.value, "source": value.source, "verified": value.verified}
            if isinstance(value, Mapping):
                return {name: plain(one) for name, one in value.items()}
            return list(value) if isinstance(value, tuple) else value

        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}


# In the order in which they are shown; a table follows the figure that it belongs to.
FIGURES = (
    "multiprocessors", "boost_clock_hz", "memory_bytes", "memory_bytes_per_s", "achieved_bytes_per_s",
    "l2_bytes", "l2_bytes_per_s", "link_bytes_per_s", "pcie_generation", "board_power_w", "floor_us",
)  # fmt: skip
AFTER = {"achieved_bytes_per_s": "peak_flops_per_s", "floor_us": "achieved_gemm_flops_per_s"}
PER_ARITHMETIC = tuple(AFTER.values())


def plain(name: str) -> str:
    """A name as names are compared: letters and digits alone, in one case."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _wrong(device: Device, why: str, fix: str) -> DeviceError:
    return DeviceError(f"the description of {device.name} is wrong", why=why, fix=fix)


def _below(device: Device, label: str, achieved: Sourced | None, peak: Sourced | None) -> None:
    if achieved is not None and peak is not None and achieved.value > peak.value:
        why = f"{label} is {achieved.value:.4g}, above the peak of {peak.value:.4g}"
        raise _wrong(device, why, "compare both sources: another variant, or a count of other operations")
