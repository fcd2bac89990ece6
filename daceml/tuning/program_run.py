"""A compiled candidate with everything that a call of it needs, apart from the module that it is for."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import torch

from daceml.compiler.verification.value_difference import largest_difference
from daceml.runtime.autograd import BackwardPass
from daceml.runtime.program import Program
from daceml.runtime.records.manifest import TensorRecord

_SEED = 0
_DISTURBED, _TIMED_AGAIN = 1.3, 3
_FEWEST_RUNS, _MOST_RUNS, _PATIENCE_S = 5, 50, 0.5


class ProgramRun:
    """Runs a program, and its backward pass where there is one.

    Args:
        program: bound to `own_state`.
        backward: the same.
        inputs: of a call; read and not changed.
        limit: how far results may be from those of another run, see `value_difference`.
    """

    def __init__(
        self,
        program: Program,
        backward: BackwardPass | None,
        inputs: Sequence[torch.Tensor],
        *,
        limit: float,
    ) -> None:
        self.program, self.backward, self.limit = program, backward, limit
        self._start = [tensor.clone() for tensor in program.mutated]
        wants = (False,) * len(inputs) if backward is None else backward.wanted.inputs
        self._take(
            [x.detach().contiguous().requires_grad_(wanted) for x, wanted in zip(inputs, wants, strict=True)]
        )
        self._cotangents: dict[int, torch.Tensor] = {}

    def _take(self, inputs: list[torch.Tensor]) -> None:
        self.inputs = inputs
        self._leaves = [x for x in inputs if x.requires_grad]
        if self.backward is not None:
            self._leaves += self.backward.state

    def __call__(self) -> tuple[list[torch.Tensor], Sequence[torch.Tensor | None]]:
        """Run once, forward and backward; results, and gradients of what requires one."""
        if self.backward is None:
            with torch.no_grad():
                return self.program(self.inputs), ()
        with torch.enable_grad():
            results = self.backward.run(self.program, self.inputs)
            flowing = [i for i in self.backward.record.cotangents if results[i].requires_grad]
            if not flowing:
                return results, ()
            gradients = torch.autograd.grad(
                [results[i] for i in flowing],
                self._leaves,
                [self._cotangent(i, results[i]) for i in flowing],
                allow_unused=True,
            )
        return results, gradients

    def reset(self) -> None:
        """Put back what calls have changed."""
        with torch.no_grad():
            for tensor, start in zip(self.program.mutated, self._start, strict=True):
                tensor.copy_(start)

    def difference(self, other: ProgramRun) -> str:
        """The result that is furthest from another run's, in a sentence; empty where all are near."""
        found = largest_difference(self.values, other.values, self.limit, moved=lambda: other.moved)
        return "" if found is None else f"{found.array} {found.sentence}"

    @cached_property
    def values(self) -> dict[str, torch.Tensor]:
        """Results, gradients and what is written in place, of a call with a seed of its own."""
        return self._seen()

    @cached_property
    def moved(self) -> dict[str, torch.Tensor]:
        """`values` of inputs that are up to one rounding off: how much the network makes of so little."""
        given = self.inputs
        generator = torch.Generator().manual_seed(_SEED)
        self._take([_rounded(x.detach(), generator).requires_grad_(x.requires_grad) for x in given])
        try:
            return self._seen()
        finally:
            self._take(given)

    def _seen(self) -> dict[str, torch.Tensor]:
        self.reset()
        torch.manual_seed(_SEED)
        results, gradients = self()
        named = {f"{i} {t.name}": x for i, (t, x) in enumerate(zip(self._records, results, strict=False))}
        named |= {f"g gradient {i}": g for i, g in enumerate(gradients) if g is not None}
        mutated = zip(self.program.manifest.mutated, self.program.mutated, strict=True)
        named |= {f"m {key}": tensor.clone() for key, tensor in mutated}
        self.reset()
        return {name: tensor.detach() for name, tensor in named.items()}

    @property
    def _records(self) -> tuple[TensorRecord, ...]:
        count = None if self.backward is None else self.backward.record.results
        return self.program.manifest.outputs[:count]

    def profile(self, fewest: int = _FEWEST_RUNS, patience_s: float = _PATIENCE_S) -> list[float]:
        """Microseconds of each step, forward then backward: the least of some runs.

        Args:
            fewest: runs of each pass.
            patience_s: after which no more run of a pass begins.
        """
        self.reset()
        try:
            with torch.no_grad():
                inputs = [x.detach() for x in self.inputs]
                found = _least(lambda: self.program.profile(inputs), fewest, patience_s)
                if self.backward is not None:
                    behind, given = self.backward.program, self._given(self.backward, inputs)
                    found += _least(lambda: behind.profile(given), fewest, patience_s)
        finally:
            self.reset()
        return found

    def steps_us(self, call_us: float) -> list[float]:
        """Microseconds of each step, which are no more in all than those of a call.

        Steps that are timed one by one may be disturbed for as long as that takes. Where they seem to take
        longer than the call that they make up, they are timed again, and then scaled.

        Args:
            call_us: of a call.
        """
        found = self.profile()
        for _ in range(_TIMED_AGAIN):
            if sum(found) <= _DISTURBED * call_us:
                break
            found = [min(pair) for pair in zip(found, self.profile(), strict=True)]
        excess = sum(found) / call_us
        return [us / excess for us in found] if excess > 1 else found

    def call_us(self) -> float:
        """Microseconds of a call: the least of some runs."""
        self.reset()

        def timed() -> list[float]:
            start = time.perf_counter()
            self()
            return [(time.perf_counter() - start) * 1e6]

        (found,) = _least(timed)
        self.reset()
        return found

    def around_us(self) -> float:
        """Microseconds of a call that are in no step: the least of some runs, each beside its own steps.

        The least time of a call and the least times of its steps are of different runs, and what disturbs all
        calls, but not each step of all, is no time between steps.
        """
        self.reset()
        programs = [self.program, *([] if self.backward is None else [self.backward.program])]

        def timed() -> list[float]:
            with ExitStack() as stack:
                steps = [stack.enter_context(one.steps_timed()) for one in programs]
                start = time.perf_counter()
                self()
                taken_us = (time.perf_counter() - start) * 1e6
            return [taken_us - sum(map(sum, steps))]

        (found,) = _least(timed)
        self.reset()
        return max(found, 0.0)

    def _given(self, backward: BackwardPass, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the backward program takes: cotangents, what was saved, and what it reads besides."""
        record = backward.record
        read = [
            inputs[place] if isinstance(place, int) else backward.read[place] for _, place in record.reads
        ]
        read = [tensor.detach().clone() for tensor in read]
        outputs = self.program(inputs)
        cotangents = [self._cotangent(i, outputs[i]) for i in record.cotangents]
        return [x.contiguous() for x in (*cotangents, *(outputs[i] for i in record.saved), *read)]

    def _cotangent(self, place: int, result: torch.Tensor) -> torch.Tensor:
        if place not in self._cotangents:
            generator = torch.Generator().manual_seed(_SEED + place)
            drawn = torch.randn(result.shape, generator=generator)
            self._cotangents[place] = drawn.to(result.dtype)
        return self._cotangents[place]


def own_state(
    state: Mapping[str, torch.Tensor], mutated: Iterable[str], requiring: Iterable[str] = ()
) -> dict[str, torch.Tensor]:
    """The tensors that a run is bound to: those of a module, without their hooks and gradients.

    Args:
        mutated: keys of those that the program changes, which are copied.
        requiring: keys of those that gradients are wanted of.
    """
    copied, wanted = set(mutated), set(requiring)
    changing = {id(state[key]) for key in copied if key in state}
    made: dict[int, torch.Tensor] = {}  # several keys of one tensor stay one tensor
    for key, tensor in state.items():
        if id(tensor) not in made:
            own = tensor.detach()
            made[id(tensor)] = own.clone() if id(tensor) in changing else own
        if key in wanted:
            made[id(tensor)].requires_grad_()
    return {key: made[id(tensor)] for key, tensor in state.items()}


@contextmanager
def undisturbed() -> Generator[None]:
    """Keep torch's generator as it is, and hooks on saved tensors out of what is measured."""
    with torch.random.fork_rng(devices=()), unhooked():
        yield


@contextmanager
def unhooked() -> Generator[None]:
    """Keep hooks on saved tensors out, by some that do nothing: each tensor that is saved calls them."""
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield


def _least(
    run: Callable[[], list[float]], fewest: int = _FEWEST_RUNS, patience_s: float = _PATIENCE_S
) -> list[float]:
    """The least of some runs, number by number."""
    end, found = time.perf_counter() + patience_s, [run()]
    while len(found) < fewest or (time.perf_counter() < end and len(found) < _MOST_RUNS):
        found.append(run())
    return [min(times) for times in zip(*found, strict=True)]


def _rounded(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each number up to one rounding off, up or down; what is whole stays."""
    if not tensor.is_floating_point():
        return tensor
    drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return tensor * (1 + torch.finfo(tensor.dtype).eps * drawn).to(tensor)
