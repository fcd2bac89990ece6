"""What a run ran on: versions, devices, threads. Nothing that names a person or a machine."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from typing import Any

import torch

from daceml.toolchain.processor import cpu_model
from daceml.version import __version__


def machine_facts() -> dict[str, Any]:
    """Plain values for a trace's header."""
    cuda = torch.cuda.is_available()
    return {
        "torch": str(torch.__version__),
        "daceml": __version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda if cuda else None,
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "processor": cpu_model(),
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "date": datetime.now(UTC).date().isoformat(),
    }


def optimizer_facts(optimizer: torch.optim.Optimizer | None) -> dict[str, Any] | None:
    """What a reader may want to know of an optimizer: which one, and how it walks through parameters."""
    if optimizer is None:
        return None
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    return {
        "name": type(optimizer).__name__,
        "foreach": group.get("foreach"),
        "fused": group.get("fused"),
        "capturable": group.get("capturable"),
        "parameters": sum(len(g["params"]) for g in optimizer.param_groups),
    }
