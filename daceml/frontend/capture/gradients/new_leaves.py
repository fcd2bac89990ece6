"""Tensors that begin to require a gradient in forward: `h.requires_grad_()`, `zeros(3, requires_grad=True)`.

Those of the caller and of the module have places in a program. What forward makes itself has none, so a
result that has its gradient from such tensors alone would require none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def rests_on_new_leaves(result: torch.Tensor, given: Sequence[torch.Tensor]) -> bool:
    """Whether a traced result has its gradient from tensors that forward has made, and from no others.

    Args:
        given: the tensors of the caller and of the module, as they are traced.
    """
    if not result.requires_grad:
        return False
    leaves = [result] if result.grad_fn is None else _leaves(result.grad_fn)
    known = frozenset(map(id, given))
    return bool(leaves) and not any(id(leaf) in known for leaf in leaves)


def _leaves(function: Any) -> list[torch.Tensor]:
    """The tensors that autograd adds gradients up in."""
    found: list[torch.Tensor] = []
    waiting, seen = [function], {function}
    while waiting:
        node = waiting.pop()
        if (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
        new = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= new
        waiting += new
    return found
