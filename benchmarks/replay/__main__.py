"""The simulator beside what real runs recorded: python -m benchmarks.replay FOLDER --check.

FOLDER holds `traces` as the data set of the project does; $DACEML_DATA is the default. Without it only what
is synthetic is measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import command, task_graphs, trace_loading
from benchmarks.bars import Bar
from benchmarks.replay import suites
from benchmarks.replay.overlay import overlay_row
from benchmarks.replay.traces import FACTORS, bound_by_device, replay_row
from daceml.time_budget import budget_s

# trace -> (its folder and file, the largest mean step error; None where there is no bar)
TRACES: dict[str, tuple[str, float | None]] = {
    "ResNet-50, V100, no loader workers": ("resnet50_v100/num_workers_0.pt.trace.json.gz", 0.001),
    "ResNet-50, V100, 4 loader workers": ("resnet50_v100/num_workers_4.pt.trace.json.gz", 0.001),
    **{f"DLRM, rank {r} of 8 V100": (f"dlrm_8xV100/worker{r}.pt.trace.json.gz", 0.005) for r in range(8)},
    "DLRM, A100": ("dlrm_a100/rank3.pt.trace.json.gz", 0.02),
    "CUDA graphs, 1 of 16 A100": ("graphs_16xA100/rank0.pt.trace.json.gz", 0.10),
    "device-bound, V100": ("gpu_bound_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0.005),
    "linear, 2080 Ti": ("linear_2080ti/linear_kineto.json.gz", None),
    "BERT, H100": ("models_h100/gaunernst_bert-small-uncased__1016001.json.gz", None),
    "Qwen, H100": ("models_h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", None),
    "BERT, MI300": ("models_mi300/gaunernst_bert-small-uncased__1016001.json.gz", None),
    "Qwen, MI300": ("models_mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", None),
    "ResNet with checkpointing, MI300": ("act_checkpoint_mi300/resnet_act_checkpoint.json.gz", None),
}
BOUND = "gpu_bound_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
OVERLAY = "sync_micro_a100/end_to_end/simple_add"
SAMPLE = "dlrm_a100/rank3.pt.trace.json.gz"


def trace_bars(row: dict[str, Any], limit: float | None) -> list[Bar]:
    """Of one trace: errors, order, and the laws that hold for every run."""
    case, makespan_us = row["case"], row["makespan_us"]
    ordered = [makespan_us[str(factor)] for factor in FACTORS]
    slower = sum(later < earlier - 1e-6 for earlier, later in pairwise(ordered))
    bars = [
        Bar(name=f"{case}: busy time of a stream off by", figure=row["busy_error"], limit=0.02),
        Bar(name=f"{case}: span of a stream off by", figure=row["span_error"], limit=0.02),
        Bar(name=f"{case}: kernels out of order", figure=row["kernels_out_of_order"], limit=0),
        Bar(name=f"{case}: slower kernels that make a run faster", figure=slower, limit=0),
        Bar(
            name=f"{case}: critical path off the makespan by",
            figure=row["path_error_us"],
            limit=1e-3,
            unit="us",
        ),
        Bar(
            name=f"{case}: replay of the replay off by",
            figure=row["replay_of_replay_us"],
            limit=1e-3,
            unit="us",
        ),
    ]
    if limit is not None:
        bars.insert(0, Bar(name=f"{case}: mean step error", figure=row["step_error"], limit=limit))
    return bars


def bound_bars(row: dict[str, Any]) -> list[Bar]:
    """Of the run whose launch queue is full."""
    spacing_us = row["spacing_us"]
    return [
        Bar(
            name="device-bound: kernels twice as long, times as long, off 2 by",
            figure=abs(row["doubled_us"] / row["whole_us"] - 2),
            limit=0.05,
        ),
        Bar(
            name="device-bound: kernels half as long, off half the busy time or the floor by",
            figure=row["halved_error"],
            limit=0.03,
            note=f"{spacing_us / 1e3:.1f} ms pass between kernels of a stream, and are not halved",
        ),
        Bar(
            name="device-bound: that, over queue depths of 900 to 1,300, spreads by",
            figure=row["depth_spread"],
            limit=0.03,
        ),
    ]


def speed(*, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Of the simulator itself: see `benchmarks.task_graphs`."""
    tasks, rounds = (100_000, 5) if quick else (task_graphs.MILLION, 20)
    row = task_graphs.measure("random", tasks, "numba", rounds)
    return [row], task_graphs.bars_of(row)


def loading(folder: Path) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Of the reader: see `benchmarks.trace_loading`."""
    rows: list[dict[str, Any]] = []
    for name, content in trace_loading.sources(str(folder)):
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "trace.json"
            trace_loading.write_repeated(content, file, trace_loading.MEGABYTES)
            rows.append({"case": f"reading 100 MB of {name}", **trace_loading.measured(file, 2)})
    return rows, trace_loading.bars_of(rows)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command.parser("Replay recorded runs, change them, and time the simulator.")
    parser.add_argument(
        "folder", type=Path, nargs="?", default=os.environ.get("DACEML_DATA"), help="of the data"
    )
    parser.add_argument(
        "--suites", action="store_true", help="replay every trace under $DACEML_SUITES, and nothing else"
    )
    parser.add_argument("--budget", default="1h", metavar="TIME", help="of --suites: 90s, 10m")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.suites:
        options.folder = None
        return command.finish("replay", options, *suites.measured(budget_s(options.budget)))
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    traces = None if options.folder is None else Path(options.folder) / "traces"
    options.folder = None if traces is None else "given"  # a path of this machine says nothing to others
    if traces is None or not traces.is_dir():
        print("no recorded traces: give their folder, or set DACEML_DATA; what is synthetic is measured")
        traces = None
    else:
        for name, (file, limit) in TRACES.items():
            if options.quick and limit is None:
                continue
            row = replay_row(traces / file, name)
            print(f"{name}: {row['tasks']} tasks, mean step error {row['step_error']:.3%}", flush=True)
            rows.append(row)
            bars += trace_bars(row, limit)
        row = bound_by_device(traces / BOUND)
        rows.append(row)
        bars += bound_bars(row)
        row = overlay_row(traces / OVERLAY)
        rows.append(row)
        different = row["missing"] + row["more"]
        note = f"{row['expected']} expected, {row['missing']} missing, {row['more']} more"
        bars.append(
            Bar(name="critical path: device tasks unlike HTA's", figure=different, limit=0, note=note)
        )
    measured = [speed(quick=options.quick)]
    if traces is not None and not options.quick:
        measured.append(loading(traces.parent))
    for more_rows, more_bars in measured:
        rows += more_rows
        bars += more_bars
    return command.finish("replay", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
