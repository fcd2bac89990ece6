"""Collectives through torch.distributed: NCCL, Gloo, or any other backend of a process group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from daceml.runtime.threads_at_exit import let_threads_finish


class TorchWork:
    """A collective of a process group."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self, timeout_s: float) -> None:
        """See `Work`."""
        try:
            self._work.wait(timedelta(seconds=timeout_s))
        except RuntimeError as error:
            if "timed out" in str(error).lower():
                raise TimeoutError(str(error)) from error
            raise


class TorchGroup:
    """The ranks of a process group.

    They talk through a group of their own, so that the user's collectives may come in between, and so that
    what is under way when a rank fails ends after the timeout, and with it the process.

    Args:
        group: None for all ranks.
        timeout_s: after which a collective has failed.
    """

    def __init__(self, group: Any, timeout_s: float) -> None:
        let_threads_finish()
        whole: Any = dist.group.WORLD if group is None else group
        self.name = str(dist.get_backend(whole))
        self.rank, self.size = dist.get_rank(whole), dist.get_world_size(whole)
        ranks = dist.get_process_group_ranks(whole)
        self._first = ranks[0]
        self._group: Any = dist.new_group(
            ranks, timeout=timedelta(seconds=timeout_s), backend=self.name, use_local_synchronization=True
        )

    def all_reduce(self, tensor: torch.Tensor) -> TorchWork:
        """See `Group`."""
        work: Any = dist.all_reduce(tensor, group=self._group, async_op=True)
        return TorchWork(work)

    def broadcast(self, tensor: torch.Tensor) -> TorchWork:
        """See `Group`."""
        work: Any = dist.broadcast(tensor, src=self._first, group=self._group, async_op=True)
        return TorchWork(work)

    def tell(self, text: str) -> str:
        """See `Group`."""
        told = [text]
        dist.broadcast_object_list(told, src=self._first, group=self._group)
        return told[0]

    def give_up(self) -> None:
        """See `Group`: the group's timeout ends what is under way."""
