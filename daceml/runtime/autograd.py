"""A compiled module in torch's autograd: one node, whose backward runs the backward program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch._functorch.utils import unwrap_dead_wrappers

from daceml.errors import GradientError
from daceml.runtime.program import Program
from daceml.runtime.records.gradients import BucketRecord, GradientRecord, Source, Wanted
from daceml.runtime.torch_gradients import Again, KeptCall, Wants, is_batch

_keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph  # pyright: ignore


class Exchanged(Protocol):
    """What the other ranks add to what one backward pass gives."""

    @property
    def elsewhere(self) -> Mapping[str, torch.Tensor]:
        """Parameter -> average, of those of which the program has no gradient."""
        ...


class GradientExchange(Protocol):
    """Averages the gradients of backward programs over ranks."""

    @property
    def ranks(self) -> str:
        """How many ranks there are, and the library that connects them."""
        ...

    @property
    def synchronizing(self) -> bool:
        """Whether backward passes of the calls from now on average."""
        ...

    def backward(self, *, synchronizing: bool) -> AbstractContextManager[Exchanged]:
        """One run of a backward program."""
        ...

    def attach(self, program: Program, buckets: Sequence[BucketRecord]) -> None:
        """Run the all-reduces of a program from now on."""
        ...


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
        exchange: averages gradients over all ranks; None in one process.
        torch_forward: makes the forward pass of torch's own kernels, for gradients that are differentiated
            again; None where there is none.
        draws: whether that pass draws random numbers.
        watched: tensors of the module that forward reads, and does not change.
        changed: places of inputs that forward changes.
        cloned: places of inputs, and keys of the module's tensors, that may change before the backward pass.
    """

    program: Program
    record: GradientRecord
    wanted: Wanted
    state: tuple[torch.Tensor, ...]
    read: dict[str, torch.Tensor]
    narrow: Callable[[tuple[int, ...]], Narrowed | None] = lambda _: None
    exchange: GradientExchange | None = None
    torch_forward: Callable[[], Again | None] = lambda: None
    draws: bool = False
    watched: tuple[torch.Tensor, ...] = ()
    changed: frozenset[int] = frozenset()
    cloned: frozenset[int | str] = frozenset()
    _narrowed: dict[tuple[int, ...], Narrowed | None] = field(default_factory=dict)  # pyright: ignore
    _narrowing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Every program that may run."""
        return (self.program, *(found.program for found in self._narrowed.values() if found is not None))

    @property
    def saved_places(self) -> range:
        """Inputs of the program that follow the cotangents."""
        return range(len(self.record.cotangents), len(self.program.manifest.inputs))

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

    @cached_property
    def reads(self) -> tuple[int | torch.Tensor, ...]:
        """Inputs of the forward program, and tensors of the module, that the backward program reads."""
        return tuple(
            place if isinstance(place, int) else self.read[place]
            for kind, place in self.record.reads
            if kind != "sizes"
        )

    @cached_property
    def sized(self) -> tuple[int, ...]:
        """Inputs of the forward program of which the backward program takes the sizes only."""
        return tuple(p for kind, p in self.record.reads if kind == "sizes" and isinstance(p, int))

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Results that no gradient flows from."""
        return tuple(i for i, moves in enumerate(self.record.differentiable) if not moves)

    @cached_property
    def of_leaves(self) -> bool:
        """Whether the module's tensors are leaves of autograd, as parameters are."""
        return all(tensor.is_leaf for tensor in self.state)

    @cached_property
    def saved_results(self) -> tuple[int, ...]:
        """Places among `record.saved` of results: the caller may change them before the backward pass."""
        return tuple(i for i, output in enumerate(self.record.saved) if output < self.record.results)

    @cached_property
    def all_outputs(self) -> tuple[int, ...] | None:
        """Of each gradient, the output of the program that it is; None where one is anything else."""
        sources = self.record.gradients
        if self.exchange is not None or not self.record.cotangents or not all(self.record.reached):
            return None
        if not all(source is not None and source[0] == "output" for source in sources):
            return None
        return tuple(source[1] for source in sources if source is not None)

    @cached_property
    def again(self) -> Again | None:
        """The forward pass of torch's own kernels, if there is one."""
        return None if self.exchange is not None else self.torch_forward()

    @cached_property
    def wants(self) -> Wants:
        """What gradients of torch's own kernels may be asked for."""
        read = {place for place in self.reads if isinstance(place, int) and place not in self.cloned}
        unread = [place for place in range(len(self.wanted.inputs)) if place not in read]
        return Wants(
            inputs=self.wanted.inputs,
            unread=unread,
            state=self.state,
            watched=self.watched,
            changed=self.changed,
        )

    def run(self, forward: Program, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The user's outputs, as results of one node of autograd."""
        given = [x for x, wants in zip(inputs, self.wanted.inputs, strict=True) if wants]
        if _transformed():
            results = _Differentiable.apply(self, forward, inputs, *given, *self.state)  # pyright: ignore
        else:
            results = _apply(self, forward, inputs, *unwrap_dead_wrappers((*given,)), *self.state)
        return [*results[:-1]]


_Like = tuple[torch.Size, torch.dtype, torch.device]
"""What a tensor is besides its numbers. A class would take longer than the questions."""


def _zeros(like: _Like) -> torch.Tensor:
    shape, dtype, device = like
    return torch.zeros(shape, dtype=dtype, device=device)


def _unread(like: _Like) -> torch.Tensor:
    """A tensor of which a program takes the sizes only."""
    shape, dtype, device = like
    return torch.empty(shape, dtype=dtype, device=device)


class _Differentiable(torch.autograd.Function):
    """The node; what it needs besides the tensors that gradients flow to comes in one piece.

    Its last result is an anchor of no elements, which leads autograd from the gradients back to all that they
    depend on: the node's own inputs. Where those are leaves, it is None, since the node knows them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        backward: BackwardPass,
        program: Program,
        inputs: Sequence[torch.Tensor],
        *wanted: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        record = backward.record
        read = [inputs[place] if isinstance(place, int) else place for place in backward.reads]
        if backward.cloned:
            kept = (kind != "sizes" and place in backward.cloned for kind, place in record.reads)
            read = [tensor.clone() if clone else tensor for tensor, clone in zip(read, kept, strict=False)]
        if program.mutated:
            # of what this very call changes, the backward pass reads the value from before
            changing = {id(tensor) for tensor in program.mutated}
            read = [tensor.clone() if id(tensor) in changing else tensor for tensor in read]
        ctx.kept = kept_call = KeptCall(inputs, backward.wants, draws=backward.draws)
        outputs = program(inputs)
        results = outputs[: record.results]
        given = wanted[: len(wanted) - len(backward.state)]
        anchor = torch.empty(0) if not backward.of_leaves or any(x.grad_fn for x in given) else None
        ctx.save_for_backward(*[outputs[i] for i in record.saved], *read, anchor)
        ctx.backward_pass = backward
        ctx.synchronizing = backward.exchange is not None and backward.exchange.synchronizing
        ctx.like = [(x.shape, x.dtype, x.device) for x in map(outputs.__getitem__, record.cotangents)]
        ctx.sized = [(x.shape, x.dtype, x.device) for x in map(inputs.__getitem__, backward.sized)]
        ctx.given = [(x.shape, x.dtype, x.device) for x in given]
        for i in backward.saved_results:
            kept_call.shows(record.saved[i], results[record.saved[i]])
        if backward.fixed:
            ctx.mark_non_differentiable(*[results[i] for i in backward.fixed])
        ctx.set_materialize_grads(False)
        return *results, anchor

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *given: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        backward: BackwardPass = ctx.backward_pass
        record = backward.record
        # a backward pass that needs nothing may run again, as in eager
        again = torch.is_grad_enabled()  # create_graph=True
        unpacked = _Unpacked(ctx)
        if again or is_batch(given):
            if (found := unpacked.torchs_gradients(given)) is not None:
                return None, None, None, *found
            if is_batch(given):
                raise _batch_error()
        # as a rule every result has a cotangent, and every gradient is an output of the program
        places = None if any(g is None for g in given[: record.results]) else backward.all_outputs
        flows = () if places is not None else _flows(given, record)
        if places is None and not any(flows):
            return (None,) * (3 + len(flows))
        if backward.exchange is None and all(given[i] is None for i in record.cotangents):
            # only results that move with nothing have a cotangent
            zeros = (
                _zeros(like) if flowing else None
                for like, flowing in zip(_wanted(ctx, backward), flows, strict=True)
            )
            return None, None, None, *zeros
        narrowed = None
        if places is None:
            narrowed = backward.narrowed(tuple(i for i in record.cotangents if given[i] is not None))
        program = backward.program if narrowed is None else narrowed.program
        taken = narrowed.record.cotangents if narrowed is not None else record.cotangents
        cotangents = [
            _zeros(like) if (g := given[i]) is None else g.contiguous()
            for i, like in zip(record.cotangents, ctx.like, strict=True)
            if i in taken
        ]
        try:
            saved = unpacked.taken(None if narrowed is None else narrowed.takes)
            sources = [*_sources(ctx, unpacked.anchor), *cotangents] if again else []
        except RuntimeError:  # a result has changed in place since; torch's kernels may not need it
            if (found := unpacked.torchs_gradients(given)) is None:
                raise
            return None, None, None, *found
        # hooks of the user may give back another type, such as a mask as numbers
        dtypes = program.input_dtypes[len(cotangents) :]
        saved = [
            (x if x.dtype is dtype else x.to(dtype)).contiguous()
            for x, dtype in zip(saved, dtypes, strict=True)
        ]
        ctx.maybe_clear_saved_tensors()  # unless the graph is retained
        elsewhere: Mapping[str, torch.Tensor] = {}
        with torch.no_grad() if again else nullcontext():
            if backward.exchange is None:
                outputs = program(cotangents, saved)
            else:
                with backward.exchange.backward(synchronizing=ctx.synchronizing) as exchanged:
                    outputs = program(cotangents, saved)
                elsewhere = exchanged.elsewhere
        gradients: list[torch.Tensor | None]
        if places is not None:
            gradients = [outputs[i] for i in places]
        else:
            found = {"output": outputs, "cotangent": cotangents}
            # what this rank has not used another one may have: the average is everybody's
            averaged = backward.exchange is not None and ctx.synchronizing
            gradients = [
                _gradient(source if flowing or averaged else None, found, like)
                for source, flowing, like in zip(
                    (record if narrowed is None else narrowed.record).gradients,
                    flows,
                    _wanted(ctx, backward),
                    strict=True,
                )
            ]
        if elsewhere:
            first = len(gradients) - len(backward.wanted.state)
            for place, key in enumerate(backward.wanted.state, first):
                gradients[place] = elsewhere.get(key, gradients[place])
        if again:
            gradients = _refusing_second(gradients, sources)
        return None, None, None, *gradients


_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active  # pyright: ignore
# What `_Differentiable.apply` does after it has looked at every parameter for what a transform has left.
_apply: Callable[..., Any] = super(torch.autograd.Function, _Differentiable).apply  # pyright: ignore


def keep_dynamo_out() -> None:
    """Let Dynamo not trace backward passes that run within code that it watches."""
    import torch._dynamo

    if not hasattr(_Differentiable.backward, "_torchdynamo_disable"):
        hidden: Any = torch._dynamo.disable(_Differentiable.backward)  # pyright: ignore[reportUnknownMemberType]
        _Differentiable.backward = staticmethod(hidden)


class _Unpacked:
    """What a call has saved, in one backward pass. Hooks of the user may let it be read once only."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self._backward: BackwardPass = ctx.backward_pass
        self._kept: KeptCall | None = ctx.kept
        self._tensors: tuple[Any, ...] | None = None
        if not _keeps_graph():
            ctx.kept = None

    def _all(self) -> tuple[Any, ...]:
        tensors = self._tensors
        if tensors is None:
            self._tensors = tensors = tuple(self._ctx.saved_tensors)
        return tensors

    @property
    def anchor(self) -> torch.Tensor | None:
        """What leads autograd to the node's inputs; None where those are leaves."""
        return self._all()[-1]

    def taken(self, places: tuple[int, ...] | None) -> list[torch.Tensor]:
        """What a backward program takes after the cotangents.

        Args:
            places: of what it takes; None if that is everything.
        Raises:
            RuntimeError: of torch, if a tensor that it takes has been changed in place.
        """
        held = len(self._backward.record.saved) + len(self._backward.reads)
        unread = [*map(_unread, self._ctx.sized)]
        if places is None:
            return [*(self._all()[:held] if held else ()), *unread]
        if self._tensors is not None or any(i in self._backward.saved_results for i in places):
            return [self._all()[i] if i < held else unread[i - held] for i in places]
        raw = self._ctx._raw_saved_tensors
        return [raw[i].unpack() if i < held else unread[i - held] for i in places]

    def _one(self, place: int) -> torch.Tensor:
        """A saved tensor, whatever has become of the others."""
        if self._tensors is None:
            return self._ctx._raw_saved_tensors[place].unpack()
        return self._tensors[place]

    def torchs_gradients(
        self, cotangents: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None] | None:
        """Those of torch's own kernels, see `KeptCall`; None after a backward pass that freed the graph."""
        backward = self._backward
        if self._kept is None or backward.again is None:
            return None
        first = len(backward.record.saved)
        read: dict[int, torch.Tensor] = {}
        for i, place in enumerate(backward.reads, first):
            if isinstance(place, int) and place not in backward.cloned:
                with suppress(RuntimeError):  # it has been changed in place
                    read[place] = self._one(i)
        return self._kept.gradients(backward.again, cotangents, read)


def _flows(given: Sequence[torch.Tensor | None], record: GradientRecord) -> list[bool]:
    """Of each wanted gradient, whether a cotangent leads to it."""
    return [any(given[i] is not None for i in reached) for reached in record.reached]


def _wanted(ctx: Any, backward: BackwardPass) -> list[_Like]:
    """What each gradient looks like."""
    return [*ctx.given, *((x.shape, x.dtype, x.device) for x in backward.state)]


def _sources(ctx: Any, anchor: torch.Tensor | None) -> list[torch.Tensor]:
    """What leads autograd to the node's inputs.

    Raises:
        GradientError: a parameter was a leaf before, and now follows from other tensors.
    """
    if anchor is not None:
        return [anchor]
    nodes = [node for node, _ in ctx.next_functions if node is not None]
    if not all(hasattr(node, "variable") for node in nodes):
        raise _second_error()
    return [node.variable for node in nodes]


def _gradient(
    source: Source | None, found: Mapping[str, Sequence[torch.Tensor]], like: _Like
) -> torch.Tensor | None:
    """One gradient of a backward pass that has run; None where there is none, as in eager."""
    if source is None:
        return None
    kind, place = source
    return _zeros(like) if kind == "zero" else found[kind][place]


def _batch_error() -> GradientError:
    return GradientError(
        "a batch of gradients was asked for in one backward pass of a compiled module",
        why="its backward pass takes one cotangent of each result. torch's kernels take batches, but not if\n"
        "forward contains an autograd.Function, draws random numbers or runs on several ranks, or if a\n"
        "tensor that it read was freed or changed since",
        fix="ask for one gradient at a time, without is_grads_batched=True or vectorize=True;\n"
        "or call the eager module: with daceml.stance('force_eager')",
    )


def _refusing_second(
    gradients: Sequence[torch.Tensor | None], sources: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """The same gradients, which cannot be differentiated.

    Args:
        sources: what leads autograd to all that the gradients depend on, whether it could see that or not.
    """
    given = [g for g in gradients if g is not None]
    once = iter(_Once.apply(len(given), *given, *sources) if given else ())  # pyright: ignore
    return [None if g is None else next(once) for g in gradients]


class _Once(torch.autograd.Function):
    """Passes the first tensors through; has no gradients of its own."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(gradient.detach() for gradient in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise _second_error()


def _second_error() -> GradientError:
    return GradientError(
        "the gradients of a compiled module were differentiated once more",
        why="forward contains an autograd.Function or runs on several ranks, or a tensor that it read was"
        " freed or changed since",
        fix="call the eager module where create_graph=True is used: with daceml.stance('force_eager')",
    )
