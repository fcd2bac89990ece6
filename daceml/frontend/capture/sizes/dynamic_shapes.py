"""Symbolic sizes: from what the user asks for to torch.export's terms, and which sizes an exported graph is
right for.

torch.export assumes that a symbolic size is neither 0 nor 1, and says nothing where a forward branches on
that or an operator means something else there. So a graph with symbolic sizes counts for sizes of 2 and more;
for a size of 1 it counts if tracing that very call gives the same graph (`same_graph`). 0 always gets a
variant of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import ConfigurationError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.redirected_forward import forward_signature

if TYPE_CHECKING:
    import sympy
    from torch.export import ExportedProgram

_SMALLEST = 2  # that torch takes for granted of a symbolic size
_EXAMPLE = 3  # of a symbolic size in the example, where the call has 0 or 1

_MOST_CONDITIONS = 48
"""On one size without a name; one with more becomes fixed, and another size is compiled again.

With more, as in attention within windows, tracing takes minutes. Convolutional networks have 1 to 12, and one
layer of windows has 100.
"""

Shape = Sequence[int]
Spec = dict[int, Any] | None
"""For one tensor: dimension -> torch.export.Dim."""


def tensor_specs(
    arguments: Arguments,
    forward: Callable[..., Any],
    wanted: Any,
    *,
    everything: bool | Sequence[frozenset[int]] = False,
) -> tuple[Spec, ...] | None:
    """What torch.export has to know of each tensor, or None where all sizes are fixed.

    Args:
        wanted: `dynamic_shapes` as in torch.export, by name or by position; names of dimensions may be text.
        everything: leave every dimension open instead, or certain ones of each tensor, as far as the module
            allows.
    Raises:
        ConfigurationError: `wanted` does not fit the arguments.
    """
    from torch.export import Dim

    if everything:
        # a size of 1 may be there to broadcast, one of 0 to take a branch of its own
        shapes = [t.shape for t in arguments.tensors]
        chosen = [range(len(shape)) for shape in shapes] if everything is True else everything
        return tuple(
            {d: Dim.AUTO for d in dims if shape[d] > 1} for dims, shape in zip(chosen, shapes, strict=True)
        )
    if wanted is None:
        return None
    specs: list[Spec] = []
    used: set[Any] = set()
    dims: dict[str, Any] = {}
    for path, leaf in zip(arguments.paths, arguments.leaves, strict=True):
        place = _place(wanted, arguments, forward, path)
        used.add(place[0])
        spec = wanted
        for step in place:
            spec = _step(spec, step)
        if isinstance(leaf, torch.Tensor):
            specs.append(_tensor_spec(spec, leaf, dims, ".".join(map(str, place))))
        elif spec is not None and not isinstance(spec, Mapping | list | tuple):
            raise _bad_spec(
                ".".join(map(str, place)), f"it is a {type(leaf).__name__}, which has no dimensions"
            )
    given = list(wanted) if isinstance(wanted, Mapping) else range(len(wanted))
    if unknown := [name for name in given if name not in used]:
        raise _bad_spec(", ".join(map(str, unknown)), "the call has no such argument")
    return tuple(specs)


def _place(
    wanted: Any, arguments: Arguments, forward: Callable[..., Any], path: tuple[Any, ...]
) -> tuple[Any, ...]:
    """How a leaf is found in a specification: by name or position of the argument, then inwards."""
    if not isinstance(wanted, Mapping):
        if not isinstance(wanted, list | tuple):
            raise _bad_spec("dynamic_shapes", f"it is a {type(wanted).__name__}, not a dict or a tuple")
        position = path[1] if path[0] == 0 else len(arguments.args) + list(arguments.kwargs).index(path[1])
        return (position, *path[2:])
    if path[0] == 0:
        formal = list(forward_signature(forward).parameters.values())
        for position, parameter in enumerate(formal):
            if parameter.kind is parameter.VAR_POSITIONAL:
                return (parameter.name, path[1] - position, *path[2:])
            if position == path[1]:
                return (parameter.name, *path[2:])
    return path[1:]


def _step(spec: Any, step: Any) -> Any:
    if isinstance(spec, Mapping):
        return spec.get(step)
    if isinstance(spec, list | tuple) and isinstance(step, int):
        return spec[step] if step < len(spec) else None
    return None


def _tensor_spec(spec: Any, tensor: torch.Tensor, dims: dict[str, Any], name: str) -> Spec:
    from torch.export import Dim

    if spec is None:
        return None
    if not isinstance(spec, Mapping | list | tuple):
        why = f"what is given for it is {spec!r}, which names no dimensions; write for example {{0: 'batch'}}"
        raise _bad_spec(name, why)
    entries = dict(spec) if isinstance(spec, Mapping) else dict(enumerate(spec))
    found: dict[int, Any] = {}
    for axis, dim in entries.items():
        if not isinstance(axis, int) or not -tensor.dim() <= axis < tensor.dim():
            raise _bad_spec(name, f"it has {tensor.dim()} dimensions, and no dimension {axis!r}")
        if isinstance(dim, str):
            if not dim.isidentifier():
                raise _bad_spec(name, f"{dim!r} is not a name of a dimension")
            dim = dims.setdefault(dim, Dim(dim))
        if dim is not None and not isinstance(dim, int) and not _is_dim(dim):
            raise _bad_spec(name, f"dimension {axis} is given as {dim!r}")
        if isinstance(dim, int) and not isinstance(dim, bool) and dim != tensor.shape[axis]:
            raise _bad_spec(name, f"dimension {axis} is given as {dim} and is {tensor.shape[axis]}")
        if dim is not None and not isinstance(dim, int):
            found[axis % tensor.dim()] = dim
    return found


def _is_dim(value: Any) -> bool:
    return type(value).__module__.startswith("torch.export")


def _bad_spec(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"dynamic_shapes does not fit the arguments at {name}",
        why=why,
        fix="give, for each argument that changes, a dict from dimension to name, for example "
        'dynamic_shapes={"x": {0: "batch"}}',
    )


def example(tensors: Sequence[torch.Tensor], specs: Sequence[Spec]) -> list[torch.Tensor]:
    """The tensors to trace with: as given, but with symbolic sizes that torch takes for no constants."""
    sizes: dict[Any, int] = {}
    found: list[torch.Tensor] = []
    for tensor, spec in zip(tensors, specs, strict=True):
        for axis, dim in (spec or {}).items():
            if tensor.shape[axis] < _SMALLEST:
                high, low = getattr(dim, "max", None), getattr(dim, "min", None) or 0  # of Dim.AUTO, None
                size = max(_EXAMPLE, int(low))
                size = size if high is None or high >= size else int(high)
                size = sizes.setdefault(getattr(dim, "__name__", str(dim)), size)
                one = tensor.narrow(axis, 0, 1) if tensor.shape[axis] else tensor.new_zeros(
                    [1 if d == axis else n for d, n in enumerate(tensor.shape)]
                )  # fmt: skip
                tensor = one.expand([size if d == axis else n for d, n in enumerate(one.shape)]).contiguous()
        found.append(tensor)
    return found


@dataclass(frozen=True, kw_only=True)
class SizeGuard:
    """The sizes that an exported graph with symbolic sizes is right for.

    Attributes:
        shapes: of the tensors, with symbols.
        ranges: symbol -> smallest and largest value.
        conditions: what must hold besides.
    """

    shapes: tuple[tuple[int | sympy.Expr, ...], ...]
    ranges: Mapping[sympy.Symbol, tuple[int, int | None]]
    conditions: tuple[Any, ...]

    def bind(self, shapes: Sequence[Shape]) -> dict[Any, int] | str:
        """The value of every symbol for these sizes, or why they contradict each other."""
        values: dict[Any, int] = {}
        for symbolic, shape in zip(self.shapes, shapes, strict=True):
            for expression, given in zip(symbolic, shape, strict=True):
                if getattr(expression, "is_Symbol", False) and values.setdefault(expression, given) != given:
                    return f"{expression} is both {values[expression]} and {given}"
        for symbolic, shape in zip(self.shapes, shapes, strict=True):
            for expression, given in zip(symbolic, shape, strict=True):
                size = expression if isinstance(expression, int) else expression.xreplace(values)
                if size != given:
                    return f"a size is {given} instead of {expression}"
        return values

    def problem(self, shapes: Sequence[Shape], *, ones: bool = False) -> str | None:
        """Why these sizes do not fit, or None.

        Args:
            ones: let symbolic sizes be 1.
        """
        values = self.bind(shapes)
        if isinstance(values, str):
            return values
        for symbol, (low, high) in self.ranges.items():
            low = 1 if ones and low == _SMALLEST else low
            if symbol in values and not (low <= values[symbol] and (high is None or values[symbol] <= high)):
                return f"{symbol} is {values[symbol]}, outside {low} to {high or 'any'}"
        for condition in self.conditions:
            if not bool(condition.xreplace(values)):
                return f"{condition} does not hold"
        return None


def few_conditions() -> AbstractContextManager[Any]:
    """Fix a size, within the block, as soon as a trace has too many conditions on it."""
    from torch.fx.experimental import _config

    return _config.patch(symbol_guard_limit_before_specialize=_MOST_CONDITIONS)  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def kept_marks(tensors: Sequence[torch.Tensor]) -> Generator[None]:
    """Leave marks of symbolic sizes as they were after the block.

    torch.export takes away the caller's, and leaves its own if it fails: sizes of the next trace would be
    symbolic.
    """
    before = [_marks(tensor) for tensor in tensors]
    try:
        yield
    finally:
        for tensor, marks in zip(tensors, before, strict=True):
            for name in _marks(tensor):
                delattr(tensor, name)
            for name, value in marks.items():
                setattr(tensor, name, value)


def _marks(tensor: torch.Tensor) -> dict[str, Any]:
    """Attributes that torch's mark_dynamic and its kin set."""
    return {
        name: copy(value)
        for name, value in tensor.__dict__.items()
        if name.startswith("_dynamo_") or name == "_has_dynamo_dim_marking"
    }


def conditions_fix(program: ExportedProgram) -> bool:
    """Whether a size became fixed because there were too many conditions on it."""
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    sizes = (n for v in values if isinstance(v, torch.Tensor) for n in v.shape)
    found = next((n.node.shape_env for n in sizes if isinstance(n, torch.SymInt)), None)
    return found is not None and any(n > _MOST_CONDITIONS for n in found.symbol_guard_counter.values())


def size_guard(program: ExportedProgram) -> SizeGuard | None:
    """Read off an exported program which sizes it is right for; None where all are fixed."""
    import sympy

    by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = [
        by_name[name].meta.get("val") for name in program.graph_signature.user_inputs if isinstance(name, str)
    ]
    shapes = tuple(tuple(_expression(n) for n in v.shape) for v in values if isinstance(v, torch.Tensor))
    symbolic = [
        n for v in values if isinstance(v, torch.Tensor) for n in v.shape if isinstance(n, torch.SymInt)
    ]
    if not symbolic:
        return None
    shape_env = symbolic[0].node.shape_env
    assert shape_env is not None
    symbols = {s for shape in shapes for n in shape if not isinstance(n, int) for s in n.free_symbols}
    ranges: dict[Any, tuple[int, int | None]] = {}
    for symbol in symbols:
        bounds = shape_env.var_to_range.get(symbol)
        low = (
            max(int(bounds.lower), _SMALLEST) if bounds is not None and bounds.lower.is_finite else _SMALLEST
        )
        high = int(bounds.upper) if bounds is not None and isinstance(bounds.upper, sympy.Integer) else None
        ranges[symbol] = (low, high)
    conditions = [guard.expr for guard in shape_env.guards if guard.expr.free_symbols <= symbols]
    return SizeGuard(shapes=shapes, ranges=ranges, conditions=(*conditions, *_unasked(program)))


def ambiguous(program: ExportedProgram, specs: Sequence[Spec]) -> list[frozenset[int]]:
    """Of each tensor, the open dimensions that a size of 0 or 1 is computed from in the example.

    torch takes what it finds: a computed size of 1 is broadcast, one of 0 makes an empty tensor. A graph with
    symbols does not say so where it computes with the size. Other sizes of the example are what an operator
    needs in any call that the conditions let pass.
    """
    by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [by_name[n].meta.get("val") for n in program.graph_signature.user_inputs if isinstance(n, str)]
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    few: set[Any] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, list | tuple) else [value]:
            for size in part.shape if isinstance(part, torch.Tensor) else ():
                if isinstance(size, torch.SymInt) and size.node.has_hint() and size.node.hint < _SMALLEST:
                    few |= size.node.expr.free_symbols
    return [
        frozenset(
            axis
            for axis in spec or {}
            if getattr(_expression(tensor.shape[axis]), "free_symbols", few - few) & few
        )
        for tensor, spec in zip(tensors, specs, strict=True)
    ]


_RESHAPES = ("view", "reshape", "_unsafe_view", "unflatten")


def _unasked(program: ExportedProgram) -> list[Any]:
    """What the traced operators take for granted of symbolic sizes without having made it a guard."""
    import sympy

    found: list[Any] = []
    for node in program.graph.nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        for size in _sizes(node.meta.get("val")):
            divisors = [part.args[1] for part in size.atoms(sympy.Function) if len(part.args) == 2]
            found += [sympy.Ne(divisor, 0) for divisor in divisors if divisor.free_symbols]
        if name in _RESHAPES:
            elements = [
                sympy.prod(_expression(n) for n in v.shape)
                for v in (node.args[0].meta["val"], node.meta["val"])
            ]
            found.append(sympy.Eq(*elements))
    return [condition for condition in dict.fromkeys(found) if condition != sympy.true]


def _sizes(value: Any) -> list[Any]:
    values = value if isinstance(value, list | tuple) else [value]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    numbers = [v for v in values if isinstance(v, torch.SymInt)]
    sizes = [_expression(n) for n in (*numbers, *(n for t in tensors for n in t.shape))]
    return [size for size in sizes if not isinstance(size, int)]


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)
