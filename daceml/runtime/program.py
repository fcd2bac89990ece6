"""A stored program, and a program bound to a module's weights: what a call finally reaches."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch

from daceml.errors import (
    ExecutionError,
    MistracedOperatorError,
    OutOfMemoryError,
    PositionError,
    StaleWeightError,
    first_line,
)
from daceml.runtime import launcher
from daceml.runtime.binding import Binding, empty_outputs
from daceml.runtime.cuda_graphs import Replays
from daceml.runtime.memory_errors import memory_error
from daceml.runtime.preparation_renewal import Renewals
from daceml.runtime.records.manifest import OTHER_WEIGHTS, OUTSIDE_LIMITS
from daceml.runtime.stored_program import StoredProgram
from daceml.runtime.torch_fallback import taken_error
from daceml.runtime.torch_types import DTYPES

log = logging.getLogger(__name__)

CPU = torch.device("cpu")


_WORTH_RELEASING_BYTES = 1 << 20
"""Inputs that nobody else reads are released during a call if they are larger than this in all. For smaller
ones that takes longer than it saves."""

_FIX_TENSOR = "mend the tensor that is named: shape, type and layout must be those of the compilation"
_MISFIT = (ExecutionError, _FIX_TENSOR)
_REFUSALS: dict[str, tuple[type[ExecutionError], str]] = {
    "weight ": (StaleWeightError, _FIX_TENSOR),
    PositionError.reason: (PositionError, PositionError.advice),
    MistracedOperatorError.reason: (MistracedOperatorError, MistracedOperatorError.advice),
    "the launch of kernel ": (
        ExecutionError,
        "run the call once more with CUDA_LAUNCH_BLOCKING=1, and report both messages",
    ),
}
"""How the reason of a refusal starts -> its error, and how to fix it."""


class Program:
    """A program with its weights. Calls are reentrant: threads may share it.

    Args:
        state: state_dict key -> the very tensors of the module, which the program shares.
        device: where they lie, and the inputs.
    Raises:
        CallError: a weight that the program would misread.
    Attributes:
        conditional: whether it gives up for some inputs or weights.
        substitute: makes the program that runs where this one gives up, of weights as they are at each call;
            None where nobody has said how.
    """

    substitute: Callable[[], Program] | None = None

    def __init__(
        self, stored: StoredProgram, state: Mapping[str, torch.Tensor], device: torch.device = CPU
    ) -> None:
        self.stored = stored
        self.manifest = stored.manifest
        functions = {record.function for record in self.manifest.prepared}
        self.conditional = not functions.isdisjoint(("limit", "fingerprint"))
        self.mutated = [state[key] for key in self.manifest.mutated]
        self._device = device
        self._constants = [constant.to(device) for constant in stored.constants()]
        self._binding = Binding(stored, self._constants, state, device)
        # those of a program that never looks at its weights again need not be kept
        watched = "fingerprint" in functions
        self._state = {key: state[key] for key in self.manifest.weights} if watched else {}
        self._replays: Replays | None = None
        self._renewals = Renewals()
        self._substituted: Program | None = None
        self._giving_up = threading.Lock()
        self._all_reduce: object = None
        self._call = torch.ops.daceml.call.default
        self._call_into = torch.ops.daceml.call_into.default
        self._hold = torch.ops.daceml.hold.default
        self._call_held = torch.ops.daceml.call_held.default

    @property
    def number(self) -> int:
        """By which `daceml::call` knows it now; another one when weights were found to be others."""
        return self._binding.number

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its own, and that of what runs where it gives up, if that was made."""
        return (self.number, *(self._substituted.numbers if self._substituted is not None else ()))

    def __call__(
        self, inputs: Sequence[torch.Tensor], last_use: list[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        """Run once.

        Args:
            inputs: contiguous tensors on the program's device, of the shapes and types in `manifest.inputs`.
            last_use: the inputs that follow. The list is emptied, so that a tensor that nobody else holds is
                released after its last reader and not at the end of the call.
        Returns:
            fresh tensors; buffers in `manifest.mutated` have been updated.
        Raises:
            StaleWeightError: a weight has another type, size or layout by now.
            OutOfMemoryError: there is not enough memory; later calls are not concerned.
            PositionError: an index is past the ends of a dimension.
            ExecutionError: an input that does not fit, or an operator that failed.
            Exception: what an operator of torch raised that the program calls by name.
        A program that relies on limits, and finds an element outside, lets its substitute run; one whose
        weights are others than those of which it prepared arrays prepares them again.
        """
        binding = self._binding
        if binding.never or (self.conditional and torch._C._len_torch_dispatch_stack()):  # pyright: ignore
            return self._substitute()(inputs, last_use)
        try:
            outputs = self._run(binding, inputs, [] if last_use is None else last_use)
        except RuntimeError as error:
            return self._instead(error, binding, inputs, last_use)
        self._renewals.calls += 1
        return outputs

    @property
    def changed(self) -> frozenset[str]:
        """What a call changes: keys of the module's tensors, and names of inputs."""
        outputs = (output.name.partition("::next") for output in self.manifest.outputs)
        return frozenset((*self.manifest.mutated, *(name for name, mark, _ in outputs if mark)))

    @cached_property
    def input_dtypes(self) -> tuple[torch.dtype, ...]:
        """Of the inputs, in their order."""
        return tuple(DTYPES[record.dtype] for record in self.manifest.inputs)

    @property
    def is_one_call(self) -> bool:
        """Whether a call is that of one operator, see `call_once`: no condition, no buffer, no replay."""
        return not (self.conditional or self.mutated or self._replays is not None)

    def call_once(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Run once as `__call__` does, without its questions; None where the inputs or weights do not fit.

        Nothing has run then. For programs for which `is_one_call` is true, outside torch's modes.
        """
        try:
            return self._call(inputs, self._binding.number)
        except RuntimeError as error:
            if str(error).startswith(("daceml: input ", "daceml: weight ")):
                return None
            return self._instead(error, self._binding, inputs)

    def _instead(
        self,
        error: RuntimeError,
        binding: Binding,
        inputs: Sequence[torch.Tensor],
        last_use: list[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """What runs instead of a call that has failed.

        Raises:
            RuntimeError: nothing does; the error, in words of this program where it is its own.
        """
        if not str(error).startswith("daceml: "):
            if (short := self._short_of_memory(first_line(error))) is not None:
                raise short from error
            raise error
        if (failure := taken_error()) is not None:
            raise failure from None  # of an operator of torch, as eager PyTorch raises it
        why = binding.named(error)
        if why == OUTSIDE_LIMITS:
            return self._substitute()(inputs, last_use)
        if why == OTHER_WEIGHTS:
            return self._for_other_weights(binding)(inputs, last_use)
        if (short := self._short_of_memory(why)) is not None:
            raise short from error
        kind, fix = next((row for start, row in _REFUSALS.items() if why.startswith(start)), _MISFIT)
        raise kind(
            "the compiled program refused a call", where=str(self.stored.folder), why=why, fix=fix
        ) from error

    def _short_of_memory(self, why: str) -> OutOfMemoryError | None:
        return memory_error(
            why,
            what="there is not enough memory for a call of the compiled program",
            where=str(self.stored.folder),
            device=self._device,
        )

    def _for_other_weights(self, found: Binding) -> Program:
        """What runs where a binding has found that its weights have changed."""
        with self._giving_up:
            if self._binding is not found:
                return self
            if self.substitute is None or self._renewals.due():
                log.info("weights have changed: what was prepared of them is made again")
                self._binding = Binding(self.stored, self._constants, self._state, self._device)
                return self
        return self._substitute()

    def _substitute(self) -> Program:
        """The program without conditions, made when it is needed first.

        Raises:
            ExecutionError: nobody has said how it is made.
        """
        with self._giving_up:
            if self._substituted is None:
                if self.substitute is None:
                    raise ExecutionError(
                        "the compiled program gave up",
                        where=str(self.stored.folder),
                        why=OUTSIDE_LIMITS,
                        fix="call the module that it was compiled for: it has a program for such inputs",
                    )
                log.info(
                    "a second program, without prepared weights, runs calls with weights that change every "
                    "time, or with values that are NaN, infinite or very large; results stay eager's"
                )
                self._substituted = self.substitute()
            return self._substituted

    def _run(
        self, binding: Binding, inputs: Sequence[torch.Tensor], last_use: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        if torch._C._len_torch_dispatch_stack():  # pyright: ignore
            return self._traced(binding, [*inputs, *last_use])
        if torch._C._is_any_autocast_enabled():  # pyright: ignore
            # a program has its casts in it, and torch's operators would add others
            with torch._C._DisableAutocast():  # pyright: ignore
                return self._run(binding, inputs, last_use)
        outputs: list[torch.Tensor]
        if self._replays is not None:
            given = [*inputs, *last_use]
            last_use.clear()
            outputs = self._replays(
                lambda tensors: self._call(tensors, binding.number),
                given,
                launcher.weight_addresses(binding.number),
            )
        elif sum(x.nbytes for x in last_use) > _WORTH_RELEASING_BYTES:
            held: int = self._hold(last_use)
            last_use.clear()
            outputs = self._call_held(inputs, held, binding.number)
        else:
            outputs = self._call([*inputs, *last_use], binding.number)
            last_use.clear()
        if self.mutated:
            torch.autograd.graph.increment_version(self.mutated)
        return outputs

    def _traced(self, binding: Binding, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The call in a form whose effects whoever traces it can see."""
        if not self.mutated:
            return self._call(inputs, binding.number)
        outputs = empty_outputs(self.manifest, inputs, device=self._device)
        self._call_into(inputs, [*outputs, *self.mutated], binding.number)
        torch.autograd.graph.increment_version(self.mutated)
        return outputs

    def exchange_through(self, function: object) -> None:
        """Let a function run the all-reduces of this program: an `AllReduceFunction` of the launcher."""
        launcher.set_all_reduce(self._binding.number, function)
        self._all_reduce = function  # C keeps no reference

    def use_graphs(self, *, lent: Collection[int] = (), standing: Collection[int] = ()) -> None:
        """From now on, replay what calls launch on a CUDA device.

        Args:
            lent: outputs that stay where the graph writes them, until the next call.
            standing: inputs that are read where they lie, while they stay there.
        """
        self._replays = Replays(lent, standing)

    def profile(self, inputs: Sequence[torch.Tensor], calls: int = 1) -> list[float]:
        """Mean microseconds of each step over some calls."""
        with self.steps_timed() as step_us:
            for _ in range(calls):
                self(inputs)
        return [t / calls for t in step_us][: len(self.manifest.steps)]

    @contextmanager
    def steps_timed(self) -> Generator[ctypes.Array[ctypes.c_double]]:
        """Time each step of calls meanwhile; yields their microseconds, which each call adds to."""
        count = max(len(self.manifest.steps), 1)
        step_us = (ctypes.c_double * count)()
        binding = self._binding
        replays, self._replays = self._replays, None  # of a graph nobody sees the steps
        launcher.set_profile(binding.number, step_us)
        try:
            yield step_us
        finally:
            launcher.set_profile(binding.number, None)
            self._replays = replays
