"""Which rank of a run a process is: one file for each, and in it what joins the files to one run."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Rank and number of ranks, as torchrun, Open MPI and those made of MPICH tell them.
_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A process among the ranks of its run; `size` is 1 where it is alone."""

    rank: int = 0
    size: int = 1


def place_in(environment: Mapping[str, str]) -> Place:
    """What a launcher has told a process of itself; pure."""
    for rank, size in _NAMES:
        told = environment.get(rank, ""), environment.get(size, "")
        if all(number.isdecimal() for number in told):
            return Place(rank=int(told[0]), size=int(told[1]))
    return Place()


def own_place() -> Place:
    """Of this process: by torch's process group, or by its launcher."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Place(rank=distributed.get_rank(), size=distributed.get_world_size())
    return place_in(os.environ)


def path_of(path: Path, place: Place) -> Path:
    """The file of one rank: `run.json.gz` is `run_rank0.json.gz` in a run of several; pure."""
    if place.size == 1:
        return path
    name, dot, suffixes = path.name.partition(".")
    return path.with_name(f"{name}_rank{place.rank}{dot}{suffixes}")


def rank_facts(place: Place) -> dict[str, Any] | None:
    """For a trace's header; None in a run of one process.

    `host` is equal for ranks on one machine, whose clock they share, and says nothing else of it.
    """
    if place.size == 1:
        return None
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]
    return {"rank": place.rank, "size": place.size, "host": host}
