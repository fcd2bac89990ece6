"""Collectives through MPI: mpi4py's communicators, over any MPI library that mpi4py finds.

MPI moves data when somebody calls it. A thread of its own does, which sleeps in between: a library that waits
for others by itself takes the whole core meanwhile, and the computation next to it needs that.
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading
import time
from typing import Any, Literal

import torch

from daceml.errors import DistributedSetupError
from daceml.runtime.collective_log import logged

# Between two looks at what is under way: the shortest that Linux sleeps is about 50 us
_LOOK_S = 2e-5
# MPI's own types; others are added up as float32
_OWN_TYPES = (torch.float32, torch.float64)


Operation = Literal["all_reduce", "broadcast"]


class MpiWork:
    """A collective that the group's thread looks after.

    Args:
        tensor: what it is for.
        sent: the tensor itself where MPI can take it, else a copy on the host, of a type that MPI adds up.
    """

    def __init__(self, operation: Operation, tensor: torch.Tensor, sent: torch.Tensor) -> None:
        self.operation = operation
        self.tensor, self.sent = tensor, sent
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def wait(self, timeout_s: float) -> None:
        """See `Work`."""
        if not self.ended.wait(timeout_s):
            raise TimeoutError(f"{self.operation} of {self.sent.numel()} elements has not ended")
        if self.error is not None:
            raise RuntimeError(str(self.error)) from self.error
        if self.sent.data_ptr() != self.tensor.data_ptr():
            self.tensor.copy_(self.sent)


class MpiGroup:
    """The ranks of a communicator.

    Args:
        communicator: an intracommunicator of mpi4py; it is duplicated, so that messages of others do not mix.
    Raises:
        DistributedSetupError: MPI was started for one thread only.
    """

    name = "mpi"

    def __init__(self, communicator: Any) -> None:
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise DistributedSetupError(
                "gradients cannot be averaged through this MPI",
                why="it was started without MPI_THREAD_MULTIPLE, and a thread of ours has to call it",
                fix='set mpi4py.rc.thread_level = "multiple" before mpi4py.MPI is imported',
            )
        self._mpi: Any = MPI
        self._communicator: Any = communicator.Dup()
        self.rank, self.size = int(self._communicator.rank), int(self._communicator.size)
        self._waiting: queue.SimpleQueue[MpiWork | None] = queue.SimpleQueue()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="daceml-mpi", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)  # runs before MPI's own, which was registered before

    def all_reduce(self, tensor: torch.Tensor) -> MpiWork:
        """See `Group`."""
        dtype = tensor.dtype if tensor.dtype in _OWN_TYPES else torch.float32
        return self._begun(MpiWork("all_reduce", tensor, tensor.detach().to(device="cpu", dtype=dtype)))

    def broadcast(self, tensor: torch.Tensor) -> MpiWork:
        """See `Group`."""
        return self._begun(MpiWork("broadcast", tensor, tensor.detach().cpu()))

    def tell(self, text: str) -> str:
        """See `Group`."""
        return str(self._communicator.bcast(text, root=0))

    def give_up(self) -> None:
        """See `Group`: MPI's own end waits for all ranks, so this process ends all of them instead."""
        self._failed = True

    def _begun(self, work: MpiWork) -> MpiWork:
        self._waiting.put(work)
        return work

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                with logged(f"mpi:{work.operation}", work.sent, self.name, self.size):
                    request = self._request(work)
                    while not request.Test():
                        time.sleep(_LOOK_S)
            except BaseException as error:  # whoever waits raises it
                work.error = error
            work.ended.set()

    def _request(self, work: MpiWork) -> Any:
        if work.operation == "all_reduce":
            return self._communicator.Iallreduce(self._mpi.IN_PLACE, work.sent.numpy())
        data = work.sent.reshape(-1).view(torch.uint8).numpy()  # of any type
        return self._communicator.Ibcast([data, self._mpi.BYTE], root=0)

    def _at_exit(self) -> None:
        if self._failed:
            sys.stdout.flush()
            sys.stderr.flush()
            self._communicator.Abort(1)
        self._waiting.put(None)
        self._thread.join(timeout=1.0)
