"""What one rank of `benchmarks.distributed.data_parallel` does: python -m ... WHAT NETWORK ROUNDS FOLDER."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import daceml
from benchmarks.distributed.overlap import overlap
from benchmarks.distributed.rank_processes import own_rank

STEPS = 20
CLASSES = 10


class Transformer(nn.Module):
    """Two encoder layers over 32 tokens."""

    shape = (32, 128)

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


class Convolutions(nn.Module):
    """Three convolutions with batch norms, on images of 32 x 32."""

    shape = (3, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for into, out in ((3, 32), (32, 64), (64, 128)):
            blocks += [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


NETWORKS: dict[str, type[Transformer | Convolutions]] = {
    "transformer": Transformer,
    "convolutions": Convolutions,
}


def compared(network: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Numbers, times and overlap of a network's training, by torch and by daceml."""
    kind = NETWORKS[network]
    torch.manual_seed(own_rank())
    ours = daceml.DistDataParallel(kind(), bucket_mb=0.5, first_bucket_mb=0.1)
    if not dist.is_initialized():  # mpirun tells torch nothing
        store = os.environ["RANKS_STORE"]
        dist.init_process_group("gloo", init_method=store, rank=ours.rank, world_size=ours.world_size)
    torch.manual_seed(0)
    start = kind()
    ours.module.load_state_dict(start.state_dict())
    peers = {"ours": ours, "torch": DistributedDataParallel(start, bucket_cap_mb=0.5)}
    compiled = kind()
    compiled.load_state_dict(start.state_dict())
    around = DistributedDataParallel(daceml.compile(compiled), bucket_cap_mb=0.5)
    drawn = torch.Generator().manual_seed(100 + own_rank())
    batches = [
        (torch.randn(8, *kind.shape, generator=drawn), torch.randint(0, CLASSES, (8,), generator=drawn))
        for _ in range(STEPS)
    ]
    losses: dict[str, list[float]] = {}
    first: dict[str, list[torch.Tensor]] = {}
    for name, model in peers.items():
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        losses[name] = []
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if step == 0:
                first[name] = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            losses[name].append(loss.item())
            optimizer.step()
    gradients = zip(first["ours"], first["torch"], strict=True)
    scale = max(float(b.abs().max()) for b in first["torch"])
    return {
        "network": network,
        "gradients": max(float((a - b).abs().max()) for a, b in gradients) / scale,
        "losses": max(abs(a / b - 1) for a, b in zip(losses["ours"], losses["torch"], strict=True)),
        "last_loss": losses["ours"][-1],
        "buckets": len(ours.sent_buckets()),
        "step_us": _step_us({**peers, "torch around compiled": around}, batches[0], rounds),
        **_recorded(ours, batches[0], folder),
    }


def _step_us(models: dict[str, Any], batch: Any, rounds: int) -> dict[str, float]:
    """Median microseconds of forward and backward pass, the models in turn."""
    seen: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            started = time.perf_counter()
            model.zero_grad()
            nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
            seen[name].append((time.perf_counter() - started) * 1e6)
    return {name: median(times[len(times) // 5 :]) for name, times in seen.items()}


def _recorded(model: Any, batch: Any, folder: Path) -> dict[str, Any]:
    recorder = daceml.Recorder(folder, model, steps=3, warmup=1, unprofiled=0)

    @daceml.profile(recorder)
    def step() -> None:
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()

    for _ in range(4):
        step()
    trace = json.loads(gzip.decompress(recorder.paths[0].read_bytes()))
    return overlap(trace["traceEvents"])


def ended(network: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Rank 1 is killed in the middle of training; what rank 0 says, and when."""
    del network, rounds, folder
    model = daceml.DistDataParallel(nn.Linear(64, 64))

    def loss() -> torch.Tensor:
        return model(torch.ones(4, 64)).sum()

    loss().backward()
    if own_rank() == 1:
        os.kill(os.getpid(), 9)
    started = time.monotonic()
    try:
        loss().backward()
    except daceml.DacemlError as error:
        return {"code": error.code, "what": error.what, "seconds": time.monotonic() - started}
    return {"code": None, "what": "no error", "seconds": time.monotonic() - started}


def main() -> None:
    what, network, rounds, folder = sys.argv[1:]
    torch.set_num_threads(1)
    run = {"compared": compared, "ended": ended}[what]
    result = run(network, int(rounds), Path(folder))
    Path(folder, f"{own_rank()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
