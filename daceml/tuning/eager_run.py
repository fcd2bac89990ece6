"""A traced module run by torch's own kernels, one by one: what a compiled program is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from daceml.frontend.capture.gradients.torch_forward import TorchForward
from daceml.tuning.program_run import own_state

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.runtime.records.gradients import Wanted


class EagerRun:
    """Runs the operators of a trace, and torch's gradients of them where some are wanted.

    Args:
        exported: operators as forward calls them, in-place ones too.
        state: key -> tensor of the module.
        inputs: of a call.
        wanted: gradients, if any.
        changed: what forward changes, by key or by name of the input: it gets copies of these.
    Raises:
        UnlikeEagerError: the trace takes or calls something that is no tensor or operator of torch.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        state: Mapping[str, torch.Tensor],
        inputs: Sequence[torch.Tensor],
        wanted: Wanted | None,
        changed: Collection[str],
    ) -> None:
        keys = () if wanted is None else wanted.state
        constants = {key: x for key, x in exported.constants.items() if isinstance(x, torch.Tensor)}
        owned = own_state({**constants, **state}, changed, keys)
        self._forward = TorchForward(exported, owned, ())
        names = [name for name in exported.graph_signature.user_inputs if isinstance(name, str)]
        wants = (False,) * len(inputs) if wanted is None else wanted.inputs
        given: list[torch.Tensor] = []
        for name, tensor, moves in zip(names, inputs, wants, strict=True):
            own = tensor.detach().clone() if name in changed else tensor.detach()
            given.append(own.requires_grad_(moves))
        leaves = [tensor for tensor, moves in zip(given, wants, strict=True) if moves]
        self._arguments = self._forward.arguments(given)
        self._leaves = [*leaves, *(owned[key] for key in keys)]
        self._cotangents: dict[int, torch.Tensor] = {}

    def __call__(self) -> object:
        """Run once, forward and backward."""
        with torch.set_grad_enabled(bool(self._leaves)):
            results = self._forward.results(self._arguments)
            if not self._leaves:
                return results
            flowing = [(place, x) for place, x in enumerate(results) if x.requires_grad]
            if not flowing:
                return results
            return torch.autograd.grad(
                [x for _, x in flowing],
                self._leaves,
                [self._cotangents.setdefault(place, torch.ones_like(x)) for place, x in flowing],
                allow_unused=True,
            )


def bytes_of(exported: ExportedProgram) -> int:
    """All that the operators of a trace write, which is what torch would hold at once at the most."""
    values = (node.meta.get("val") for node in exported.graph.nodes if node.op == "call_function")
    flat = (x for value in values for x in (value if isinstance(value, list | tuple) else (value,)))
    return sum(x.numel() * x.element_size() for x in flat if isinstance(x, torch.Tensor))
