"""Rewrites of SDFGs, in four levels that run in this order.

`coarse` works on ONNX operators, `local` fuses and recomputes lowered maps, `layout` decides about layouts
and lifetimes, `hardware` fits the result to a device. Here itself belong the two classes that users write
with: `Rewrite` (pattern, check with a reason, replacement) and `Recipe` (an ordered list of passes).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from daceml._bare_name import refuse_bare_name

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe, Step, first_wrong
    from daceml.transformations.rewrite import Rewrite

__all__ = ["Recipe", "Rewrite", "Step", "first_wrong"]

refuse_bare_name(__name__)


def __getattr__(name: str) -> Any:
    """Load what needs dace at first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "rewrite" if name == "Rewrite" else "recipe"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
