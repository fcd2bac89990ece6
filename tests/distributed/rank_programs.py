"""What each rank of a run does, as a program: python -m tests.distributed.rank_programs NAME FOLDER.

Results are written as JSON into the folder, one file a rank.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import daceml
from benchmarks.distributed.rank_processes import own_rank
from daceml.distributed.collectives.ranks import ranks_of


class Net(nn.Module):
    """A convolution and a batch norm with buffers, a frozen layer, and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.hidden = nn.Linear(8, 64)
        self.unused = nn.Linear(4, 4)
        self.head = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        return self.head(torch.relu(self.hidden(self.frozen(y))))


def batches(steps: int, samples: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Samples of this rank."""
    drawn = torch.Generator().manual_seed(100 + own_rank())
    return [
        (torch.randn(samples, 3, 8, 8, generator=drawn), torch.randint(0, 5, (samples,), generator=drawn))
        for _ in range(steps)
    ]


def trained(model: Any, steps: int) -> dict[str, Any]:
    """Losses, gradients and the state after some steps; every third step adds up two batches."""
    inner: Any = model.module
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1, momentum=0.9)
    losses: list[float] = []
    gradients: list[dict[str, Any]] = []
    for step, (x, y) in enumerate(batches(steps)):
        optimizer.zero_grad()
        if step % 3 == 2:
            with model.no_sync():
                nn.functional.cross_entropy(model(x.flip(0)), y.flip(0)).backward()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.item())
        if step in (0, 2):
            gradients.append(
                {
                    n: None if p.grad is None else p.grad.flatten().tolist()
                    for n, p in inner.named_parameters()
                }
            )
        optimizer.step()
    state = {name: value.flatten().tolist() for name, value in model.state_dict().items()}
    return {"losses": losses, "gradients": gradients, "state": state}


def model() -> Net:
    """Another one on each rank: the first one's weights have to be sent."""
    torch.manual_seed(own_rank())
    return Net()


class Heads(nn.Module):
    """Two results, of which a loss may use one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.trunk, self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.tanh(self.trunk(x))
        return self.first(y), self.second(y)


def of_heads(model: nn.Module) -> list[list[float]]:
    """Gradients where all ranks use both results, where rank 0 uses one, and where each uses another one."""
    x = torch.linspace(-1, 1, 12).reshape(3, 4) * (1 + own_rank())
    gradients: list[list[float]] = []
    for used in ((0, 1), (0,) if own_rank() == 0 else (0, 1), (own_rank(),)):
        model.zero_grad()
        results = model(x)
        sum(results[i].square().sum() for i in used).backward()  # pyright: ignore[reportAttributeAccessIssue]
        gradients += [p.grad.flatten().tolist() for p in model.parameters()]
    return gradients


def compare(steps: int = 20) -> dict[str, Any]:
    """The same training by torch's DistributedDataParallel and by ours."""
    ours = daceml.DistDataParallel(model(), bucket_mb=0.002, first_bucket_mb=0.001)
    if not dist.is_initialized():  # under mpirun
        dist.init_process_group(
            "gloo", init_method=os.environ["RANKS_STORE"], rank=own_rank(), world_size=ours.world_size
        )
    peer = DistributedDataParallel(model(), find_unused_parameters=True)
    found = {"ours": trained(ours, steps), "torch": trained(peer, steps)}
    # the last batch of an epoch is smaller on one rank
    x, y = batches(1, samples=6 - own_rank())[0]
    for name, trainee in (("ours", ours), ("torch", peer)):
        trainee.zero_grad()
        nn.functional.cross_entropy(trainee(x), y).backward()
        found[name]["uneven"] = [
            p.grad.flatten().tolist() for p in trainee.parameters() if p.grad is not None
        ]
    found["ours"]["heads"] = of_heads(daceml.DistDataParallel(Heads(), find_unused_parameters=True))
    found["torch"]["heads"] = of_heads(DistributedDataParallel(Heads(), find_unused_parameters=True))
    buckets = [list(bucket.parameters) for bucket in ours.sent_buckets()]
    return found | {"buckets": buckets, "overlap": overlap(ours)}


def overlap(model: Any) -> dict[str, Any]:
    """Records steps, and sets all-reduces beside what the same backward passes compute."""
    steps = 8  # on shared cores not every step has both at the same time
    recorder = daceml.Recorder(sys.argv[2], model, steps=steps, warmup=1, unprofiled=0)
    (x, y), *_ = batches(1)

    @daceml.profile(recorder)
    def step() -> None:
        nn.functional.cross_entropy(model(x), y).backward()

    for _ in range(1 + steps):
        step()
    (path,) = recorder.paths
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    sent = [e for e in events if e["name"].endswith(":all_reduce")]
    computed = [e for e in events if e.get("args", {}).get("kind") in ("kernel", "aten")]
    return {
        "file": path.name,
        "steps": sorted(int(e["name"][13:]) for e in events if e["name"].startswith("ProfilerStep#")),
        "buckets": [bucket["parameters"] for bucket in trace["daceml"]["buckets"]["buckets"]],
        "all_reduces": len(sent),
        "overlapping": sum(
            any(a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"] for b in computed) for a in sent
        ),
    }


def collectives() -> dict[str, Any]:
    """Each collective of the ranks that the launcher has started, without a model."""
    group = ranks_of(None, device="cpu", timeout_s=60.0)
    found: dict[str, Any] = {"name": group.name, "rank": group.rank, "size": group.size}
    kinds = (torch.float32, torch.float64, torch.bfloat16)
    sums = [torch.tensor([[1.5, -2.0], [0.25, 3.0]], dtype=kind) * (1 + group.rank) for kind in kinds]
    sent = [torch.tensor([group.rank + 3, 4]), torch.tensor(2.5 - group.rank).bfloat16()]
    works = [group.all_reduce(t) for t in sums] + [group.broadcast(t) for t in sent]
    for work in works:  # all of them are under way
        work.wait(60.0)
    told = group.tell(f"rank {group.rank}")
    return found | {"sums": [t.tolist() for t in sums], "sent": [t.tolist() for t in sent], "told": told}


def different() -> dict[str, Any]:
    """A layer of another width on the last rank."""
    torch.manual_seed(0)
    return refusal(lambda: daceml.DistDataParallel(nn.Linear(4, 4 + own_rank()), timeout_s=20.0))


def killed() -> dict[str, Any]:
    """Rank 1 is killed in its third step."""
    ours = daceml.DistDataParallel(nn.Linear(4, 4), timeout_s=15.0)

    def steps() -> None:
        for step in range(5):
            if own_rank() == 1 and step == 2:
                os.kill(os.getpid(), 9)
            ours(torch.ones(2, 4)).sum().backward()

    started = time.monotonic()
    return refusal(steps) | {"seconds": time.monotonic() - started}


def absent() -> dict[str, Any]:
    """Rank 1 lives, and does not come to its second step. Before that, the ranks have other models."""
    before = different()
    ours = daceml.DistDataParallel(nn.Linear(4, 4), timeout_s=2.0)

    def steps() -> None:
        for step in range(2):
            if own_rank() == 1 and step == 1:
                time.sleep(5)
                return
            ours(torch.ones(2, 4)).sum().backward()

    return refusal(steps) | {"different": before}


def leaves() -> dict[str, Any]:
    """Rank 1 is late for its first backward pass; later rank 0 leaves between two steps."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    ours = daceml.DistDataParallel(net, timeout_s=3.0)

    def steps() -> None:
        for step in range(3):
            if own_rank() == 0 and step == 2:
                return
            loss = ours(torch.randn(3, 4)).sum()
            if own_rank() == 1 and step == 0:
                time.sleep(5)
            loss.backward()

    return refusal(steps)


def refusal(run: Any) -> dict[str, Any]:
    """The error that something ends with."""
    try:
        run()
    except daceml.DacemlError as error:
        return {"error": str(error), "code": error.code}
    return {"error": None}


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, folder = sys.argv[1:]
    programs = (compare, collectives, killed, absent, leaves)
    result = {program.__name__: program for program in programs}[name]()
    Path(folder, f"{own_rank()}.json").write_text(json.dumps(result))
