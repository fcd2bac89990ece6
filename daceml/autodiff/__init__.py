"""Reverse-mode differentiation of SDFGs.

Here belong: the engine that walks a forward graph backwards, derivative rules of operators (one `@vjp`
function per rule), symbolic differentiation of tasklets, the plan of what is stored and what is recomputed,
and the backward pass of any DaCe program (`add_backward_pass`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daceml._bare_name import refuse_bare_name

if TYPE_CHECKING:
    from daceml.autodiff.sdfg_backward.add_backward_pass import add_backward_pass

__all__ = ["add_backward_pass"]

refuse_bare_name(__name__)


def __getattr__(name: str) -> Any:
    """Load what needs dace at first use."""
    if name != "add_backward_pass":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from daceml.autodiff.sdfg_backward.add_backward_pass import add_backward_pass

    return add_backward_pass
