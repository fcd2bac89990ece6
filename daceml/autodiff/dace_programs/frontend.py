"""What DaCe's frontend does where a program says `requires_grad_`, `backward` and `grad`.

A program is differentiated when the frontend comes to `backward`: what it does so far is run backwards there,
and the program goes on behind. Marks and gradients belong to the SDFG that is being parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import dace
from dace.frontend.common import op_repository

from daceml.autodiff.dace_programs.closure_tensor import ClosureTensor
from daceml.autodiff.dace_programs.unfinished_views import finish_views
from daceml.autodiff.sdfg_backward.add_backward_pass import append_gradients
from daceml.autodiff.sdfg_backward.writer import Writer
from daceml.errors import DacemlError, GradientError
from daceml.sdfg.builder import Computation, parameters
from daceml.sdfg.scalar import FLOATS, cast, compute_type, read
from daceml.sdfg.scalar_rewrite import as_index

_KINDS = ("Array", "Scalar", "View")

# SDFG under construction -> array that requires a gradient -> array of its gradient, "" where none is yet
_marked: WeakKeyDictionary[dace.SDFG, dict[str, str]] = WeakKeyDictionary()


def register() -> None:
    """Let DaCe's frontend know the methods, in the place of whatever it has known under these names."""
    repository: Any = op_repository  # its decorators are typed as if they took a function
    for kind in _KINDS:
        repository.replaces_method(kind, "requires_grad_")(_passing_on(requires_grad))
        repository.replaces_method(kind, "backward")(_passing_on(backward))
        repository.replaces_attribute(kind, "grad")(_passing_on(gradient))
    repository.replaces("torch.autograd.backward")(_passing_on(backward))


def _passing_on(function: Any) -> Any:
    """The same function; the frontend passes its refusals on, where it would make a Python call instead."""

    def replacement(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except DacemlError as refusal:
            refusal.__noskipcall__ = True  # pyright: ignore[reportAttributeAccessIssue]
            raise

    return replacement


def requires_grad(
    visitor: Any, sdfg: dace.SDFG, state: dace.SDFGState, array: str, requires_grad: bool = True
) -> list[str]:
    """`array.requires_grad_()`: backward passes from here on give the array's gradient.

    Raises:
        GradientError: its elements are not floating-point numbers, or it is a view.
    """
    desc = sdfg.arrays[array]
    if not requires_grad:
        _marks(sdfg).pop(array, None)
        return []
    if desc.dtype not in FLOATS or array in visitor.views:
        raise GradientError(
            f"{array} cannot require a gradient",
            where=_line(visitor),
            why="it is a part or another shape of an array"
            if array in visitor.views
            else f"its elements are {desc.dtype.to_string()}",
            fix="call requires_grad_() on arrays of floating-point numbers, before parts of them are taken",
        )
    _marks(sdfg).setdefault(array, "")
    return []


def gradient(visitor: Any, sdfg: dace.SDFG, state: dace.SDFGState, array: str) -> str:
    """`array.grad`: what the backward passes so far have added up.

    Raises:
        GradientError: there is none: the array does not require one, or no backward pass has reached it.
    """
    known = _marks(sdfg).get(array)
    if not known:
        raise GradientError(
            f"{array} has no gradient here",
            where=_line(visitor),
            why="it does not require one" if known is None else "no backward pass has reached it so far",
            fix=f"call {array}.requires_grad_() before it is used, and backward() on what depends on it",
        )
    return known


def backward(
    visitor: Any,
    sdfg: dace.SDFG,
    state: dace.SDFGState,
    tensors: str | Sequence[str],
    gradients: str | Sequence[str] | None = None,
    grad_tensors: str | Sequence[str] | None = None,
    gradient: str | None = None,
    grad: str | None = None,
) -> list[str]:
    """`tensor.backward(gradient)` and `torch.autograd.backward(tensors, grad_tensors)`. Mutates the SDFG.

    Args:
        tensors: arrays that gradients flow from.
        gradients: their cotangents, under any of torch's names; ones where a tensor has one element.
    Raises:
        GradientError: something in the program cannot be run backwards, or nothing requires a gradient.
    """
    given = next((g for g in (gradients, grad_tensors, gradient, grad) if g is not None), None)
    cotangents = _cotangents(visitor, sdfg, tensors, given)
    _check_place(visitor, sdfg)
    marked, closure = _marks(sdfg), _closure_parameters(visitor)
    finish_views(visitor, sdfg)
    found, writer = append_gradients(sdfg, cotangents, list(dict.fromkeys([*marked, *closure])))
    if not found:
        raise GradientError(
            f"no gradient flows from {', '.join(cotangents)}",
            where=_line(visitor),
            why="it depends on no parameter and no array that requires a gradient",
            fix="call array.requires_grad_() before the array is used",
        )
    for array, made in found.items():
        if array in closure:
            _add(sdfg, writer, _closure_gradient(visitor, sdfg, array, closure[array]), made)
        elif marked[array]:
            _add(sdfg, writer, marked[array], made)
        else:
            marked[array] = made
    visitor.last_block = visitor.current_state = writer.state("after_backward")
    return []


def _marks(sdfg: dace.SDFG) -> dict[str, str]:
    return _marked.setdefault(sdfg, {})


def _line(visitor: Any) -> str:
    return f"{visitor.name}, line {visitor.current_lineinfo.start_line}"


def _cotangents(
    visitor: Any, sdfg: dace.SDFG, tensors: str | Sequence[str], given: str | Sequence[str] | None
) -> dict[str, str | None]:
    names = [tensors] if isinstance(tensors, str) else list(tensors)
    values: list[Any] = (
        [None] * len(names) if given is None else [given] if isinstance(given, str) else [*given]
    )
    if len(values) != len(names):
        raise GradientError(
            f"backward got {len(names)} tensors and {len(values)} cotangents",
            where=_line(visitor),
            why="each tensor has a cotangent of its own",
            fix="pass as many cotangents as tensors, or None for tensors of one element",
        )
    for name, value in zip(names, values, strict=True):
        desc, problem = sdfg.arrays.get(name), None
        if desc is None or desc.dtype not in FLOATS:
            problem = "it is not an array of floating-point numbers of this program"
        elif value is None and str(desc.total_size) != "1":
            problem = f"its shape is {_shape(desc)}, and ones are implied for a single element only"
        elif value is not None and value not in sdfg.arrays:
            problem = "its cotangent is not an array of this program"
        elif value is not None and _shape(sdfg.arrays[value]) != _shape(desc):
            problem = f"its shape is {_shape(desc)}, that of its cotangent {_shape(sdfg.arrays[value])}"
        if problem is not None:
            raise GradientError(
                f"backward cannot begin at {name}",
                where=_line(visitor),
                why=problem,
                fix="pass a cotangent of the tensor's shape, or sum the tensor up first",
            )
    return dict(zip(names, values, strict=True))


def _shape(desc: Any) -> str:
    return f"[{', '.join(map(str, desc.shape))}]"


def _check_place(visitor: Any, sdfg: dace.SDFG) -> None:
    if visitor.cfg_target is not sdfg or visitor.map_symbols:
        raise GradientError(
            "backward is called inside a loop, a branch or a map",
            where=_line(visitor),
            why="what a program does is run backwards as a whole",
            fix="call it at the top level of the program; put a loop around calls of the program",
        )


def _closure_parameters(visitor: Any) -> dict[str, ClosureTensor]:
    """Array of the program -> parameter of a module that requires a gradient."""
    found: dict[str, ClosureTensor] = {
        name: held
        for name, (held, _) in visitor.nested_closure_arrays.items()
        if isinstance(held, ClosureTensor)
    }
    for held in found.values():
        if held.refusal:
            raise GradientError(
                "gradients cannot flow through a module of this program",
                where=_line(visitor),
                why=held.refusal,
                fix="call the module from PyTorch, where daceml.compile differentiates it",
            )
    return {name: held for name, held in found.items() if held.gradient is not None}


def _closure_gradient(visitor: Any, sdfg: dace.SDFG, array: str, parameter: ClosureTensor) -> str:
    """The array of the program that is the parameter's gradient; declared where it is not yet."""
    held = parameter.gradient
    assert held is not None, "parameters without a gradient are left out"
    for name, (known, _) in visitor.nested_closure_arrays.items():
        if isinstance(known, ClosureTensor) and known.identity == held.identity:
            return name
    wanted = visitor.closure.array_mapping.get(id(held), f"{array}_grad")
    desc = held.descriptor
    name = sdfg.add_datadesc(wanted, desc, find_new_name=True)
    visitor.nested_closure_arrays[name] = (held, desc)
    return name


def _add(sdfg: dace.SDFG, writer: Writer, total: str, part: str) -> None:
    """`total += part`."""
    desc = sdfg.arrays[total]
    shape = tuple(map(as_index, desc.shape))
    places = parameters(len(shape))
    before = read(total, desc.dtype, places, shape)
    value = before + cast(read(part, sdfg.arrays[part].dtype, places, shape), compute_type(desc.dtype))
    writer.compute(
        Computation(
            label=f"add_to_{total}", target=total, index=places, params=places, extents=shape, value=value
        )
    )
