"""What one rank of `benchmarks.distributed.real_runs` does: python -m ... JOB FOLDER.

Before anything is predicted it is `observed`: the computation alone, all-reduces alone, a recorded run. What
was predicted is then `timed`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

import daceml
from benchmarks import quiet
from benchmarks.distributed.rank_processes import own_rank
from benchmarks.distributed.real_networks import (
    NETWORKS,
    Sending,
    sent_bytes,
    step_parts,
    training_step,
)  # fmt: skip
from benchmarks.distributed.shaped_link import rate_command
from benchmarks.rounds import order_of_round

SIZES = tuple(2**power for power in (12, 16, 18, 20, 22, 24))
"""Bytes of the all-reduces that are timed alone."""

_WARMUP = 3  # DistributedDataParallel makes its buckets anew behind the first step, and then settles


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is asked of all ranks.

    Attributes:
        what: "observed", "linked" (its all-reduces alone) or "timed".
        repeats: steps of the computation alone, all-reduces of each size.
        recorded: steps that are profiled in each recording, and twice as many that are not.
        links: bits per second at which all-reduces are timed; the first one is that of the recorded run. 0
            leaves the link as it is.
        cells: name -> link and `Sending`, timed in turn.
        rounds: of all cells; steps: of a cell in a round.
    """

    what: str
    network: str
    links: tuple[float, ...] = ()
    repeats: int = 0
    recorded: int = 0
    recordings: int = 0
    cells: dict[str, tuple[float, Sending]] = field(default_factory=dict[str, tuple[float, Sending]])
    rounds: int = 0
    steps: int = 0

    def written(self, path: Path) -> Path:
        """As a file for the ranks."""
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Job:
        """What `written` wrote."""
        told: dict[str, Any] = json.loads(path.read_text())
        told["links"] = tuple(told["links"])
        told["cells"] = {
            name: (link, Sending(**(sending | {"caps_mb": tuple(sending["caps_mb"])})))
            for name, (link, sending) in told["cells"].items()
        }
        return cls(**told)


def observed(job: Job, folder: Path) -> dict[str, Any]:
    """All that predictions know: of the network alone, of the link alone, and one recorded run."""
    _linked(job.links[0])
    torch.manual_seed(0)
    alone = NETWORKS[job.network]()
    chain = _computation(job.network, alone, job.repeats)
    known = linked(job, folder)
    _linked(job.links[0])
    return {"chain": chain, **known, "buckets": _record(job, folder)}


def linked(job: Job, folder: Path) -> dict[str, Any]:
    """All-reduces alone."""
    del folder
    return {"table": {f"{link:g}": _all_reduces(link, job.repeats) for link in job.links}}


def _computation(network: str, model: torch.nn.Module, repeats: int) -> dict[str, Any]:
    """Median microseconds of the parts of a step that sends nothing, while the other ranks compute too."""
    parts = step_parts(network, model)
    ready: list[tuple[str, float]] = []
    handles = [
        parameter.register_post_accumulate_grad_hook(
            lambda _, name=name: ready.append((name, time.perf_counter()))
        )
        for name, parameter in model.named_parameters()
    ]
    seen: list[list[float]] = []
    names: list[str] = []
    for number in range(_WARMUP + repeats):
        dist.barrier()
        ready.clear()
        moments = [time.perf_counter()]
        loss = parts[0]()
        moments.append(time.perf_counter())
        parts[1](loss)
        backward_end = time.perf_counter()
        parts[2]()
        moments += [*(moment for _, moment in ready), backward_end, time.perf_counter()]
        names = [name for name, _ in ready]
        if number >= _WARMUP:
            seen.append([(end - start) * 1e6 for start, end in pairwise(moments)])
    for handle in handles:
        handle.remove()
    sizes = {name: p.numel() * p.element_size() for name, p in model.named_parameters()}
    forward_us, *gradients_us, rest_us, update_us = (median(column) for column in zip(*seen, strict=True))
    return {
        "forward_us": forward_us,
        "gradients": [[name, us, sizes[name]] for name, us in zip(names, gradients_us, strict=True)],
        "update_us": rest_us + update_us,
    }


def _all_reduces(link: float, repeats: int) -> list[tuple[int, float, float]]:
    """Bytes, microseconds, and what processors worked meanwhile for this process; of each repeat."""
    _linked(link)
    rows: list[tuple[int, float, float]] = []
    for size in SIZES:
        tensor = torch.zeros(size // 4)
        dist.barrier()
        dist.all_reduce(tensor)  # of its own size, for buffers
        for _ in range(repeats):
            worked, began = time.process_time(), time.perf_counter()
            dist.all_reduce(tensor)
            ended = time.perf_counter()
            rows.append((size, (ended - began) * 1e6, (time.process_time() - worked) * 1e6))
    return rows


def _record(job: Job, folder: Path) -> list[int]:
    """Write traces of a run as DistributedDataParallel does it; the bytes of its buckets."""
    torch.manual_seed(0)
    model = Sending().around(NETWORKS[job.network]())
    step = training_step(job.network, model)
    for _ in range(_WARMUP):
        step()
    dist.barrier()
    count = job.recorded
    for number in range(job.recordings):
        path = recording_folder(folder, number) / "run.json.gz"
        with daceml.profile(model, steps=count, warmup=2, unprofiled=count, path=path) as trace:
            while not trace.done:
                step()
                trace.step()
    return list(sent_bytes(model))


def recording_folder(folder: Path, number: int) -> Path:
    """Where the traces of one recording are: of each rank `run_rank<rank>.json.gz`."""
    return folder / f"recording{number}"


def timed(job: Job, folder: Path) -> dict[str, Any]:
    """Microseconds of a step of each cell in each round, and the buckets that were sent."""
    del folder
    steps: dict[str, Callable[[], None]] = {}
    buckets: dict[str, list[int]] = {}
    # cells that send alike are one model, whatever the link
    models: dict[Sending, tuple[Callable[[], None], list[int]]] = {}
    for name, (_, sending) in job.cells.items():
        if sending not in models:
            torch.manual_seed(0)
            model = sending.around(NETWORKS[job.network]())
            step = training_step(job.network, model)
            for _ in range(_WARMUP):
                step()
            models[sending] = step, list(sent_bytes(model))
        steps[name], buckets[name] = models[sending]
    rounds: list[dict[str, float]] = []
    for number in range(job.rounds):
        seen: dict[str, float] = {}
        for name in order_of_round(tuple(steps), number):
            _linked(job.cells[name][0])
            steps[name]()
            dist.barrier()
            began = time.perf_counter()
            for _ in range(job.steps):
                steps[name]()
            seen[name] = (time.perf_counter() - began) * 1e6 / job.steps
        rounds.append(seen)
    return {"rounds": rounds, "buckets": buckets}


def _linked(bits_per_s: float) -> None:
    """All ranks go on when the link is so fast."""
    dist.barrier()
    if bits_per_s:
        subprocess.run(rate_command(bits_per_s), check=True, capture_output=True)
    dist.barrier()


def main() -> None:
    job, folder = Job.read(Path(sys.argv[1])), Path(sys.argv[2])
    torch.set_num_threads(1)
    rank, count = own_rank(), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store-{job.what}", rank=rank, world_size=count
    )
    quiet.claim_priority()
    result = {"observed": observed, "linked": linked, "timed": timed}[job.what](job, folder)
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
