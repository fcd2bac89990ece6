"""What forward computes on another device than that of the call: a program has one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from daceml.frontend.capture.exportable import RunsEagerlyError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def refuse_moved(program: ExportedProgram, device: torch.device) -> None:
    """Leave it to eager where a result, or what a generator draws, belongs to another device.

    Positions and constants that are made elsewhere and moved are the same on any device.

    Raises:
        RunsEagerlyError: forward does one of the two.
    """
    results = {spec.arg.name for spec in program.graph_signature.output_specs if hasattr(spec.arg, "name")}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.device == device:
            continue
        drawn = node.op == "call_function" and torch.Tag.nondeterministic_seeded in node.target.tags
        if node.name in results or drawn:
            what = "draws numbers" if drawn else "gives a result"
            raise RunsEagerlyError(f"forward {what} on {value.device}, and the call is on {device}")
