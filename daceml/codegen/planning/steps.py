"""The steps of a program and the places of its arrays, as records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce
from daceml.sdfg.external import AtenCall, FallbackCall
from daceml.sdfg.network import IndexCheck, LimitCheck, WeightCheck
from daceml.sdfg.outline import KernelCall
from daceml.sdfg.tensor_lists import ListCall


class Storage(Enum):
    """Who owns an array's memory. Outputs and fresh arrays are made by the step that writes them first; fresh
    ones are released after their last reader."""

    INPUT = "input"
    WEIGHT = "weight"
    OUTPUT = "output"
    WORKSPACE = "workspace"
    FRESH = "fresh"


@dataclass(frozen=True, kw_only=True)
class Location:
    """`index` counts inputs, weights, outputs or fresh arrays; workspace arrays have an offset in the
    layout."""

    storage: Storage
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A contiguous copy between two arrays, or of an array to an output position or a buffer."""

    source: str
    target: Location | str


Action = (
    KernelCall
    | ListCall
    | AtenCall
    | FallbackCall
    | Copy
    | IndexCheck
    | LimitCheck
    | WeightCheck
    | BeginAllReduce
    | WaitAllReduce
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One action, with the node it comes from where that is known."""

    action: Action
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    label: str
    module_path: str = ""
    source: str = ""


def handed_over(step: Step) -> tuple[str, ...]:
    """Arrays whose memory the step's function allocates."""
    return step.action.handed_over() if isinstance(step.action, AtenCall) else ()
