"""Calls that torch's own translations get wrong or refuse, and that its decompositions get right.

A row says for which calls of an operator; the whole operator is decomposed then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from daceml.frontend.capture.sizes.hints import hint
from daceml.frontend.onnx_export.own_decompositions import COMPLEX_WRITES


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """Arguments by name, with the schema's defaults."""
    assert isinstance(node.target, OpOverload)
    given = dict(node.kwargs)
    for position, argument in enumerate(node.target._schema.arguments):  # pyright: ignore[reportPrivateUsage]
        if position < len(node.args):
            given[argument.name] = node.args[position]
        elif argument.has_default_value():
            given.setdefault(argument.name, argument.default_value)
    return given


def _dtype(argument: Any) -> torch.dtype:
    return argument.meta["val"].dtype


def _smoothed_or_probabilities(node: torch.fx.Node) -> bool:
    given = _arguments(node)
    value = given["self"].meta["val"]
    # ONNX's operator has a batch, classes as targets, and no smoothing
    return given["label_smoothing"] != 0 or _dtype(given["target"]).is_floating_point or value.dim() < 2


def _always(node: torch.fx.Node) -> bool:
    return True


class _Spelling(TorchDispatchMode):
    """Notes whether every operator within the block has a translation, or a decomposition into such."""

    def __init__(self, registry: Any) -> None:
        super().__init__()
        self.registry = registry
        self.complete = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = None if self.registry.is_registered(func) else decomposition_table.get(func)
        if rule is not None:
            with self:
                made = rule(*args, **(kwargs or {}))
            if made is not NotImplemented:
                return made
        # operators of `prim` ask for facts, such as where a tensor lies
        known = func.namespace == "prim" or self.registry.is_registered(_out_of_place(func))
        self.complete = self.complete and known
        return func(*args, **(kwargs or {}))


def _out_of_place(target: OpOverload) -> OpOverload:
    """What stands in the functional form for an operator that changes its first argument, such as `add_`."""
    name = target.overloadpacket.__name__
    packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") and name[:-1] else None
    return getattr(packet, target._overloadname, target)  # pyright: ignore[reportPrivateUsage]


def example_arguments(node: torch.fx.Node) -> tuple[Any, Any]:
    """Arguments of a node without symbolic sizes: what is done with them adds no guards to a trace."""

    def example(operand: torch.fx.Node) -> Any:
        value = operand.meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes, strides = (tuple(map(hint, numbers)) for numbers in (value.shape, value.stride()))
            return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        return hint(value)

    with FakeTensorMode(allow_non_fake_inputs=True):
        return torch.fx.map_arg((node.args, dict(node.kwargs)), example)


def is_spelled(node: torch.fx.Node, rule: Callable[..., Any], registry: Any) -> bool:
    """Whether a decomposition leads to operators that all have translations.

    One that does not is no gain: one call of the whole operator is better than calls of its parts, and a part
    may be a check that no graph can hold.
    """
    spelling = _Spelling(registry)
    try:
        args, kwargs = example_arguments(node)
        with spelling:
            made = rule(*args, **kwargs)
    except Exception:
        return False
    return spelling.complete and made is not NotImplemented


def _complex(node: torch.fx.Node) -> bool:
    return node.meta["val"].is_complex()


ROWS: dict[str, Callable[[torch.fx.Node], bool]] = {
    # the second result, the weight of all targets, is another number in torch's own translation
    "aten.nll_loss_forward.default": _always,
    "aten.nll_loss2d_forward.default": _always,
    "aten.cross_entropy_loss.default": _smoothed_or_probabilities,
    **{str(target): _complex for target in COMPLEX_WRITES},
}

SOMETIMES = frozenset(ROWS)
"""Operators with a row: one call may need it, and another not."""


def is_decomposed(node: torch.fx.Node) -> bool:
    """Whether a call is one of those above."""
    row = ROWS.get(str(node.target))
    return row is not None and row(node)
