"""A run of some seconds over Gloo on this machine, one profiled process a rank.

As a program it is one rank: python -m benchmarks.distributed.gloo_ranks RANK RANKS SECONDS FOLDER.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

ELEMENTS = (16_384, 262_144)  # of the all-reduces of one step: 64 kB and 1 MB
_PART = 256  # elements of each rank that are gathered and exchanged
_PAUSE_S = (0.0, 0.01)
_START_S = 120.0  # for starting processes and writing traces, at most


def record(folder: Path, *, ranks: int, seconds: float) -> list[Path]:
    """Traces of a run; each step computes, reduces, gathers, exchanges and pauses in between.

    Raises:
        RuntimeError: a rank failed; the message has what it printed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "benchmarks.distributed.gloo_ranks"]
    processes = [
        subprocess.Popen(
            [*program, str(rank), str(ranks), str(seconds), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        printed = [process.communicate(timeout=seconds + _START_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, process in enumerate(processes):
        if process.returncode != 0:
            raise RuntimeError(f"rank {rank} ended with {process.returncode}: {printed[rank][-2000:]}")
    return [folder / f"rank{rank}.json" for rank in range(ranks)]


def _rank(rank: int, ranks: int, seconds: float, folder: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    draw = random.Random(rank)
    tensors = [torch.ones(count) for count in ELEMENTS]
    left, right = torch.ones(256, 256), torch.ones(256, 256)
    running = torch.ones(1)
    part, parts = torch.ones(_PART), [torch.ones(_PART) for _ in range(ranks)]
    exchanged, received = torch.ones(_PART * ranks), torch.ones(_PART * ranks)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        began = time.monotonic()
        while running.item() > 0:
            for tensor in tensors:
                torch.mm(left, right)
                dist.all_reduce(tensor)
                tensor.fill_(1.0)
                time.sleep(draw.uniform(*_PAUSE_S))
            dist.all_gather(parts, part)
            time.sleep(draw.uniform(*_PAUSE_S))
            dist.all_to_all_single(received, exchanged)
            time.sleep(draw.uniform(*_PAUSE_S))
            dist.barrier()
            time.sleep(draw.uniform(*_PAUSE_S))
            # all ranks stop at one step: when the first one's time is over
            running.fill_(float(rank != 0 or time.monotonic() - began < seconds))
            dist.all_reduce(running, op=dist.ReduceOp.MIN)
        dist.barrier()
    recorded.export_chrome_trace(str(folder / f"rank{rank}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
