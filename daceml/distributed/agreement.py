"""What ranks must have in common before gradients can be averaged: the model, and its buckets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from daceml.errors import RankFailedError, RanksDifferError

if TYPE_CHECKING:
    import torch

    from daceml.distributed.collectives.heartbeat import Heartbeat

Buckets = tuple[tuple[str, ...], ...]

# Half an hour, as torch gives a process group
_COMPILING_S = 1800.0


def description(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Name, type, shape and whether it is trained, of every tensor of a model; pure."""
    return [
        f"{name}: {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        f"{', trained' if tensor.requires_grad else ''}"
        for name, tensor in tensors.items()
    ]


def differences(first: Sequence[str], other: Sequence[str]) -> str:
    """The first tensor in which two models differ; empty where they do not. Pure."""
    for a, b in zip_longest(first, other, fillvalue="nothing more"):
        if a != b:
            return f"rank 0 has {a}, where it has {b}"
    return ""


def require_equal_models(heartbeat: Heartbeat, tensors: Mapping[str, torch.Tensor], timeout_s: float) -> None:
    """Refuse ranks whose models differ from that of rank 0; every rank finds the same ones.

    Raises:
        RanksDifferError: names the ranks.
        RankFailedError: a rank has ended, or has not come here.
    """
    own = description(tensors)
    heartbeat.store.set(f"model/{heartbeat.rank}", json.dumps(own))
    models = [
        own
        if rank == heartbeat.rank
        else json.loads(_told(heartbeat, f"model/{rank}", rank, timeout_s, "its model"))
        for rank in range(heartbeat.size)
    ]
    wrong = {rank: why for rank, model in enumerate(models) if (why := differences(models[0], model))}
    if wrong:
        raise RanksDifferError(
            f"the models of {len(wrong)} of {heartbeat.size} ranks are not that of rank 0",
            where=f"rank {heartbeat.rank}",
            why="\n".join(f"rank {rank}: {why}" for rank, why in wrong.items()),
            fix="build the same model on every rank, before DistDataParallel takes it",
        )


def agreed_with_first(heartbeat: Heartbeat, buckets: Buckets) -> Buckets:
    """The buckets that all ranks use: those of rank 0.

    Args:
        buckets: of this rank's first backward program.
    Raises:
        RanksDifferError: rank 0 has gradients of other parameters.
        RankFailedError: rank 0 has ended, or has not come here.
    """
    if heartbeat.rank == 0:
        heartbeat.store.set("buckets", json.dumps(buckets))
        return buckets
    told: list[list[str]] = json.loads(_told(heartbeat, "buckets", 0, _COMPILING_S, "its buckets"))
    first = tuple(map(tuple, told))
    here, there = ({key for keys in found for key in keys} for found in (buckets, first))
    if here - there:
        raise RanksDifferError(
            "gradients cannot be averaged: rank 0 has none of some parameters that have one here",
            where=f"rank {heartbeat.rank}",
            why="without a gradient on rank 0: " + ", ".join(sorted(here - there)),
            fix="pass find_unused_parameters=True to DistDataParallel",
        )
    return first


def await_first_programs(heartbeat: Heartbeat) -> None:
    """Wait until every rank has its first backward program, as long as those that have none yet live.

    A rank may compile what another one finds in its cache, which says nothing of how long a step takes.

    Raises:
        RankFailedError: a rank has ended, or has not come here.
    """
    heartbeat.store.set(f"program/{heartbeat.rank}", "")
    for rank in range(heartbeat.size):
        _told(heartbeat, f"program/{rank}", rank, _COMPILING_S, "its first backward pass")


def _told(heartbeat: Heartbeat, key: str, who: int, patience_s: float, what: str) -> str:
    try:
        return heartbeat.await_key(key, who, patience_s)
    except (TimeoutError, ConnectionError, RuntimeError) as error:
        raise RankFailedError(
            f"rank {who} failed, and training cannot begin",
            where=f"rank {heartbeat.rank} of {heartbeat.size}, waiting for {what}",
            why=str(error).strip(),
            fix=f"look at what rank {who} has written last, and start the job again",
        ) from error
