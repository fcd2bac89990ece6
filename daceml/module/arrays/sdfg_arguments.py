"""From the arguments of a call to those of a DaCe program: sizes, memory, and what may be written to."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dace
import torch
from dace import symbolic
from dace.data import Array, Data, Scalar

from daceml.errors import BackwardUnavailableError, CallError, ConfigurationError
from daceml.module.arrays.array_kinds import to_tensor, write_problem
from daceml.module.arrays.call_inputs import by_name, not_plain
from daceml.module.arrays.dlpack import NotAnArrayError
from daceml.runtime.torch_types import DTYPES
from daceml.sdfg.element_codes import TORCH_CODES

_ON_DEVICE = dace.StorageType.GPU_Global
# C has no complex numbers or halves by value, or not those of Python.
_NUMBERS = TORCH_CODES.keys() - {dace.float16, dace.bfloat16, dace.complex64, dace.complex128}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The arguments of one call.

    Attributes:
        arguments: name -> tensor or number, in the order of the program's C function.
        made: those of the program's outputs that the caller left out.
        written: the caller's tensors that the program writes to.
    """

    arguments: dict[str, Any]
    made: dict[str, torch.Tensor]
    written: tuple[torch.Tensor, ...]


class Signature:
    """What a DaCe program takes.

    Args:
        sdfg: any program.
        outputs: arrays that calls may leave out, beside those that the program returns.
    Raises:
        ConfigurationError: an argument that is neither an array nor a number, or no such output.
    """

    def __init__(self, sdfg: dace.SDFG, outputs: Sequence[str]) -> None:
        self.program = sdfg.name
        taken: dict[str, Data] = dict(sdfg.arglist())
        self.order = tuple(sdfg.signature_arglist(with_types=False))
        self.symbols = frozenset(taken.keys() - sdfg.arrays.keys())
        returned = sorted((a for a in taken if a.startswith("__return")), key=lambda a: (len(a), a))
        self.outputs = tuple(dict.fromkeys((*returned, *outputs)))
        first = [*sdfg.arg_names, *(a for a in self.order if a not in (*sdfg.arg_names, *self.outputs))]
        self.names = tuple(a for a in dict.fromkeys((*first, *self.outputs)) if a in taken)
        self.arrays = {a: d for a, d in taken.items() if isinstance(d, Array)}
        self.numbers = {a: d for a, d in taken.items() if isinstance(d, Scalar)}
        self.written = frozenset(sdfg.read_and_write_sets()[1]) & self.arrays.keys()
        self._check(taken, outputs)

    def __str__(self) -> str:
        shown = (
            f"{a}: {self.arrays[a].dtype.to_string()} [{', '.join(map(str, self.arrays[a].shape))}]"
            if a in self.arrays
            else f"{a}: {self.numbers[a].dtype.to_string()}"
            for a in self.names
        )
        return f"{self.program}({', '.join(shown)})"

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Bound]:
        """The caller's values by name, and the program's arguments.

        Raises:
            CallError: what does not fit, by name.
            BackwardUnavailableError: a tensor that requires a gradient, while gradients are enabled.
        """
        values = by_name(self.program, self.names, args, kwargs, optional=(*self.symbols, *self.outputs))
        numbers = {a: self._number(a, values[a]) for a in self.numbers if a in values}
        tensors = {a: self._tensor(a, values[a]) for a in self.arrays if a in values}
        sizes = self._sizes(tensors, {a: n for a, n in numbers.items() if a in self.symbols})
        for array, tensor in tensors.items():
            tensors[array] = self._laid_out(array, tensor, sizes)
        self._check_overlaps(tensors)
        made = {a: self._made(a, sizes) for a in self.outputs if a not in values}
        known = {**sizes, **numbers, **tensors, **made}
        written = tuple(t for a, t in tensors.items() if a in self.written)
        return values, Bound(arguments={a: known[a] for a in self.order}, made=made, written=written)

    def in_c(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The arguments as ctypes has them."""
        return [
            ctypes.c_void_p(value.data_ptr())
            if isinstance(value, torch.Tensor)
            else self.numbers[name].dtype.as_ctypes()(value)
            for name, value in arguments.items()
        ]

    def _number(self, name: str, value: Any) -> Any:
        dtype = DTYPES[TORCH_CODES[self.numbers[name].dtype]]
        tensor = self._read(name, value, dtype)
        if tensor.dtype is not dtype or tensor.numel() != 1:
            raise self._misfit(
                name,
                f"is {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}",
                "pass one number of that type",
            )
        return tensor.item()

    def _tensor(self, name: str, value: Any) -> torch.Tensor:
        desc = self.arrays[name]
        dtype = DTYPES[TORCH_CODES[desc.dtype]]
        tensor = self._read(name, value, dtype)
        if problem := not_plain(tensor):
            raise self._misfit(name, *problem)
        if tensor.dtype is not dtype:
            given = str(tensor.dtype).removeprefix("torch.")
            raise self._misfit(name, f"has element type {given}", f"convert it to {desc.dtype.to_string()}")
        device = "cuda" if desc.storage == _ON_DEVICE else "cpu"
        if tensor.device.type != device:
            raise self._misfit(name, f"lies on {tensor.device}, the program wants {device}", "move it there")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise BackwardUnavailableError(
                f"{self.program} was called with {name}, which requires a gradient",
                why="a DaCe program is not part of autograd's graph",
                fix="call it under torch.no_grad(), or pass tensor.detach(); "
                "add_backward_pass gives gradients",
            )
        return tensor.reshape(1) if tensor.dim() == 0 and len(desc.shape) == 1 else tensor

    def _read(self, name: str, value: Any, dtype: torch.dtype) -> torch.Tensor:
        try:
            tensor = to_tensor(value, dtype)
        except NotAnArrayError as error:
            raise self._misfit(name, error.what, error.fix) from error
        if name in self.written and (problem := write_problem(value, tensor)):
            raise self._misfit(name, f"is written to, and {problem}", "pass a writable contiguous copy")
        return tensor

    def _sizes(self, tensors: Mapping[str, torch.Tensor], given: Mapping[str, Any]) -> dict[str, int]:
        """Symbol -> value; those that are a dimension of some array follow from its shape."""
        sizes = dict(given)
        for array, tensor in tensors.items():
            for wanted, extent in zip(self.arrays[array].shape, tensor.shape, strict=False):
                if symbolic.issymbolic(wanted) and str(wanted) in self.symbols:
                    sizes.setdefault(str(wanted), extent)
        if unknown := sorted(self.symbols - sizes.keys()):
            raise CallError(
                f"{self.program} was called without the size {unknown[0]}",
                where=str(self),
                why="no array that was passed has a dimension of that size alone",
                fix=f"pass it by name: {unknown[0]}=…",
            )
        return sizes

    def _laid_out(self, name: str, tensor: torch.Tensor, sizes: Mapping[str, int]) -> torch.Tensor:
        """The tensor in the program's strides; one that is only read is copied where it has others."""
        shape, strides = self._layout(name, sizes)
        if tuple(tensor.shape) != shape:
            raise self._misfit(
                name, f"has shape {tuple(tensor.shape)}, here it is {shape}", "pass an array of that shape"
            )
        lazy = tensor.is_conj() or tensor.is_neg()
        pairs = zip(shape, tensor.stride(), strides, strict=True)
        fits = tensor.numel() == 0 or all(extent == 1 or own == wanted for extent, own, wanted in pairs)
        if fits and not lazy:
            return tensor
        if name in self.written:
            raise self._misfit(
                name, f"is written to with strides {strides} and has {tensor.stride()}",
                "pass a contiguous copy",
            )  # fmt: skip
        return tensor.new_empty_strided(shape, strides).copy_(tensor)

    def _made(self, name: str, sizes: Mapping[str, int]) -> torch.Tensor:
        desc = self.arrays[name]
        shape, strides = self._layout(name, sizes)
        device = "cuda" if desc.storage == _ON_DEVICE else "cpu"
        dtype = DTYPES[TORCH_CODES[desc.dtype]]
        return torch.empty_strided(shape, strides, dtype=dtype, device=device).zero_()

    def _layout(self, name: str, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        desc, known = self.arrays[name], dict[Any, Any](sizes)
        shape = tuple(int(symbolic.evaluate(extent, known)) for extent in desc.shape)
        return shape, tuple(int(symbolic.evaluate(step, known)) for step in desc.strides)

    def _check_overlaps(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Refuse arrays that share memory where one is written: generated code relies on that."""
        spans = {a: _span(t) for a, t in tensors.items()}
        for one in self.written & tensors.keys():
            for other in tensors.keys() - {one}:
                first, last = max(spans[one][0], spans[other][0]), min(spans[one][1], spans[other][1])
                allowed = self.arrays[one].may_alias and self.arrays[other].may_alias
                if first < last and not allowed:
                    raise self._misfit(
                        one, f"is written to and shares memory with {other}", f"pass a copy of {other}"
                    )

    def _misfit(self, name: str, what: str, fix: str) -> CallError:
        return CallError(f"argument {name!r} of {self.program} {what}", where=str(self), fix=fix)

    def _check(self, taken: Mapping[str, Data], outputs: Sequence[str]) -> None:
        for name, desc in taken.items():
            kind = type(desc).__name__
            known = TORCH_CODES if type(desc) is Array else _NUMBERS if type(desc) is Scalar else ()
            if desc.dtype not in known or (type(desc) is Array and any(desc.offset)):
                raise ConfigurationError(
                    f"{self.program} cannot be called through arrays",
                    where=f"argument {name}",
                    why=f"it is a {kind} of {desc.dtype.to_string()}; arrays and numbers can be passed",
                    fix="call the SDFG itself",
                )
        if unknown := [a for a in outputs if a not in self.arrays]:
            raise ConfigurationError(
                f"{self.program} has no output {unknown[0]!r}",
                why=f"its arrays are {', '.join(sorted(self.arrays)) or 'none'}",
                fix="name arrays that the program writes",
            )
        if unwritten := [a for a in outputs if a not in self.written]:
            raise ConfigurationError(
                f"{self.program} does not write {unwritten[0]}",
                why=f"it writes {', '.join(sorted(self.written)) or 'nothing'}",
                fix="name arrays that the program writes",
            )


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First address of a tensor's elements, and the first one behind them."""
    if tensor.numel() == 0:
        return 0, 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
