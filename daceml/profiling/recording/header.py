"""What the recorder adds to the profiler's file: the model, the machine, and our own kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daceml.profiling.recording import kernels
from daceml.profiling.recording.buckets import bucket_records
from daceml.profiling.recording.gradients import gradient_records
from daceml.profiling.recording.layers import layer_names
from daceml.profiling.recording.machine import machine_facts, optimizer_facts
from daceml.profiling.recording.trace_file import Document
from daceml.runtime import launcher

if TYPE_CHECKING:
    import torch
    from torch import nn

    from daceml.runtime.call_log import LoggedCall


def header_facts(
    model: nn.Module | None, optimizer: torch.optim.Optimizer | None, ready: Sequence[nn.Parameter]
) -> dict[str, Any]:
    """Plain values for the header: `machine`, `optimizer`, `model`, `layers`, `gradients`, `buckets`.

    Args:
        ready: parameters in the order in which their gradients became ready.
    """
    facts: dict[str, Any] = {"machine": machine_facts(), "optimizer": optimizer_facts(optimizer)}
    if model is None:
        return facts | {"model": None, "layers": [], "gradients": [], "buckets": None}
    gradients = gradient_records(model, ready)
    layers = [
        {"name": names[0], "class": type(module).__name__, "aliases": list(names[1:])}
        for module, names in layer_names(model).items()
    ]
    return facts | {
        "model": type(model).__name__,
        "layers": layers,
        "gradients": [gradient.to_json() for gradient in gradients],
        "buckets": bucket_records(model, gradients),
    }


@dataclass(frozen=True, kw_only=True)
class RecordedKernels:
    """Kernels of our own compiled modules.

    Attributes:
        programs: what each program that ran is made of.
        events: one for each step of each call.
        missing: calls of which the trace shows no kernels.
    """

    programs: list[dict[str, Any]]
    events: list[dict[str, Any]]
    missing: int


def recorded_kernels(
    document: Document, calls: Sequence[LoggedCall], model: nn.Module | None
) -> RecordedKernels:
    """Lay the calls that the launcher recorded beside the profiler's file."""
    if not calls:
        return RecordedKernels(programs=[], events=[], missing=0)

    used = {call.program for call in calls}
    folders = {number: folder for number, folder in launcher.folders().items() if number in used}
    owned = kernels.owners({} if model is None else layer_names(model))
    root = "" if model is None else type(model).__name__
    records = kernels.program_records(folders, owned, root)
    base_ns = int(document.get("baseTimeNanoseconds", 0))
    events, missing = kernels.kernel_events(document["traceEvents"], calls, records, base_ns)
    return RecordedKernels(programs=list(records.values()), events=events, missing=missing)
