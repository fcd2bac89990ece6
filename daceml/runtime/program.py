"""A stored program, and a program bound to a module's weights: what a call finally reaches."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from daceml.errors import CallError, ExecutionError, StaleWeightError
from daceml.runtime import launcher
from daceml.runtime.frozen import prepared_weights
from daceml.runtime.manifest import OUTSIDE_LIMITS, Manifest, TensorRecord
from daceml.runtime.torch_types import DTYPES

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredProgram:
    """The folder of a compiled program in the cache."""

    folder: Path

    @cached_property
    def manifest(self) -> Manifest:
        """Its interface, steps and costs."""
        return Manifest.load(self.folder)

    def constants(self) -> list[torch.Tensor]:
        """The tensors of `constants.bin`, sharing one buffer."""
        records = self.manifest.constants
        if not records:
            return []
        data = bytearray((self.folder / "constants.bin").read_bytes())
        tensors: list[torch.Tensor] = []
        for record in records:
            count = 1
            for extent in record.shape:
                count *= extent
            dtype = DTYPES[record.dtype]
            flat = (
                torch.frombuffer(data, dtype=dtype, count=count, offset=record.offset_bytes)
                if count
                else torch.empty(0, dtype=dtype)
            )
            tensors.append(flat.reshape(record.shape))
        return tensors

    def bind(self, state: Mapping[str, torch.Tensor]) -> Program:
        """Share a module's parameters and buffers with the program.

        Args:
            state: state_dict key -> the very tensors of the module.
        Raises:
            CallError: a weight that the program would misread.
        """
        return Program(self, state)


class Program:
    """A program with its weights. Calls are reentrant: threads may share it.

    Attributes:
        substitute: makes the program that runs where magnitudes are outside the limits of this one; None
            where this one has none.
    """

    substitute: Callable[[], Program] | None = None

    def __init__(self, stored: StoredProgram, state: Mapping[str, torch.Tensor]) -> None:
        self.stored = stored
        self.manifest = stored.manifest
        weights = [state[key] for key in self.manifest.weights]
        prepared = prepared_weights(self.manifest.prepared, state)
        self._keep = [*stored.constants(), *prepared]
        read = [record for record in self.manifest.prepared if record.read]
        limits = [t for t, record in zip(prepared, read, strict=True) if record.function == "limit"]
        self.limited = bool(limits)
        self._never = any(float(limit) < 0 for limit in limits)
        self._substituted: Program | None = None
        self._substituting = threading.Lock()
        self.mutated = [state[key] for key in self.manifest.mutated]
        try:
            self.number = launcher.bind(
                [*weights, *self._keep], stored.folder / "program.so", self._empty_outputs
            )
        except RuntimeError as error:
            raise CallError(
                "a weight does not fit the compiled program",
                why=self._named(error),
                fix="make it a CPU tensor in row-major order, of the type it was compiled for:\n"
                "module.to(memory_format=torch.contiguous_format), parameter.data = parameter.contiguous()",
            ) from error
        self._fallback = self._set_fallback()
        self._finalizer = weakref.finalize(self, launcher.release, self.number)
        self._call = torch.ops.daceml.call.default
        self._call_into = torch.ops.daceml.call_into.default
        self._hold = torch.ops.daceml.hold.default
        self._call_held = torch.ops.daceml.call_held.default

    def __call__(
        self, inputs: Sequence[torch.Tensor], last_use: list[torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        """Run once.

        Args:
            inputs: contiguous CPU tensors, of the shapes and types in `manifest.inputs`.
            last_use: the inputs that follow. The list is emptied, so that a tensor that nobody else holds is
                released after its last reader and not at the end of the call.
        Returns:
            fresh tensors; buffers in `manifest.mutated` have been updated.
        Raises:
            StaleWeightError: a weight has another type, size or layout by now.
            ExecutionError: an input that does not fit, or an operator that failed.
        A program that relies on limits, and finds an element outside, lets its substitute run.
        """
        if self._never or (self.limited and torch._C._len_torch_dispatch_stack()):  # pyright: ignore
            return self._substitute()(inputs, last_use)
        try:
            return self._run(inputs, [] if last_use is None else last_use)
        except RuntimeError as error:
            if not str(error).startswith("daceml: "):
                raise
            why = self._named(error)
            if why == OUTSIDE_LIMITS:
                return self._substitute()(inputs, last_use)
            kind = StaleWeightError if why.startswith("weight ") else ExecutionError
            raise kind(
                "the compiled program refused a call",
                where=str(self.stored.folder),
                why=why,
                fix="mend the tensor that is named: shape, type and layout must be those of the compilation",
            ) from error

    def _substitute(self) -> Program:
        """The program without limits, made when it is needed first.

        Raises:
            ExecutionError: nobody has said how it is made.
        """
        with self._substituting:
            if self._substituted is None:
                if self.substitute is None:
                    raise ExecutionError(
                        "the compiled program gave up",
                        where=str(self.stored.folder),
                        why=OUTSIDE_LIMITS,
                        fix="call the module that it was compiled for: it has a program for such inputs",
                    )
                log.info("magnitudes are outside the limits of a program: another one runs")
                self._substituted = self.substitute()
            return self._substituted

    def _run(self, inputs: Sequence[torch.Tensor], last_use: list[torch.Tensor]) -> list[torch.Tensor]:
        if torch._C._len_torch_dispatch_stack():  # pyright: ignore
            return self._traced([*inputs, *last_use])
        if last_use:
            held: int = self._hold(last_use)
            last_use.clear()
            outputs: list[torch.Tensor] = self._call_held(inputs, held, self.number)
        else:
            outputs = self._call(inputs, self.number)
        if self.mutated:
            torch.autograd.graph.increment_version(self.mutated)
        return outputs

    def _traced(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The call in a form whose effects whoever traces it can see."""
        if not self.mutated:
            return self._call(inputs, self.number)
        outputs = self._empty_outputs(inputs)
        self._call_into(inputs, [*outputs, *self.mutated], self.number)
        torch.autograd.graph.increment_version(self.mutated)
        return outputs

    def profile(self, inputs: Sequence[torch.Tensor], calls: int = 1) -> list[float]:
        """Mean microseconds of each step over some calls."""
        count = max(len(self.manifest.steps), 1)
        step_us = (ctypes.c_double * count)()
        launcher.set_profile(self.number, step_us)
        try:
            for _ in range(calls):
                self(inputs)
        finally:
            launcher.set_profile(self.number, None)
        return [t / calls for t in step_us][: len(self.manifest.steps)]

    def _empty_outputs(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        sizes: dict[str, Any] = {}
        for tensor, record in zip(inputs, self.manifest.inputs, strict=True):
            sizes |= {
                s: n
                for s, n in zip(record.shape, tensor.shape, strict=True)
                if isinstance(s, str) and s.isidentifier()
            }
        return [self._empty_output(record, sizes, inputs) for record in self.manifest.outputs]

    def _empty_output(
        self, record: TensorRecord, sizes: dict[str, Any], inputs: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        shape = [evaluate_size(s, sizes) if isinstance(s, str) else s for s in record.shape]
        dtype = DTYPES[record.dtype]
        return inputs[0].new_empty(shape, dtype=dtype) if inputs else torch.empty(shape, dtype=dtype)

    def _named(self, error: BaseException) -> str:
        """The launcher's message, with names instead of numbers."""
        keys = [*self.manifest.weights, *(f"constant {i}" for i in range(len(self._keep)))]
        names = {"weight": keys, "input": [record.name for record in self.manifest.inputs]}
        return re.sub(
            r"\b(weight|input) (\d+)", lambda m: f"{m[1]} {names[m[1]][int(m[2])]!r}", _first_line(error)
        )

    def _set_fallback(self) -> Any:
        if not self.manifest.fallbacks:
            return None
        from daceml.runtime.fallback import fallback_function

        function = fallback_function(self.stored)
        launcher.set_fallback(self.number, function)
        return function


def evaluate_size(expression: str, sizes: Mapping[str, Any]) -> Any:
    """The size that a manifest's text stands for."""
    return eval(expression, {"__builtins__": {}}, {**_FUNCTIONS, **sizes})


_FUNCTIONS: dict[str, Any] = {
    "int_floor": lambda a, b: a // b,
    "int_ceil": lambda a, b: -(-a // b),
    "Max": max,
    "Min": min,
    "Mod": lambda a, b: a % b,
}


def _first_line(error: BaseException) -> str:
    return str(error).removeprefix("daceml: ").splitlines()[0]
