"""What was measured of a device, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from daceml.devices.measured import CopyRate, MeasuredDevice

# What batches on a quiet machine differ by, several times over.
_STEADY = 0.25


def measured_device_lines(device: MeasuredDevice) -> Iterator[str]:
    """The device, what its memory and caches reach, and what a call costs besides its work."""
    threads = f", {device.threads} threads" if device.threads is not None else ""
    yield f"{device.name} ({device.kind}{threads}; {device.date})"
    beyond = "" if device.beyond_caches else "; too small to be sure that no cache has a part in it"
    yield f"  memory        {_rate(device.memory)}{beyond}"
    if device.cache is not None and device.cache_bytes is not None:
        yield f"  last cache    {_rate(device.cache)}; it has {_bytes(device.cache_bytes)}"
    yield f"  a call        {device.call_us:.2f} us of the host for the smallest operation"
    for arithmetic, rate in device.products.items():
        yield f"  products      {rate / 1e9:.1f} Gflop/s of {arithmetic}"
    if device.launch_us is not None:
        yield f"  a launch      {device.launch_us:.2f} us from one empty kernel to the next"
    if device.graph_launch_us is not None:
        yield f"  in a graph    {device.graph_launch_us:.2f} us"
    if device.resident:
        yield f"  occupancy     {_occupancy(device)}"
    yield "  copies        " + ", ".join(
        f"{_bytes(one.size_bytes)}: {one.bytes_per_s / 1e9:.3g} GB/s" for one in device.copies
    )


def _rate(copy: CopyRate) -> str:
    size = _bytes(copy.size_bytes)
    found = f"{copy.bytes_per_s / 1e9:.3g} GB/s (+-{copy.spread:.0%}) read and written, copying {size}"
    return found if copy.spread <= _STEADY else f"{found}: unsteady, repeat it while nothing else runs"


def _occupancy(device: MeasuredDevice) -> str:
    known = [one for one in device.resident if one.expected is not None]
    if not known:
        return "not known for this architecture: see daceml/devices/occupancy.py"
    differing = device.occupancy_differs
    if not differing:
        return f"the driver's, for {len(known)} kernels and blocks"
    first = differing[0]
    return (
        f"differs from the driver's for {len(differing)} of {len(known)}: {first.blocks} blocks, "
        f"and not {first.expected}, of {first.threads} threads with {first.registers} registers "
        f"and {first.shared_bytes} bytes"
    )


def _bytes(size: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}"
    return f"{size} bytes"
