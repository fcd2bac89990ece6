"""Gradients that no backward program has: torch's kernels run a call again, then its own backward pass.

They can be differentiated, and may be of a batch of cotangents. They read a result of the call, which the
caller may have changed since, only if torch's own kernels do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

Again = Callable[[Sequence[torch.Tensor], Mapping[int, torch.Tensor]], Sequence[torch.Tensor]]
"""The forward pass of torch's kernels, given the inputs, and id -> what stands for a tensor of the module."""

_functorch = torch._C._functorch  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
_is_batched, _is_legacy_batched = _functorch.is_batchedtensor, _functorch.is_legacy_batchedtensor


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What a call may be asked for.

    Attributes:
        inputs: of each input, whether its gradient is wanted.
        unread: places of inputs that the backward pass does not keep.
        state: tensors of the module that gradients flow to.
        watched: tensors of the module that forward reads, and does not change.
        changed: places of inputs that forward changes; its results do not depend on what they were.
    """

    inputs: Sequence[bool]
    unread: Sequence[int]
    state: Sequence[torch.Tensor]
    watched: Sequence[torch.Tensor]
    changed: frozenset[int] = frozenset()


class KeptCall:
    """What a call keeps in order to run again. It keeps no activation alive, and no tensor that leads to it.

    Args:
        inputs: of the forward pass.
        draws: whether the call is about to draw random numbers.
    """

    __slots__ = ("_generator", "_inputs", "_leaves", "_results", "_versions", "_wants")

    def __init__(self, inputs: Sequence[torch.Tensor], wants: Wants, *, draws: bool) -> None:
        self._inputs = [*map(weakref.ref, inputs)]
        self._leaves = {i: inputs[i].detach() for i in wants.unread if inputs[i].grad_fn is None}
        self._wants = wants
        self._versions = self._versions_of(inputs)
        self._results: list[tuple[int, weakref.ref[torch.Tensor], int]] = []
        self._generator = torch.get_rng_state() if draws else None

    def shows(self, place: int, result: torch.Tensor) -> None:
        """Note a result that the caller may change."""
        self._results.append((place, weakref.ref(result), _version(result)))

    def gradients(
        self, again: Again, cotangents: Sequence[torch.Tensor | None], read: Mapping[int, torch.Tensor]
    ) -> Sequence[torch.Tensor | None] | None:
        """Of the wanted inputs and of the module's tensors.

        Args:
            read: place -> input that the backward program reads.
        Returns:
            None if a tensor that the call read has been freed or changed, or if a batch would need random
            numbers, which torch refuses to draw there.
        """
        if self._generator is not None and is_batch(cotangents):
            return None
        inputs = self._alive(read)
        if inputs is None or self._versions != self._versions_of(inputs):
            return None
        # what leads from one of them to another, and their hooks, are part of the graph around this call
        given = [_alias(x, moves) for x, moves in zip(inputs, self._wants.inputs, strict=True)]
        state = [_alias(x, True) for x in self._wants.state]
        with nullcontext() if self._generator is None else torch.random.fork_rng(devices=()):
            if self._generator is not None:
                torch.set_rng_state(self._generator)
            results = again(given, {id(x): alias for x, alias in zip(self._wants.state, state, strict=True)})
        for place, result, version in self._results:
            if (shown := result()) is not None and _version(shown) != version:
                # torch refuses what it would have refused
                torch.autograd.graph.increment_version(results[place])
        flowing = [
            (result, cotangent)
            for result, cotangent in zip(results, cotangents, strict=False)
            if cotangent is not None and result.requires_grad
        ]
        wanted = [*(x for x, moves in zip(given, self._wants.inputs, strict=True) if moves), *state]
        if not flowing or not wanted:
            return [None] * len(wanted)
        outputs, moving = zip(*flowing, strict=True)
        create_graph = torch.is_grad_enabled()
        return torch.autograd.grad(outputs, wanted, moving, create_graph=create_graph, allow_unused=True)

    def _versions_of(self, inputs: Sequence[torch.Tensor]) -> list[int]:
        """How often each tensor was changed that the results depend on."""
        if changed := self._wants.changed:
            inputs = [x for place, x in enumerate(inputs) if place not in changed]
        # what `_version` says, without a call for each of hundreds of weights
        groups = (inputs, self._wants.watched)
        return [-1 if x.is_inference() else x._version for group in groups for x in group]

    def _alive(self, read: Mapping[int, torch.Tensor]) -> list[torch.Tensor] | None:
        """The inputs of the call; None if an activation among them has been freed."""
        found = [
            next((x for x in (kept(), read.get(place), self._leaves.get(place)) if x is not None), None)
            for place, kept in enumerate(self._inputs)
        ]
        known = [x for x in found if x is not None]
        return known if len(known) == len(found) else None


def is_batch(cotangents: Sequence[torch.Tensor | None]) -> bool:
    """Whether cotangents are those of several backward passes at once."""
    return any(_is_batched(g) or _is_legacy_batched(g) for g in cotangents if g is not None)


def _alias(tensor: torch.Tensor, moves: bool) -> torch.Tensor:
    """What stands for a tensor of the call; second derivatives flow on to that one."""
    if not moves:
        return tensor.detach()
    with torch.enable_grad():
        return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed; tensors made in inference mode do not count it."""
    return -1 if tensor.is_inference() else tensor._version
