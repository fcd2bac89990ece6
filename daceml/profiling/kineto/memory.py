"""What allocators did, from the instants named "[memory]", old and new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daceml.profiling.kineto.columns import LONGEST_US, Columns
from daceml.profiling.kineto.numerals import is_number
from daceml.profiling.kineto.timeline import Origin
from daceml.profiling.trace import UNKNOWN, Memory

CPU = -1
_CPU_TYPE = 0  # of c10::DeviceType; 1 is CUDA, 6 HIP
_ALLOCATED, _RESERVED = "Total Allocated", "Total Reserved"
_MOST_DEVICES = 1 << 20


def memory_of(columns: Columns, origin: Origin) -> Memory:
    """Instants as columns, by time; those that say too little are counted as left out."""
    told = [(row, _address(event)) for event in columns.memory if (row := _row(event)) is not None]
    usable = [row for row, _ in told]
    time_us = origin.times([time for time, *_ in usable])
    near = np.flatnonzero(np.abs(time_us) <= LONGEST_US)
    if len(near) < len(columns.memory):
        reason = "of memory without a time, device or size that makes sense"
        columns.left_out[reason] += len(columns.memory) - len(near)
    order = near[np.argsort(time_us[near], kind="stable")]
    values = np.array([row[1:] for row in usable], np.float64).reshape(-1, 4)[order]
    return Memory(
        time_us=time_us[order],
        device=values[:, 0].astype(np.int64),
        size_bytes=values[:, 1],
        allocated_bytes=values[:, 2],
        reserved_bytes=values[:, 3],
        # apart from the others: as numbers of floating point, addresses would lose their last digits
        address=np.array([address for _, address in told], np.int64)[order],
    )


def _row(event: Mapping[str, Any]) -> tuple[float, int, float, float, float] | None:
    said, time = event.get("args"), event.get("ts")
    if not isinstance(said, dict) or time is None or not is_number(time):
        return None
    args: Mapping[str, Any] = said  # pyright: ignore[reportUnknownVariableType]
    size, device = args.get("Bytes"), args.get("Device Id")
    if args.get("Device Type") == _CPU_TYPE:
        device = CPU
    if size is None or not is_number(size) or type(device) is not int or not CPU <= device < _MOST_DEVICES:
        return None
    return time, device, float(size), _bytes(args.get(_ALLOCATED)), _bytes(args.get(_RESERVED))


def _address(event: Mapping[str, Any]) -> int:
    address = event["args"].get("Addr")
    return address if type(address) is int and 0 <= address < 2**63 else UNKNOWN


def _bytes(value: Any) -> float:
    return float(value) if is_number(value) and value >= 0 else float("nan")
