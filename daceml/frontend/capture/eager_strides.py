"""Strides as eager PyTorch has them, where the trace has others.

torch traces with fake tensors, whose reshape gives a dimension of one element another stride than eager's
does: `x[1, 64, 4].mT.reshape(1, 4, 8, 8)` is channels-last in the trace, but not in eager PyTorch. A
convolution or an interpolation keeps the memory format of its operand, and random numbers and `as_strided`
depend on it. Mutates the program's metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch.fx.node import map_arg

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

AS_STRIDED = torch.ops.aten.as_strided.default
AS_STRIDED_SCATTER = torch.ops.aten.as_strided_scatter.default
DRAWS = frozenset(
    f"aten.{name}"
    for name in (
        "dropout.default",
        "native_dropout.default",
        "alpha_dropout.default",
        "rand_like.default",
        "bernoulli.default",
        "bernoulli.p",
    )
)
"""Operators that draw numbers for a tensor as it lies in memory."""

_aten = torch.ops.aten
_RESHAPES = frozenset({_aten.reshape.default, _aten.view.default, _aten._unsafe_view.default})


def correct_strides(program: ExportedProgram) -> None:
    """Give every value the strides of eager PyTorch, where an operator reads the order of memory."""
    if not any(map(reads_memory_order, program.graph.nodes)):
        return
    corrected: set[Node] = set()
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        traced = node.meta.get("val")
        if node.target in _RESHAPES:
            found = _reshaped(node.args[0].meta["val"], traced)
        elif corrected.intersection(node.all_input_nodes):
            found = _evaluated(node, traced)
        else:
            continue
        node.meta["val"] = value = _with_strides(traced, found)
        if value is not traced:
            corrected.add(node)


def reads_memory_order(node: Node) -> bool:
    """Whether the result of an operator depends on how its first operand lies in memory."""
    return node.target in (AS_STRIDED, AS_STRIDED_SCATTER) or str(node.target) in DRAWS


def _reshaped(given: torch.Tensor, traced: torch.Tensor) -> torch.Tensor:
    """A reshape on the meta device, where C++ computes its strides; the traced one if a size is symbolic."""
    numbers = (*given.shape, *given.stride(), *traced.shape)
    if any(isinstance(n, torch.SymInt) for n in numbers):
        return traced
    return torch.empty_strided(given.shape, given.stride(), device="meta").reshape(traced.shape)


def _evaluated(node: Node, traced: Any) -> Any:
    """The result of a node for operands with corrected strides."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    mode = detect_fake_mode((traced, args))
    if mode is None:
        return traced
    with mode, torch.no_grad():
        return node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]


def _with_strides(traced: Any, found: Any) -> Any:
    """A traced value with the strides of another one, in its own storage, by which aliases are told."""
    if isinstance(traced, tuple | list):
        return type(traced)(map(_with_strides, traced, found))
    if not isinstance(traced, torch.Tensor) or traced.stride() == found.stride():
        return traced
    return traced.as_strided(found.shape, found.stride())
