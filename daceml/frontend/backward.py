"""A compiled module in torch's autograd: one node, whose backward runs the backward program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from daceml.errors import GradientError
from daceml.frontend.gradient_record import GradientRecord, Source, Wanted
from daceml.runtime.program import Program


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """A backward program that takes fewer cotangents.

    Attributes:
        takes: places, among what the whole backward program takes after the cotangents, of what it takes.
    """

    program: Program
    record: GradientRecord
    takes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BackwardPass:
    """The backward half of a variant.

    Attributes:
        program: takes cotangents, what was saved, and what it reads of inputs and state.
        state: tensors of the module that gradients flow to, in the order of the record.
        read: state_dict key -> tensor, of what the backward program reads.
        narrow: makes the half that is right where only the results at some places have a cotangent.
    """

    program: Program
    record: GradientRecord
    wanted: Wanted
    state: tuple[torch.Tensor, ...]
    read: dict[str, torch.Tensor]
    narrow: Callable[[tuple[int, ...]], Narrowed | None] = lambda _: None
    _narrowed: dict[tuple[int, ...], Narrowed | None] = field(default_factory=dict)  # pyright: ignore
    _narrowing: threading.Lock = field(default_factory=threading.Lock)

    def narrowed(self, places: tuple[int, ...]) -> Narrowed | None:
        """The half for cotangents of the results at these places; None where zeros have to do for the others.

        Zeros are not the same: what a derivative of infinity makes of them is NaN.
        """
        if places == self.record.cotangents:
            return None
        if places not in self._narrowed:
            with self._narrowing:
                if places not in self._narrowed:
                    self._narrowed[places] = self.narrow(places)
        return self._narrowed[places]

    def run(self, forward: Program, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The user's outputs, as results of one node of autograd."""
        given = [x for x, wants in zip(inputs, self.wanted.inputs, strict=True) if wants]
        return list(_Differentiable.apply(self, forward, inputs, *given, *self.state))  # pyright: ignore


class _Differentiable(torch.autograd.Function):
    """The node; what it needs besides the tensors that gradients flow to comes in one piece."""

    @staticmethod
    def forward(
        ctx: Any,
        backward: BackwardPass,
        program: Program,
        inputs: Sequence[torch.Tensor],
        *wanted: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        record = backward.record
        changing = {id(tensor) for tensor in program.mutated}
        read = [
            inputs[place] if isinstance(place, int) else backward.read[place] for _, place in record.reads
        ]
        # of what this very call changes, the backward pass reads the value from before
        read = [tensor.clone() if id(tensor) in changing else tensor for tensor in read]
        outputs = program(inputs)
        ctx.save_for_backward(*(outputs[i] for i in record.saved), *read)
        ctx.backward_pass = backward
        ctx.like = [(outputs[i].shape, outputs[i].dtype) for i in record.cotangents]
        ctx.wanted = [(tensor.shape, tensor.dtype) for tensor in wanted]
        results = tuple(outputs[: record.results])
        fixed = [x for x, moves in zip(results, record.differentiable, strict=True) if not moves]
        ctx.mark_non_differentiable(*fixed)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *given: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        backward: BackwardPass = ctx.backward_pass
        record = backward.record
        flows = [any(given[i] is not None for i in reached) for reached in record.reached]
        if not any(flows):
            return (None,) * (3 + len(flows))
        narrowed = backward.narrowed(tuple(i for i in record.cotangents if given[i] is not None))
        program = backward.program if narrowed is None else narrowed.program
        taken = narrowed.record.cotangents if narrowed is not None else record.cotangents
        like = dict(zip(record.cotangents, ctx.like, strict=True))
        cotangents = [_cotangent(given[i], like[i]) for i in taken]
        # a backward pass that needs nothing may run again, as in eager
        saved = list(ctx.saved_tensors) if record.saved or record.reads else []
        saved = [x.contiguous() for x in (saved if narrowed is None else [saved[i] for i in narrowed.takes])]
        ctx.maybe_clear_saved_tensors()  # unless the graph is retained
        with torch.no_grad():
            outputs = program(cotangents, saved)
        found = {"output": outputs, "cotangent": cotangents}
        sources = (record if narrowed is None else narrowed.record).gradients
        gradients = [
            _gradient(source if flowing else None, found, like)
            for source, flowing, like in zip(sources, flows, ctx.wanted, strict=True)
        ]
        if torch.is_grad_enabled():
            gradients = _refusing_second(gradients)
        return None, None, None, *gradients


def _cotangent(given: torch.Tensor | None, like: tuple[torch.Size, torch.dtype]) -> torch.Tensor:
    return torch.zeros(like[0], dtype=like[1]) if given is None else given.contiguous()


def _gradient(
    source: Source | None, found: Mapping[str, Sequence[torch.Tensor]], like: tuple[torch.Size, torch.dtype]
) -> torch.Tensor | None:
    """One gradient of a backward pass that has run; None where there is none, as in eager."""
    if source is None:
        return None
    kind, place = source
    return torch.zeros(like[0], dtype=like[1]) if kind == "zero" else found[kind][place]


def _refusing_second(gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The same gradients, which cannot be differentiated: they depend on more than autograd could see."""
    given = [g for g in gradients if g is not None]
    anchor = torch.zeros((), requires_grad=True)
    once = iter(_Once.apply(anchor, *given) if given else ())  # pyright: ignore[reportArgumentType]
    return [None if g is None else next(once) for g in gradients]


class _Once(torch.autograd.Function):
    """Passes gradients through; has none of its own."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(g.view_as(g) for g in gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise GradientError(
            "the gradients of a compiled module were differentiated once more",
            why="its backward pass is a program without a backward pass of its own",
            fix="call the eager module where create_graph=True is used: with daceml.stance('force_eager')",
        )
