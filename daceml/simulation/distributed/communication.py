"""What one rank communicated: its collectives, sends and receives, in the order in which it launched them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from daceml.simulation.graph import NOTHING


class CommunicationKind(StrEnum):
    """What is done with the members' data."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BARRIER = "barrier"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    RECEIVE = "receive"

    @property
    def joint(self) -> bool:
        """Whether no member can be done before the last one has begun."""
        return self in _JOINT

    @property
    def even(self) -> bool:
        """Whether all members name the same size; of the others each may have a part of its own."""
        return self in (CommunicationKind.ALL_REDUCE, CommunicationKind.BROADCAST, CommunicationKind.REDUCE)

    @property
    def point_to_point(self) -> bool:
        """Whether it is one half of a pair."""
        return self in (CommunicationKind.SEND, CommunicationKind.RECEIVE)


_JOINT = (
    CommunicationKind.ALL_REDUCE,
    CommunicationKind.ALL_GATHER,
    CommunicationKind.REDUCE_SCATTER,
    CommunicationKind.ALL_TO_ALL,
    CommunicationKind.BARRIER,
)
# How a name begins once its underscores and what wrote it are gone -> what it is; the first that fits.
_SPELLINGS: tuple[tuple[str, CommunicationKind], ...] = (
    ("allreduce", CommunicationKind.ALL_REDUCE),
    ("allgather", CommunicationKind.ALL_GATHER),
    ("reducescatter", CommunicationKind.REDUCE_SCATTER),
    ("alltoall", CommunicationKind.ALL_TO_ALL),
    ("sendrecv", CommunicationKind.ALL_TO_ALL),  # NCCL's kernel of sends and receives that are one group
    ("barrier", CommunicationKind.BARRIER),
    ("broadcast", CommunicationKind.BROADCAST),
    ("reduce", CommunicationKind.REDUCE),
    ("gather", CommunicationKind.GATHER),
    ("scatter", CommunicationKind.SCATTER),
    ("isend", CommunicationKind.SEND),
    ("send", CommunicationKind.SEND),
    ("irecv", CommunicationKind.RECEIVE),
    ("recv", CommunicationKind.RECEIVE),
)
_WRITERS = ("nccl:", "gloo:", "mpi:", "ucc:", "c10d::", "nccldevkernel", "ncclkernel", "rccl")
# Names of element types in C++ and in torch's records -> bytes.
_ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::half": 2, "half": 2, "c10::bfloat16": 2, "bfloat16": 2, "long int": 8,
    "long": 8, "int": 4, "short int": 2, "short": 2, "signed char": 1, "char": 1, "unsigned char": 1,
    "byte": 1, "bool": 1, "c10::float8_e4m3fn": 1, "float8_e4m3fn": 1, "c10::float8_e5m2": 1,
    "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Group:
    """Who communicates: a process group, by its name and the ranks in it, ascending."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Communication:
    """One call of one rank.

    Attributes:
        sequence: its number in the group; None where the trace does not say.
        size_bytes: of the message that this rank names; NaN where nobody knows.
        start_us, end_us: of the kernel or work, by the clock of the rank, from the begin of its trace.
        peer: of a send or receive, the rank at the other end; else None.
        task: index in the rank's task graph, NOTHING where it is no task there.
        channels: blocks that the kernel takes, each of which fills a multiprocessor; 0 of a CPU.
    """

    kind: CommunicationKind
    group: Group
    start_us: float
    end_us: float
    sequence: int | None = None
    size_bytes: float = math.nan
    peer: int | None = None
    task: int = NOTHING
    channels: int = 0

    @property
    def what(self) -> str:
        """In words, for messages."""
        size = "" if math.isnan(self.size_bytes) else f" of {self.size_bytes:.0f} bytes"
        peer = {CommunicationKind.SEND: "to", CommunicationKind.RECEIVE: "from"}.get(self.kind)
        return f"{self.kind}{size}" + (f" {peer} rank {self.peer}" if peer and self.peer is not None else "")


def kind_named(name: str) -> CommunicationKind | None:
    """What an annotation, operator or kernel does by its name; None where it says nothing of that."""
    plain = name.lower()
    for writer in _WRITERS:
        plain = plain.removeprefix(writer)
    plain = plain.replace("_", "")
    return next((kind for begin, kind in _SPELLINGS if plain.startswith(begin)), None)


def message_bytes(details: Mapping[str, Any]) -> float:
    """Bytes of the message that details of an event tell, as torch spells them; NaN where they do not.

    Of two messages, one in and one out, the larger one counts: a rank that gathers takes in what all send.
    """
    elements = [details[key] for key in ("In msg nelems", "Out msg nelems") if key in details]
    width = _ELEMENT_BYTES.get(str(details.get("dtype", "")).lower())
    if elements and width is not None:
        return float(max(elements)) * width
    dims, types = details.get("Input Dims"), details.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or not dims or not types:
        return math.nan
    width = _ELEMENT_BYTES.get(str(types[0]).lower())
    count = _elements(dims[0])
    return math.nan if width is None or count is None else float(count * width)


def _elements(shape: object) -> int | None:
    """Of one tensor, or of a list of them; None where there is no shape."""
    if not isinstance(shape, Sequence) or isinstance(shape, str) or not shape:
        return None
    sizes: list[int] = []
    for item in shape:
        part = item if isinstance(item, int) else _elements(item)
        if part is None:
            return None
        sizes.append(part)
    return math.prod(sizes) if isinstance(shape[0], int) else sum(sizes)
