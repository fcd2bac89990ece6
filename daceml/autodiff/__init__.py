"""Reverse-mode differentiation of SDFGs.

Here belong: the engine that walks a forward graph backwards, derivative rules of operators (one `@vjp`
function per rule), symbolic differentiation of tasklets, the plan of what is stored and what is recomputed,
and the check of gradients against finite differences.
"""

from __future__ import annotations

from daceml._bare_name import refuse_bare_name

refuse_bare_name(__name__)
