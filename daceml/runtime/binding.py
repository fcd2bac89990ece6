"""A stored program bound to weights as they are now, under a number that the launcher knows."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import CallError
from daceml.runtime import launcher
from daceml.runtime.records.manifest import Manifest, TensorRecord
from daceml.runtime.torch_types import DTYPES
from daceml.runtime.weight_preparation import prepared_weights

if TYPE_CHECKING:
    from daceml.runtime.stored_program import StoredProgram


class Binding:
    """What the launcher runs; it is forgotten with this object.

    Attributes:
        number: by which `daceml::call` knows it.
        never: whether its limits are such that no input is within them.
    """

    def __init__(
        self,
        stored: StoredProgram,
        constants: Sequence[torch.Tensor],
        state: Mapping[str, torch.Tensor],
        device: torch.device,
    ) -> None:
        """Prepare arrays, and share them, the constants and the weights with the launcher.

        Args:
            state: state_dict key -> the very tensors of the module.
            device: where all of them lie.
        Raises:
            CallError: a weight that the program would misread.
        """
        self.manifest = stored.manifest
        records = self.manifest.prepared
        prepared = prepared_weights(records, state)
        read = (record for record in records if record.read)
        limits = (t for t, record in zip(prepared, read, strict=True) if record.function == "limit")
        self.never = any(float(limit) < 0 for limit in limits)
        self._keep = [*constants, *prepared]
        try:
            self.number = launcher.bind(
                [*(state[key] for key in self.manifest.weights), *self._keep],
                stored.folder / "program.so",
                functools.partial(empty_outputs, self.manifest, device=device),
            )
        except RuntimeError as error:
            raise CallError(
                "a weight does not fit the compiled program",
                why=self.named(error),
                fix="make it a tensor in row-major order, of the type and on the device that it was compiled"
                " for:\n"
                "module.to(memory_format=torch.contiguous_format), parameter.data = parameter.contiguous()",
            ) from error
        self._fallback = self._set_fallback(stored)
        # not at the end of the process: other functions that run then may call the program
        weakref.finalize(self, launcher.release, self.number).atexit = False

    def named(self, error: BaseException) -> str:
        """The launcher's message, with names instead of numbers."""
        keys = [*self.manifest.weights, *(f"constant {i}" for i in range(len(self._keep)))]
        names = {"weight": keys, "input": [record.name for record in self.manifest.inputs]}
        line = str(error).removeprefix("daceml: ").splitlines()[0]
        return re.sub(r"\b(weight|input) (\d+)", lambda m: f"{m[1]} {names[m[1]][int(m[2])]!r}", line)

    def _set_fallback(self, stored: StoredProgram) -> Any:
        if not self.manifest.fallbacks:
            return None
        from daceml.runtime.fallback import fallback_function

        function = fallback_function(stored)
        launcher.set_fallback(self.number, function)
        return function


def empty_outputs(
    manifest: Manifest, inputs: Sequence[torch.Tensor], *, device: torch.device
) -> list[torch.Tensor]:
    """Tensors of the shapes and types that a program gives for these inputs, which may be fake ones."""
    sizes: dict[str, Any] = {}
    for tensor, record in zip(inputs, manifest.inputs, strict=True):
        named = zip(record.shape, tensor.shape, strict=True)
        sizes |= {s: n for s, n in named if isinstance(s, str) and s.isidentifier()}
    return [_empty_output(record, sizes, device) for record in manifest.outputs]


def _empty_output(record: TensorRecord, sizes: dict[str, Any], device: torch.device) -> torch.Tensor:
    shape = [evaluate_size(s, sizes) if isinstance(s, str) else s for s in record.shape]
    return torch.empty(shape, dtype=DTYPES[record.dtype], device=device)


def evaluate_size(expression: str, sizes: Mapping[str, Any]) -> Any:
    """The size that a manifest's text stands for."""
    return eval(expression, {"__builtins__": {}}, {**_FUNCTIONS, **sizes})


_FUNCTIONS: dict[str, Any] = {
    "int_floor": lambda a, b: a // b,
    "Max": max,
    "Min": min,
    "Abs": abs,
}
