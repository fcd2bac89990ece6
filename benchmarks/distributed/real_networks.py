"""Networks whose gradients take about as long to send as to compute, and ways to send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 10


class Transformer(nn.Module):
    """Six encoder layers over 32 tokens: 7.4 million parameters."""

    shape = (32, 320)
    batch = 8

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(320, 4, 1280, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(320, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


class Convolutions(nn.Module):
    """Six convolutions with batch norms, on images of 32 x 32: 6.3 million parameters, most in the last."""

    shape = (3, 32, 32)
    batch = 8
    channels = (3, 64, 128, 256, 512, 512, 512)

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for number, (into, out) in enumerate(zip(self.channels, self.channels[1:], strict=False)):
            blocks += [nn.Conv2d(into, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            if number < 3:
                blocks.append(nn.MaxPool2d(2))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(self.channels[-1], CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


NETWORKS: dict[str, type[Transformer | Convolutions]] = {
    "transformer": Transformer,
    "convolutions": Convolutions,
}


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How DistributedDataParallel sends.

    Attributes:
        cap_mb: limit of all buckets, in MiB; None is torch's default.
        caps_mb: limit of each bucket instead; () for none.
        parts: in which each bucket is sent.
    """

    cap_mb: float | None = None
    caps_mb: tuple[float, ...] = ()
    parts: int = 1

    def around(self, model: nn.Module) -> DistributedDataParallel:
        """The model that sends in this way."""
        settings: dict[str, Any] = {}
        if self.cap_mb is not None:
            settings["bucket_cap_mb"] = self.cap_mb
        if self.caps_mb:
            settings["bucket_cap_mb_list"] = list(self.caps_mb)
        parallel = DistributedDataParallel(model, **settings)
        if self.parts > 1:
            # torch compares annotations with types, and those of a module may be text
            parallel.register_comm_hook(self.parts, lambda parts, bucket: in_parts(parts, bucket))
        return parallel


def in_parts(parts: int, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """The mean of a bucket (a `GradBucket`) over all ranks, sent in so many parts."""
    whole = bucket.buffer().div_(dist.get_world_size())
    works = [dist.all_reduce(part, async_op=True) for part in whole.chunk(parts)]
    sent = torch.futures.collect_all([work.get_future() for work in works if work is not None])
    return sent.then(lambda _: whole)


def training_step(network: str, model: nn.Module) -> Callable[[], None]:
    """A step of SGD on a batch that stays the same."""
    forward, backward, update = step_parts(network, model)

    def step() -> None:
        loss = forward()
        backward(loss)
        update()

    return step


def step_parts(
    network: str, model: nn.Module
) -> tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], None], Callable[[], None]]:
    """Its forward pass, its backward pass and its update."""
    kind = NETWORKS[network]
    drawn = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(kind.batch, *kind.shape, generator=drawn)
    wanted = torch.randint(0, CLASSES, (kind.batch,), generator=drawn)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def forward() -> torch.Tensor:
        optimizer.zero_grad()
        return nn.functional.cross_entropy(model(x), wanted)

    return forward, lambda loss: loss.backward(), lambda: optimizer.step()


def sent_bytes(parallel: DistributedDataParallel) -> Sequence[int]:
    """Of each bucket as torch has made them after its first step, in their order."""
    # they are told from the third step on
    told: Any = parallel._get_ddp_logging_data()  # pyright: ignore[reportPrivateUsage]
    return [int(size) for size in str(told.get("rebuilt_bucket_sizes", "")).split(",") if size.strip()]
