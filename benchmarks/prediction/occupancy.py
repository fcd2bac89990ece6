"""Occupancy as `daceml.devices.occupancy` has it, beside what a profiler recorded of every kernel.

Kineto (libkineto/src/CudaDeviceProperties.cpp @07344e6) takes the blocks that a multiprocessor holds by
NVIDIA's calculator, or those of the grid over all multiprocessors where these are fewer; times threads, over
the threads that a multiprocessor holds, in single precision and rounded to percents. It asks the calculator
without the opt-in to more than 48 KiB of shared memory, and so records 0 for a kernel that uses it: an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from daceml.devices.occupancy import occupancy
from daceml.profiling.kineto import read_trace
from daceml.profiling.trace import EventKind

WITHOUT_OPT_IN_BYTES = 48 << 10
RECORDED = "est. achieved occupancy %"

# trace -> (its folder and file, whether the recorder may have errors there)
TRACES: dict[str, tuple[str, bool]] = {
    "ResNet-50, V100, no loader workers": ("resnet50_v100/num_workers_0.pt.trace.json.gz", False),
    "ResNet-50, V100, 4 loader workers": ("resnet50_v100/num_workers_4.pt.trace.json.gz", False),
    "DLRM, A100": ("dlrm_a100/rank3.pt.trace.json.gz", True),
    # beyond the promise: other architectures
    "linear, 2080 Ti": ("linear_2080ti/linear_kineto.json.gz", False),
    "Qwen, H100": ("models_h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", True),
}


def measured(folder: Path) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Every trace of `TRACES`.

    Args:
        folder: of the data set, with `traces` in it.
    """
    rows = [occupancy_row(folder / "traces" / file, name) for name, (file, _) in TRACES.items()]
    return rows, [bar for row in rows for bar in occupancy_bars(row, may_err=TRACES[row["case"]][1])]


def occupancy_row(file: Path, name: str) -> dict[str, Any]:
    """What is equal in one trace, and what is not.

    Returns:
        kernels: with a recorded occupancy; equal, different: how many of them; held_back: how many of the
        equal ones had more blocks than fit at a time, so that occupancy and not the grid decided;
        recorder_errors: recorded as 0 with more than 48 KiB of shared memory, as {name, shared_bytes,
        percent, count}.
    """
    trace = read_trace(file)
    kernels = equal = held_back = 0
    different: list[dict[str, Any]] = []
    errors: dict[tuple[str, int, int], int] = {}
    for event in trace.events.of(EventKind.KERNEL):
        details = trace.events.details[event]
        if RECORDED not in details:
            continue
        kernels += 1
        percent, full = expected_percent(details, trace.devices[details["device"]])
        recorded, shared_bytes = int(details[RECORDED]), int(details["shared memory"])
        kernel = trace.names[trace.events.name[event]]
        if percent == recorded:
            equal += 1
            held_back += full
        elif recorded == 0 and shared_bytes > WITHOUT_OPT_IN_BYTES:
            key = (kernel, shared_bytes, percent)
            errors[key] = errors.get(key, 0) + 1
        else:
            different.append({"name": kernel, "recorded": recorded, "percent": percent})
    return {
        "case": name,
        "kernels": kernels,
        "held_back": held_back,
        "equal": equal,
        "different": len(different),
        "differences": different[:20],
        "recorder_errors": [
            {"name": kernel, "shared_bytes": shared, "percent": percent, "count": count}
            for (kernel, shared, percent), count in sorted(errors.items())
        ],
    }


def expected_percent(details: Mapping[str, Any], device: Mapping[str, Any]) -> tuple[int, bool]:
    """What Kineto should have recorded, and whether occupancy and not the grid decided it.

    Args:
        details: of the kernel's event; device: of the trace's header.
    """
    threads = prod(details["block"])
    held = occupancy(
        10 * device["computeMajor"] + device["computeMinor"],
        threads=threads,
        registers=details["registers per thread"],
        shared_bytes=details["shared memory"],
    ).blocks
    there = np.float32(prod(details["grid"])) / np.float32(device["numSms"])
    resident = min(there, np.float32(held))
    # as it is recorded: 7.2 blocks of 64 threads are 22 % in single precision, and 22.5 % in double
    share = resident * np.float32(threads) / np.float32(device["maxThreadsPerMultiprocessor"])
    return int(float(share) * 100 + 0.5), bool(held < there)


def occupancy_bars(row: dict[str, Any], *, may_err: bool) -> list[Bar]:
    """Nothing is different; and nothing is excused where no kernel has more than 48 KiB.

    Args:
        may_err: kernels that the recorder has wrongly are listed, and no fault of ours.
    """
    case, errors = row["case"], sum(one["count"] for one in row["recorder_errors"])
    note = f"{row['equal']} of {row['kernels']} equal; occupancy, not the grid, decides {row['held_back']}"
    if may_err:
        note += f"; {errors} recorded as 0 with more than 48 KiB of shared memory"
    figure = row["different"] + (0 if may_err else errors)
    # a trace without kernels, or of kernels whose grid decides, shows nothing of occupancy
    shown = row["equal"] > 0 and row["held_back"] > 0
    name = f"{case}: kernels whose occupancy is not the recorded one"
    return [Bar(name=name, figure=figure if shown else None, limit=0, note=note)]
