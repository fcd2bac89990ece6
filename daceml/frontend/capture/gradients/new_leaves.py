"""Tensors that begin to require a gradient in forward: `h.requires_grad_()`, `zeros(3, requires_grad=True)`.

Those of the caller and of the module have places in a program. What forward makes itself has none, so a
result that has its gradient from such tensors alone would require none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch


def gradient_origins(given: Sequence[torch.Tensor]) -> tuple[object, ...]:
    """Return where the gradients of tensors end in autograd's graph, before forward changes them in place.

    Args:
        given: the tensors of the caller and of the module, as they are traced. A leaf is an origin itself;
            a tensor that was computed, such as the result of another module, has its function as origin.
    """
    return tuple(tensor if tensor.grad_fn is None else tensor.grad_fn for tensor in given)


def rests_on_new_leaves(result: torch.Tensor, origins: Collection[object]) -> bool:
    """Whether a traced result has its gradient from tensors that forward has made, and from no others.

    Args:
        origins: see `gradient_origins`.
    """
    if not result.requires_grad:
        return False
    known = frozenset(map(id, origins))
    reached = [result] if result.grad_fn is None else list(_reached(result.grad_fn))
    return not any(id(end) in known for end in reached) and any(isinstance(e, torch.Tensor) for e in reached)


def _reached(function: Any) -> Iterator[object]:
    """The functions that a gradient passes, and the tensors that autograd adds gradients up in."""
    waiting, seen = [function], {function}
    while waiting:
        node = waiting.pop()
        yield node
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf
        new = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= new
        waiting += new
