"""Devices as text: all in a table, or one with every figure and its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from daceml.devices.catalogue import variants
from daceml.devices.from_measurement import UNKNOWN
from daceml.devices.specification import Device, Sourced
from daceml.text_tables import render, table, wrapped

UNVERIFIED = "unverified"
_MARK = "*"
_LEGEND = (
    "",
    "fp32 to fp8: dense peaks in Tflop/s; fp16 adds in fp32.",
    "--wide adds the clock, tf32, and measured rates: reached (memory, GB/s), GEMM (bf16, Tflop/s).",
    f"{_MARK} {UNVERIFIED}: without a source, or sources disagree. `daceml devices NAME` prints all sources.",
)


def device_table(devices: Sequence[Device]) -> str:
    """A row for each device, with a star after unverified figures."""
    rows = table(
        "device", "cc", "SMs", "MHz", "GiB", "GB/s", "reached", "fp32", "tf32", "fp16", "bf16", "fp8", "GEMM",
        details=("MHz", "reached", "tf32", "GEMM"),
    )  # fmt: skip
    for device in devices:
        capability = device.compute_capability
        peak, gemm = device.peak_flops_per_s, device.achieved_gemm_flops_per_s
        figures = (
            (device.multiprocessors, 1.0),
            (device.boost_clock_hz, 1e6),
            (device.memory_bytes, float(1 << 30)),
            (device.memory_bytes_per_s, 1e9),
            (device.achieved_bytes_per_s, 1e9),
            *((peak.get(name), 1e12) for name in ("float32", "tf32", "float16", "bfloat16", "float8")),
            (gemm.get("bfloat16"), 1e12),
        )
        rows.add_row(
            device.name,
            "" if capability is None else f"{capability / 10:.1f}",
            *(_starred(figure, unit) for figure, unit in figures),
        )
    return render(rows, *_LEGEND)


def device_lines(device: Device) -> Iterator[str]:
    """Every figure of a device with its source, its other names, and its variants."""
    words = [word for word in (device.vendor, device.architecture) if word != UNKNOWN]
    about = [device.kind if device.kind == "cpu" else "", " ".join(words)]
    if device.compute_capability is not None:
        about.append(f"compute capability {device.compute_capability / 10:.1f}")
    yield f"{device.name} ({', '.join(filter(None, about)) or device.kind})"
    if device.aliases:
        yield from wrapped(f"also called: {', '.join(device.aliases)}", indent=2)
    others = variants(device) if device.family else ()
    if others:
        yield from wrapped(f"other variants: {', '.join(one.name for one in others)}", indent=2)
    shown = [(label, _shown(label, figure.value), figure) for label, figure in device.figures()]
    width = max((len(label) for label, _, _ in shown), default=0)
    figures = max((len(text) for _, text, _ in shown), default=0)
    for label, text, figure in shown:
        mark = "" if figure.verified else UNVERIFIED
        yield f"  {label:<{width}}  {text:>{figures}}  {mark}".rstrip()
        yield from wrapped(figure.source, indent=6, hanging=0)
    for note in device.notes:
        yield from wrapped(f"note: {note}", indent=2)


def _starred(figure: Sourced | None, unit: float) -> str:
    if figure is None:
        return ""
    return f"{figure.value / unit:.4g}" + ("" if figure.verified else _MARK)


# the beginning of a figure's name -> how it is shown
_SHOWN: dict[str, Callable[[float], str]] = {
    "boost_clock_hz": lambda value: f"{value / 1e6:.5g} MHz",
    "memory_bytes_per_s": lambda value: f"{value / 1e9:.5g} GB/s",
    "memory_bytes": lambda value: f"{value / (1 << 30):.4g} GiB",
    "achieved_bytes_per_s": lambda value: f"{value / 1e9:.5g} GB/s",
    "l2_bytes_per_s": lambda value: f"{value / 1e9:.5g} GB/s",
    "l2_bytes": lambda value: f"{value / (1 << 20):.4g} MiB",
    "link_bytes_per_s": lambda value: f"{value / 1e9:.5g} GB/s",
    "peak_flops_per_s": lambda value: f"{value / 1e12:.5g} Tflop/s",
    "achieved_gemm_flops_per_s": lambda value: f"{value / 1e12:.5g} Tflop/s",
    "floor_us": lambda value: f"{value:.3g} us",
}


def _shown(label: str, value: float) -> str:
    show = _SHOWN.get(label.split(".")[0])
    return f"{value:.5g}" if show is None else show(value)
