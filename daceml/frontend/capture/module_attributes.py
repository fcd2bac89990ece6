"""What a module holds besides its registered parameters, buffers and submodules.

Attributes are any Python values: a config object, a list of tables, a layer that hides in a list. Forward may
read all of it, so all of it decides what a trace says. Tensors among them need not be constants of a program:
it can read them where they are, as it reads parameters.
"""

from __future__ import annotations

import argparse
import enum
import functools
import sys
import types
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from daceml.frontend.capture.call_device import DEVICE_TYPES
from daceml.frontend.capture.hook_state import hook_variables

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FRAMEWORK = frozenset(nn.Module().__dict__) - {"training"}
"""What nn.Module itself keeps in every module; of these only the mode reaches an exported graph."""

MEMBERS = ("_parameters", "_buffers", "_modules")
"""The registries of nn.Module."""

_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_WITHOUT_PARTS = (
    bool, int, float, complex, str, bytes, type(None), type, enum.Enum, torch.Tensor, np.ndarray,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip


def walk(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """A value and everything inside it, each object once, with paths as a user would write them.

    Args:
        seen: ids of the objects that were met before; added to.
    """
    yield path, value
    if isinstance(value, _WITHOUT_PARTS) or id(value) in seen:
        return
    seen.add(id(value))
    for suffix, part in parts(value):
        yield from walk(path + suffix, part, seen)


def parts(value: Any) -> Iterable[tuple[str, Any]]:
    """The values directly inside a value, and how each is reached from it."""
    if isinstance(value, dict):
        entries: dict[Any, Any] = value
        return [(f"[{key!r}]", part) for key, part in entries.items()]
    if isinstance(value, list | tuple | deque):
        return [(f"[{i}]", part) for i, part in enumerate(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, nn.Module):
        own = value.__dict__
        members = [own, *(own[kind] for kind in MEMBERS)]
        return [(f".{n}", part) for held in members for n, part in held.items() if n not in FRAMEWORK]
    if isinstance(value, types.MethodType):
        return [(".__self__", value.__self__)]
    if isinstance(value, functools.partial):
        return [(".args", value.args), (".keywords", value.keywords), (".func", value.func)]
    if is_plain_object(value):
        return [(f".{name}", part) for name, part in attributes(value).items()]
    return ()


def is_plain_object(value: Any) -> bool:
    """Whether a value is an object of the user's making, whose attributes are all there is to it.

    Objects of the standard library and of torch keep caches and handles, which say nothing about a trace.
    """
    if isinstance(value, (*_WITHOUT_PARTS, nn.Module)):
        return False
    return isinstance(value, _NAMESPACES) or is_users(type(value))


def is_users(kind: type) -> bool:
    """Whether a class comes from outside the standard library, torch and numpy."""
    root = kind.__module__.partition(".")[0]
    return root == "__main__" or root not in (*sys.stdlib_module_names, "torch", "numpy", "daceml")


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots included."""
    found = dict(getattr(value, "__dict__", {}))
    return found | {name: getattr(value, name) for name in slots(value) if hasattr(value, name)}


def slots(value: Any) -> list[str]:
    """The names of an object's slots."""
    declared = [kind.__dict__.get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for some in declared for name in ((some,) if isinstance(some, str) else some)]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def held_values(module: nn.Module, *, hooks: bool = True) -> Iterator[tuple[str, Any]]:
    """Every value that attributes of a module and its registered submodules lead to, and hooks of these.

    Args:
        hooks: whether values that hooks lead to are among them.
    """
    seen = {id(child) for child in module.modules()}
    for path, child in module.named_modules():
        for name, value in list(child.__dict__.items()):
            if name not in FRAMEWORK:
                yield from walk(f"{path}.{name}" if path else name, value, seen)
    for name, read in hook_variables(module) if hooks else ():
        yield from walk(name, read(), seen)


@contextmanager
def unchanged_tensors(module: nn.Module) -> Generator[None]:
    """Give tensors that the module holds their values back afterwards: torch.export really changes them."""
    held = [value for _, value in held_values(module) if _is_memory(value) and not value.is_inference()]
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in held]
    try:
        yield
    finally:
        for tensor, version, value in before:
            if tensor._version != version:
                tensor.detach().copy_(value)


def adopt(program: ExportedProgram, module: nn.Module) -> dict[str, torch.Tensor]:
    """Make tensors that the module holds buffers of the program, instead of constants. Mutates the program.

    Returns:
        the tensors, by the names that the program gives them.
    """
    from torch.export.graph_signature import InputKind, TensorArgument

    constants = [s for s in program.graph_signature.input_specs if s.kind is InputKind.CONSTANT_TENSOR]
    if not constants:
        return {}
    tensors = {_place(value): value for _, value in held_values(module) if _is_memory(value)}
    elsewhere = {p.device for p in module.parameters()} - {torch.device("cpu")}
    adopted: dict[str, torch.Tensor] = {}
    for spec in constants:
        constant = program.constants.get(spec.target or "")
        if elsewhere and isinstance(constant, torch.Tensor) and constant.dim() == 0:
            continue  # numbers stay on the processor when a module moves, and torch takes them as they are
        if _is_memory(constant) and isinstance(spec.arg, TensorArgument) and _place(constant) in tensors:
            spec.kind, spec.persistent = InputKind.BUFFER, False
            adopted[str(spec.target)] = tensors[_place(constant)]
    return adopted


def places(program: ExportedProgram) -> Iterator[tuple[str, object]]:
    """Where parameters and buffers of a program lie: two names with one place are one tensor."""
    for name in (*program.graph_signature.parameters, *program.graph_signature.buffers):
        tensor = program.state_dict.get(name, program.constants.get(name))
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            yield name, _place(tensor)


def _is_memory(value: Any) -> bool:
    dense = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel() > 0
    return dense and value.device.type in DEVICE_TYPES


def _place(tensor: Any) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())
