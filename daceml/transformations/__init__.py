"""Rewrites of SDFGs, at five levels: `coarse` and `operators` see ONNX operators, the others loops.

`coarse` works on ONNX operators, `local` fuses and recomputes lowered maps, `layout` decides about layouts
and lifetimes, `hardware` fits the result to a device. Here itself belongs what users write with: `Rewrite`
(pattern, check with a reason, replacement), `Recipe` (an ordered list of passes), and `standard_recipe`, the
recipe to go on from.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from daceml._bare_name import refuse_bare_name

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe, Step, first_wrong
    from daceml.transformations.rewriting.rewrite import Rewrite
    from daceml.transformations.standard import standard_recipe

__all__ = ["Recipe", "Rewrite", "Step", "first_wrong", "standard_recipe"]

refuse_bare_name(__name__)


def __getattr__(name: str) -> Any:
    """Load what needs dace at first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"Rewrite": "rewriting.rewrite", "standard_recipe": "standard"}.get(name, "recipe")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
