"""What a module returned, as tensors with names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def named_outputs(outputs: Any, prefix: str) -> dict[str, torch.Tensor]:
    """Every tensor in what a module returned, with a name that says where it stood."""
    found: dict[str, torch.Tensor] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            found[path] = value
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                visit(entry, f"{path}.{key}")
        elif isinstance(value, list | tuple):
            for index, entry in enumerate(value):
                visit(entry, f"{path}.{index}")

    visit(outputs, f"{prefix}.output")
    return found
