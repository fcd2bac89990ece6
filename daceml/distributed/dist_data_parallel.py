"""`DistDataParallel`: a compiled module whose backward programs average gradients over all ranks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import nn

from daceml.compiler.averaging import Averaging, agreed_buckets
from daceml.distributed.agreement import Buckets, agreed_with_first, require_equal_models
from daceml.distributed.bucket_plan import Given, planned_buckets
from daceml.distributed.collectives.heartbeat import Heartbeat
from daceml.distributed.collectives.ranks import ranks_of
from daceml.distributed.gradient_exchange import BucketExchange
from daceml.errors import ConfigurationError
from daceml.module.module import DaceModule, compile_module
from daceml.runtime.records.gradients import BucketRecord
from daceml.transformations.hardware.gradient_buckets import BucketLimits

# Other ways of running a module that all-reduces would not survive, and why
_REFUSED = {
    "backward": (False, "without a backward pass there are no gradients to average"),
    "auto_optimize": ("search", "a search runs programs that the other ranks do not run"),
    "cuda_graphs": (True, "a graph on a device would not come to the host, which begins all-reduces"),
}


@dataclass(kw_only=True)
class DataParallel:
    """What a session of one rank knows of the others.

    Attributes:
        averaging: what backward programs are made with; buckets are agreed on when there is a first one.
        exchange: runs their all-reduces.
    """

    averaging: Averaging
    exchange: BucketExchange

    def agree(self, buckets: tuple[BucketRecord, ...]) -> bool:
        """Take over the buckets of rank 0; whether a program with `buckets` may run as it is.

        Raises:
            RanksDifferError, RankFailedError: see `agreed_with_first`.
        """
        own: Buckets = agreed_buckets(buckets)
        if self.averaging.agreed is None:
            agreed = agreed_with_first(self.exchange.heartbeat, own)
            self.averaging = replace(self.averaging, agreed=agreed)
        return own == self.averaging.agreed


class DistDataParallel(nn.Module):
    """Train a module on several ranks, each with samples of its own.

        model = daceml.DistDataParallel(Net())           # under torchrun or mpirun, in every process
        loss = criterion(model(x), y); loss.backward()    # gradients are averages over all ranks

    Backward programs have all-reduces in them: a bucket of gradients is sent as soon as it is complete, while
    the program goes on. What torch's DistributedDataParallel computes, this computes; parameters and buffers
    start as those of rank 0. Names in its state_dict begin with `module.`, as there.

    Args:
        module: any nn.Module, or one that is compiled already.
        process_group: of torch.distributed, or a communicator of mpi4py; None for all ranks of the run, as
            torchrun's or mpirun's environment tells.
        bucket_mb: a bucket that has reached this many MiB is sent.
        first_bucket_mb: the same, of the first one of each element type.
        buckets: instead of these limits, a file of `daceml trace optimize --plan`, or names of the parameters
            of each bucket, in the order of sending; rank 0's count.
        broadcast_buffers: take over rank 0's buffers before each training step, such as running means.
        find_unused_parameters: parameters that a rank does not use in its first step may be used later, or
            by another rank.
        timeout_s: after which a rank that does not come to an all-reduce has failed.
        options: of `daceml.compile`.
    Raises:
        ConfigurationError: no module, or options under which gradients could not be averaged.
        BucketPlanError: buckets that are not those of this model.
        DistributedSetupError: there are no ranks.
        RanksDifferError: another rank has another model.
        RankFailedError: another rank has ended, or has not come here in time.
    """

    def __init__(
        self,
        module: nn.Module,
        process_group: Any = None,
        *,
        bucket_mb: float = 25.0,
        first_bucket_mb: float = 1.0,
        buckets: Given | None = None,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        timeout_s: float = 30.0,
        **options: Any,
    ) -> None:
        super().__init__()
        limits = {"bucket_mb": bucket_mb, "first_bucket_mb": first_bucket_mb, "timeout_s": timeout_s}
        for name, limit in limits.items():
            _require_positive(name, limit)
        compiled = _compiled(module, options)
        self.module: nn.Module = compiled
        self._session = compiled.session
        self.broadcast_buffers = broadcast_buffers
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        sizes = {name: (p.numel() * p.element_size(), _dtype(p)) for name, p in trained.items()}
        planned = None if buckets is None else planned_buckets(buckets, sizes)
        device = next((t.device.type for t in tensors.values()), "cpu")
        group = ranks_of(process_group, device=device, timeout_s=timeout_s)
        heartbeat = Heartbeat(group, timeout_s)
        require_equal_models(heartbeat, tensors, timeout_s)
        self._exchange = BucketExchange(group, heartbeat, trained, timeout_s)
        self._exchange.send_from_first(tensors.values())
        averaging = Averaging(
            parameters=sizes,
            limits=BucketLimits(
                first_bytes=round(first_bucket_mb * 2**20), limit_bytes=round(bucket_mb * 2**20)
            ),
            unused=find_unused_parameters,
            agreed=None if planned is None else agreed_with_first(heartbeat, planned),
        )
        heartbeat.doing = "waiting for its first step"
        self._session.data_parallel = DataParallel(averaging=averaging, exchange=self._exchange)
        self._session.forget()

    @property
    def rank(self) -> int:
        """Of this process."""
        return self._exchange.group.rank

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self._exchange.group.size

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled module; while it trains, with rank 0's buffers."""
        if (
            self.broadcast_buffers
            and self.training
            and torch.is_grad_enabled()
            and self._exchange.synchronizing
        ):
            self._exchange.send_from_first(self.module.buffers())
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Calls inside leave gradients as they are on this rank, to be averaged with those of a later call.

        As in DistributedDataParallel, it counts where forward is called.
        """
        before, self._exchange.synchronizing = self._exchange.synchronizing, False
        try:
            yield
        finally:
            self._exchange.synchronizing = before

    def sent_buckets(self) -> tuple[BucketRecord, ...]:
        """What the last backward program averages, in the order in which it is sent; nothing before one."""
        variants = self._session.variants
        backward = variants[-1].backward if variants else None
        return () if backward is None else backward.record.buckets


def _compiled(module: Any, options: dict[str, Any]) -> DaceModule:
    if not isinstance(module, nn.Module):
        raise ConfigurationError(
            f"DistDataParallel takes an nn.Module, not a {type(module).__name__}",
            fix="pass an instance of a module; daceml.compile is not needed before",
        )
    compiled: nn.Module = module
    if options or not isinstance(module, DaceModule):
        compiled = compile_module(module, **options)
    assert isinstance(compiled, DaceModule)
    for name, (value, why) in _REFUSED.items():
        if compiled.session.options[name] == value and type(compiled.session.options[name]) is type(value):
            raise ConfigurationError(
                f"DistDataParallel cannot take a module with {name}={value!r}", why=why, fix="leave it out"
            )
    return compiled


def _require_positive(name: str, limit: Any) -> None:
    if not isinstance(limit, int | float) or not 0 < limit < inf:
        raise ConfigurationError(
            f"DistDataParallel cannot take {name}={limit!r}", fix="give a number above zero that is finite"
        )


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
