"""A run in another precision on another device: the what-if's questions, with the device's own peaks."""

from __future__ import annotations

from daceml.devices.specification import Device
from daceml.errors import DeviceError, PredictionError
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.low_precision import LowPrecision
from daceml.simulation.whatif.optimization import Estimate, Optimization

PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8"}
# Of the ratio of peaks, what products gain: Zhu et al., Daydream (ATC '20), Algorithm 3, takes 3 on a card
# whose ratio of float16 to float32 is 4; at worst 2 of 4.
_LIKELY, _SLOW = 0.75, 0.5


def in_precision(precision: str, destination: Device) -> Optimization:
    """The optimisation of a run in float32, or for fp8 of one in 16 bits, on a device.

    Args:
        precision: one of `PRECISIONS`.
    Raises:
        PredictionError: another word.
        DeviceError: the device is not known to compute in it.
    """
    if precision not in PRECISIONS:
        raise PredictionError(
            f"nothing is known of a precision {precision!r}", fix=f"name one of {', '.join(PRECISIONS)}"
        )
    arithmetic = PRECISIONS[precision]
    peaks = {name: figure.value for name, figure in destination.peak_flops_per_s.items()}
    if arithmetic not in peaks or "float32" not in peaks:
        raise DeviceError(
            f"{destination.name} has no peak of {arithmetic}",
            why=f"peaks are known for {', '.join(peaks) or 'nothing'}",
            fix="take another precision, or describe the device in a TOML file: docs/devices.md",
        )
    if precision == "fp8":
        half = peaks.get("bfloat16", peaks["float32"])
        return LowPrecision(
            dtype="fp8",
            compute_speedup=_gained(half / peaks["float32"]),
            tf32_speedup=_gained(half / peaks.get("tf32", peaks["float32"])),
            fp8_speedup=_gained(peaks[arithmetic] / half),
        )
    return AutomaticMixedPrecision(
        dtype="bf16" if precision == "bf16" else "fp16",
        compute_speedup=_gained(peaks[arithmetic] / peaks["float32"]),
        tf32_speedup=_gained(peaks[arithmetic] / peaks.get("tf32", peaks["float32"])),
    )


def _gained(ratio: float) -> Estimate:
    return Estimate(_LIKELY * ratio, fast=ratio, slow=_SLOW * ratio)
