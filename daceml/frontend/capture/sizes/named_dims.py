"""Sizes that contradict what the user said of named dimensions, in the user's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from daceml.errors import CallError, ExportError

if TYPE_CHECKING:
    from torch import nn

    from daceml.frontend.capture.arguments import Arguments
    from daceml.frontend.capture.sizes.dynamic_shapes import Spec

_SMALLEST = 2  # a size of 0 or 1 has a program of its own, whatever the range


def check_named_sizes(arguments: Arguments, forward: Callable[..., Any], specs: Sequence[Spec]) -> None:
    """Compare the sizes of a call with the names and ranges of its dimensions.

    Raises:
        CallError: a size is outside its range, or two dimensions of one name differ.
    """
    seen: dict[str, tuple[int, str]] = {}
    for tensor, spelling, axis, dim in _named(arguments, forward, specs):
        name, size = dim.__name__, tensor.shape[axis]
        place = f"dimension {axis} of {spelling}"
        low, high = getattr(dim, "min", 0), getattr(dim, "max", None)
        if high is not None and size > high:
            raise CallError(
                f"{place} is {size}, and {name!r} is at most {high}",
                where=f"dynamic_shapes, {spelling}, dimension {axis}",
                why=f'it was declared as Dim("{name}", max={high})',
                fix=f'declare Dim("{name}", max={size}) or more, or pass at most {high}',
            )
        if _SMALLEST <= size < low:
            raise CallError(
                f"{place} is {size}, and {name!r} is at least {low}",
                where=f"dynamic_shapes, {spelling}, dimension {axis}",
                why=f'it was declared as Dim("{name}", min={low})',
                fix=f'declare Dim("{name}", min={size}) or less, or pass at least {low}',
            )
        first, other = seen.setdefault(name, (size, place))
        if first != size:
            raise CallError(
                f"{place} is {size}, and {other} is {first}",
                where=f"dynamic_shapes, {spelling}, dimension {axis}",
                why=f"both have the name {name!r}, which stands for one size",
                fix="give them different names, or pass tensors whose sizes are equal there",
            )


def broken_promise(
    error: Exception, module: nn.Module, arguments: Arguments, specs: Sequence[Spec] | None
) -> ExportError | None:
    """What torch says where forward fixes or relates named dimensions; None where it says something else."""
    text = str(error)
    if specs is None or "Constraints violated" not in text:
        return None
    found = re.search(r"(\w+) as dynamic but your code specialized it to be a constant \((\d+)\)", text)
    places = {
        dim.__name__: f"dimension {axis} of {spelling}"
        for _, spelling, axis, dim in reversed(list(_named(arguments, module.forward, specs)))
    }
    if found is not None and found[1] in places:
        name, size = found.groups()
        return ExportError(
            f"{places[name]} cannot be left open: forward of {type(module).__name__} fixes it to {size}",
            where=f"dynamic_shapes, {places[name]}, named {name!r}",
            why=f"forward works for this size only, for example because a parameter or constant has {size} "
            "there,\nor because it makes a number of Python of the size: float(n), math.sqrt(n), range(n)",
            fix=f"leave {name!r} out of dynamic_shapes, or change what fixes it; "
            "dynamic=True opens what can be left open",
        )
    suggested = re.findall(r"^\s*(\w+ = [^\n]+)$", text, re.MULTILINE)
    named = {name: place for name, place in places.items() if re.search(rf"\b{re.escape(name)}\b", text)}
    if not named or not suggested:
        return None
    return ExportError(
        f"forward of {type(module).__name__} does not work for every size of "
        + ", ".join(f"{place} ({name!r})" for name, place in named.items()),
        where="dynamic_shapes",
        why="torch.export finds that it needs " + ", ".join(suggested),
        fix="declare the dimensions so, or leave them out of dynamic_shapes; "
        "dynamic=True opens what can be left open",
    )


def _named(
    arguments: Arguments, forward: Callable[..., Any], specs: Sequence[Spec]
) -> list[tuple[Any, str, int, Any]]:
    """Tensor, how the user writes it, dimension and torch's Dim of every dimension that has a name."""
    spelled = zip(arguments.tensors, arguments.spellings(forward), specs, strict=True)
    return [
        (tensor, spelling, axis, dim)
        for tensor, spelling, spec in spelled
        for axis, dim in (spec or {}).items()
        if isinstance(getattr(dim, "__name__", None), str) and not hasattr(dim, "root")
    ]
