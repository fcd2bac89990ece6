"""Data-parallel training over processes: gradients are averaged as for any module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import daceml

rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
torch.manual_seed(0)
eager = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()
eager[1].weight.requires_grad_(False)
module = daceml.compile(eager)
parallel = DistributedDataParallel(module)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.5)
torch.manual_seed(1 + rank)
batches = [torch.randn(4, 3, dtype=torch.float64) for _ in range(3)]
for step, x in enumerate(batches):
    optimizer.zero_grad()
    if step == 1:
        with parallel.no_sync():
            parallel(x.flip(0)).sin().sum().backward()
    parallel(x).pow(2).sum().backward()
    optimizer.step()
assert any(v.backward is not None for v in module.session.variants)

# the same by hand
torch.manual_seed(0)
other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()
other[1].weight.requires_grad_(False)
optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
for step, x in enumerate(batches):
    optimizer.zero_grad()
    for buffer in other.buffers():
        dist.broadcast(buffer, 0)
    if step == 1:
        other(x.flip(0)).sin().sum().backward()
    other(x).pow(2).sum().backward()
    for p in other.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= 2
    optimizer.step()
for ours, theirs in zip(module.parameters(), other.parameters(), strict=True):
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
dist.destroy_process_group()
print("equal")
"""


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path):
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(tmp_path / "rendezvous")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for worker in workers:
        out, error = worker.communicate(timeout=180)
        assert worker.returncode == 0 and out.strip() == "equal", error
