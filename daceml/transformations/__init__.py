"""Rewrites of SDFGs, in four levels that run in this order.

`coarse` works on ONNX operators, `local` fuses and recomputes lowered maps, `layout` decides about layouts
and lifetimes, `hardware` fits the result to a device. Here itself belong the two classes that users write
with: `Rewrite` (pattern, check with a reason, replacement) and `Recipe` (an ordered list of passes).
"""

from __future__ import annotations

from daceml._bare_name import refuse_bare_name

refuse_bare_name(__name__)
