"""What a program calls a module with: descriptors and constants become the arguments of a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from dace import data
from dace.frontend.python.common import StringLiteral

from daceml.errors import CallError, SignatureError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.redirected_forward import forward_signature
from daceml.module.programs.closure import TORCH_TYPES

_VARIADIC = 16  # how many arguments a program may pass for `*args`, and how many too many it notices
_EXAMPLE = 5  # size of a symbolic dimension in a trace; each further symbol has the next odd number
_EXTRA = "_superfluous_"


def argument_names(forward: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Names of what a program may pass by position, and of those that are constants of a trace.

    The former end with names for arguments that forward does not take, so that these are noticed.
    """
    names: list[str] = []
    constants: list[str] = []
    for parameter in forward_signature(forward).parameters.values():
        match parameter.kind:
            case parameter.VAR_KEYWORD:
                continue
            case parameter.VAR_POSITIONAL:
                names += [f"{parameter.name}_{i}" for i in range(_VARIADIC)]
            case _:
                names.append(parameter.name)
                if _is_constant(parameter):
                    constants.append(parameter.name)
    return [*names, *superfluous()], constants


def superfluous() -> list[str]:
    """Names for arguments that a callee does not have: DaCe would drop them unseen."""
    return [f"{_EXTRA}{i}" for i in range(_VARIADIC)]


def _is_constant(parameter: inspect.Parameter) -> bool:
    kinds = (bool, int, float, str)
    declared = parameter.annotation in kinds or parameter.annotation in {k.__name__ for k in kinds}
    return declared or type(parameter.default) in kinds


@dataclass(frozen=True, kw_only=True)
class ProgramCall:
    """A call of a module in a program.

    Attributes:
        arguments: what the module is traced with.
        names: of the tensors among them, in their order.
        scalars: names of DaCe scalars.
        sizes: `dynamic_shapes` for the trace; None where every size is a number.
        key: what tells it from other calls.
    """

    arguments: Arguments
    names: tuple[str, ...]
    scalars: tuple[str, ...]
    sizes: dict[str, Any] | None
    key: tuple[Any, ...]


def program_call(
    name: str, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ProgramCall:
    """Read a call as DaCe's frontend describes it.

    Args:
        name: of the module, for messages.
        args, kwargs: descriptors of arrays and scalars, and values of constants.
    Raises:
        SignatureError: arguments that forward does not take.
        CallError: something that is neither an array nor a constant.
    """
    names, _ = argument_names(forward)
    signature = forward_signature(forward)
    if len(args) > 0 and names[len(args) - 1].startswith(_EXTRA):
        raise SignatureError(
            f"{name} was called with too many arguments in a DaCe program",
            where=f"forward{signature}",
            why=f"at least {len(args)} were passed by position",
            fix="pass the arguments that forward takes",
        )
    given = dict(zip(names, args, strict=False))
    if twice := sorted(given.keys() & kwargs.keys()):
        raise SignatureError(
            f"{name} was called with {twice[0]} twice in a DaCe program",
            where=f"forward{signature}",
            why="it was passed by position and by name",
            fix="pass it once",
        )
    dims: dict[str, int] = {}
    positional = [_example(name, n, given[n], dims) for n in names[: len(args)]]
    named = {n: _example(name, n, v, dims) for n, v in kwargs.items()}
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        raise SignatureError(
            f"{name} was called with other arguments in a DaCe program than forward takes",
            where=f"forward{signature}",
            why=str(error),
            fix="pass the arguments that forward takes",
        ) from error
    everything = {**given, **kwargs}
    arguments = Arguments(tuple(positional), named)
    tensors = tuple(n for n, v in everything.items() if isinstance(v, data.Data))
    return ProgramCall(
        arguments=arguments,
        names=tensors,
        scalars=tuple(n for n in tensors if isinstance(everything[n], data.Scalar)),
        sizes=_sizes(signature, everything) if dims else None,
        key=tuple((n, _key(v)) for n, v in everything.items()),
    )


def _key(value: Any) -> Any:
    if isinstance(value, data.Data):
        return type(value).__name__, value.dtype.to_string(), tuple(map(str, value.shape))
    return type(value).__name__, repr(value)


def _example(module: str, name: str, value: Any, dims: dict[str, int]) -> Any:
    """A tensor of a descriptor's type, or a constant's value."""
    if isinstance(value, StringLiteral):
        return str(value)
    if isinstance(value, (bool, int, float, type(None))):
        return value
    if not isinstance(value, (data.Array, data.Scalar)) or value.dtype not in TORCH_TYPES:
        raise CallError(
            f"{module} cannot take {name} in a DaCe program",
            why=f"it is {value!r}, neither an array of numbers nor a constant",
            fix="pass an array or scalar of the program, or a Python constant",
        )
    shape: Any = () if isinstance(value, data.Scalar) else value.shape
    sizes: list[int] = []
    for size in shape:
        try:
            sizes.append(int(size))
        except TypeError:
            sizes.append(dims.setdefault(str(size), _EXAMPLE + 2 * len(dims)))
    dtype = TORCH_TYPES[value.dtype]
    return torch.zeros(sizes, dtype=dtype, requires_grad=dtype.is_floating_point)


def _sizes(signature: inspect.Signature, values: Mapping[str, Any]) -> dict[str, Any]:
    """Which sizes are symbols, as torch.export wants it: equal ones have the same name."""
    named: dict[str, str] = {}
    found: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, data.Data):
            found[name] = None
            continue
        axes: dict[int, str] = {}
        for axis, size in enumerate(value.shape if isinstance(value, data.Array) else ()):
            try:
                int(size)
            except TypeError:
                axes[axis] = named.setdefault(str(size), f"size_{len(named)}")
        found[name] = axes
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            members = [n for n in found if n.startswith(f"{parameter.name}_")]
            found[parameter.name] = tuple(found.pop(n) for n in members)
    return found
