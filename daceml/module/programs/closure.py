"""The tensors of a module as arrays in the closure of DaCe programs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from dace import data, dtypes
from dace.frontend.python.common import SDFGClosure

from daceml.autodiff.dace_programs import ClosureTensor
from daceml.frontend.onnx_import.identifiers import identifier
from daceml.runtime.torch_types import DTYPES
from daceml.sdfg.element_codes import TORCH_CODES

TORCH_TYPES: dict[Any, torch.dtype] = {dtype: DTYPES[code] for dtype, code in TORCH_CODES.items()}
_DACE_TYPES = {there: here for here, there in TORCH_TYPES.items()}
_numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))


class HasClosure(Protocol):
    """A module or model as programs call it."""

    def closure(self) -> dict[str, ClosureTensor]:
        """Name -> tensor that a call reads or writes besides its arguments."""
        ...


@runtime_checkable
class CalledInPrograms(Protocol):
    """A module or model that DaCe programs may call."""

    @property
    def in_programs(self) -> HasClosure: ...


def own_prefix(name: str) -> str:
    """What names of a module's arrays begin with; a second module of the same name gets a number."""
    stem = identifier(name).lower()
    number = next(_numbers[stem])
    return stem if number == 1 else f"{stem}_{number}"


def describe(tensor: torch.Tensor) -> data.Array:
    """DaCe's descriptor of a tensor; rank 0 is an array of one element."""
    dtype = _DACE_TYPES[tensor.dtype]
    on_device = tensor.device.type == "cuda"
    storage = dtypes.StorageType.GPU_Global if on_device else dtypes.StorageType.Default
    if tensor.dim() == 0:
        return data.Array(dtype, (1,), storage=storage)
    return data.Array(dtype, tuple(tensor.shape), strides=tuple(tensor.stride()), storage=storage)


def held_tensor(
    find: Callable[[], torch.Tensor], *, parameter: bool = False, refusal: Callable[[], str] = lambda: ""
) -> ClosureTensor:
    """A tensor in a closure.

    Args:
        find: the tensor as it is now.
        parameter: whether backward passes add to its `grad`, which they make where there is none.
        refusal: see `ClosureTensor`.
    """
    gradient = ClosureTensor(
        lambda: _gradient(find()),
        lambda: _describe_gradient(find()),
        identity=lambda: ("gradient", id(find())),
    )
    return ClosureTensor(
        find,
        lambda: describe(find()),
        gradient=lambda: gradient if parameter and find().requires_grad else None,
        refusal=refusal,
        identity=lambda: ("tensor", id(find())),
    )


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _describe_gradient(parameter: torch.Tensor) -> data.Array:
    with torch.no_grad():
        held = parameter.grad
        return describe(torch.empty_like(parameter, device="meta") if held is None else held)


def closure_of(tensors: Mapping[str, ClosureTensor], program: SDFGClosure | None) -> SDFGClosure:
    """What a program that calls a module takes from outside.

    Args:
        tensors: of the module, by name.
        program: what is known of the program so far. Of a call in the arguments of another one, as in
            `head(body(x))`, DaCe asks for the outer one only: so all modules that the program names are
            asked here.
    """
    found = dict(tensors)
    for _, other in () if program is None else program.closure_sdfgs.values():
        if isinstance(other, CalledInPrograms):
            found |= other.in_programs.closure()
    closure = SDFGClosure()
    for name, tensor in found.items():
        closure.closure_arrays[name] = (name, tensor.descriptor, lambda t=tensor: t, False)
    return closure
