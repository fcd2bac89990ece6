"""Implementations that nodes of a model get by choice: data on an exported program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daceml.frontend.onnx_export.functionalize import copied

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_CHOSEN = "daceml.implementations"


def with_implementations(program: ExportedProgram, titles: Mapping[str, str]) -> ExportedProgram:
    """A copy of a program in whose networks nodes get other implementations than their first ones.

    Args:
        titles: see `Network.preferred`.
    """
    twin = copied(program)
    twin.graph_module.meta[_CHOSEN] = dict(sorted(titles.items()))
    return twin


def chosen_implementations(program: ExportedProgram) -> dict[str, str]:
    """What nodes get by choice; see `Network.preferred`."""
    return dict(program.graph_module.meta.get(_CHOSEN, {}))
