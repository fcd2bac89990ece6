"""What an implementation of collectives has to offer; `torch_group` and `mpi_group` are the two there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Work(Protocol):
    """A collective under way."""

    def wait(self, timeout_s: float) -> None:
        """Wait until its result is there; on a device, until what is enqueued from now on sees it.

        Raises:
            TimeoutError: it has not ended by then.
            RuntimeError: a connection is lost; the text is the library's.
        """
        ...


class Group(Protocol):
    """The ranks of a run. All of them call the same collectives in the same order.

    Attributes:
        rank: of this process, from 0.
        size: number of ranks.
        name: what they talk through, such as "gloo", "nccl" or "mpi".
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def name(self) -> str: ...

    def all_reduce(self, tensor: torch.Tensor) -> Work:
        """Begin to add up a contiguous tensor over all ranks, in place. Returns at once."""
        ...

    def broadcast(self, tensor: torch.Tensor) -> Work:
        """Begin to overwrite a contiguous tensor with that of rank 0. Returns at once."""
        ...

    def tell(self, text: str) -> str:
        """What rank 0 says, whoever else says what."""
        ...

    def give_up(self) -> None:
        """A rank has failed: this process can end without the others."""
        ...
