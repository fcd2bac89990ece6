"""The ranks of this run: those that the user names, or those that the launcher's environment tells of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from daceml.errors import DistributedSetupError

if TYPE_CHECKING:
    from daceml.distributed.collectives.group import Group

Launcher = Literal["torchrun", "mpirun"]

# Set by torchrun; by Open MPI, and by MPICH and those made of it.
_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MPIRUN = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def launcher(environment: Mapping[str, str]) -> Launcher | None:
    """Who has started this process as one of several, by the environment; pure."""
    if all(name in environment for name in _TORCHRUN):
        return "torchrun"
    return "mpirun" if any(name in environment for name in _MPIRUN) else None


def ranks_of(given: Any, *, device: str, timeout_s: float) -> Group:
    """The ranks to train with.

    Args:
        given: a process group of torch.distributed, a communicator of mpi4py, or None for all ranks.
        device: where the model is: "cpu" or "cuda".
        timeout_s: after which a collective has failed.
    Raises:
        DistributedSetupError: there are no such ranks.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise DistributedSetupError(
            "this torch has no torch.distributed",
            why="it was built without",
            fix="install torch from its own wheels",
        )
    if given is not None and not isinstance(given, dist.ProcessGroup):
        return _communicator(given)
    if given is None and not dist.is_initialized():
        started = launcher(os.environ)
        if started == "mpirun":
            return _communicator(_mpi().COMM_WORLD)
        if started is None:
            raise DistributedSetupError(
                "DistDataParallel was given no ranks",
                why="there is no process group, and the environment names no launcher: it has neither "
                f"{', '.join(_TORCHRUN)} nor one of {', '.join(_MPIRUN)}",
                fix="start it with `torchrun --nproc-per-node 2 script.py`,\n"
                "or with `mpirun -n 2 python script.py`,\n"
                "or call torch.distributed.init_process_group before",
            )
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=max(timeout_s, 60.0))
        )
    from daceml.distributed.collectives.torch_group import TorchGroup

    return TorchGroup(given, timeout_s)


def _communicator(given: Any) -> Group:
    mpi = _mpi()
    if not isinstance(given, mpi.Intracomm):
        raise DistributedSetupError(
            f"DistDataParallel cannot exchange gradients through a {type(given).__name__}",
            why="it takes a process group of torch.distributed or an intracommunicator of mpi4py",
            fix="pass torch.distributed.new_group(...) or mpi4py.MPI.COMM_WORLD, or nothing for all ranks",
        )
    from daceml.distributed.collectives.mpi_group import MpiGroup

    return MpiGroup(given)


def _mpi() -> Any:
    """mpi4py's MPI.

    Raises:
        DistributedSetupError: mpi4py, or an MPI library for it, is missing.
    """
    try:
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError) as error:
        raise DistributedSetupError(
            "there is no MPI to exchange gradients through",
            why=str(error).strip().splitlines()[0],
            fix="pip install 'daceml[mpi]', which brings MPICH along; or start it with torchrun",
        ) from error
    return MPI
