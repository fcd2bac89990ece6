"""Sizes that pass through small tensors: `torch.div(x.size(1), 4, rounding_mode="floor")`.

A trace knows no elements of such tensors, so what forward reads from them would depend on data. They follow
from sizes and constants alone: integers are followed as expressions of the sizes; other elements, whose
rounding no expression of sizes repeats, are computed by torch's own kernels, and fix the sizes that they
follow from when forward reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

_MOST_ELEMENTS = 64
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What is known of a tensor.

    Attributes:
        real: its elements for the sizes of this trace.
        exact: the same as expressions of sizes, if there is one for each.
        symbols: sizes that the elements follow from.
        version: of the tensor; a later one has other elements.
    """

    real: torch.Tensor
    exact: np.ndarray[Any, Any] | None
    symbols: tuple[Any, ...]
    version: int


class SizesInTensors:
    """The tensors of one trace whose elements follow from sizes and constants."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def elements(self, tensor: torch.Tensor) -> Any:
        """The elements, nested as `tolist` nests them; None where they are not known.

        Sizes that they follow from are fixed where there is no expression for them.
        """
        known = self._of(tensor)
        if known is None:
            return None
        if known.exact is not None:
            return known.exact.tolist()
        for symbol in known.symbols:
            _fix(symbol)
        with _untraced():
            return known.real.tolist()

    def note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Follow what a function has returned, if its arguments are sizes, constants or known tensors."""
        name = getattr(function, "__name__", "")
        name = name[2:-2] if name.startswith("__") else name
        if name not in _FOLLOWED:
            return
        made = result if isinstance(result, tuple | list) else (result,)
        if not all(map(_is_small, made)):
            return
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        known = {id(tensor): self._of(tensor) for tensor in given}
        if None in known.values() or not (given or name in _MAKERS):
            return
        symbols = tuple(_symbols(args, kwargs, known))
        if any(symbol.node.hint is None for symbol in symbols):
            return
        with _untraced():
            real = _real(function, name, args, kwargs, known, made[0])
        exact = _exact(name, args, kwargs, known) if symbols else None
        for position, tensor in enumerate(made):
            if position >= len(real) or not _is_alike(real[position], tensor):
                return
            part = None if exact is None or position >= len(exact) else exact[position]
            if part is not None and not _is_of(part, tensor):
                part = None
            self._known[tensor] = _Known(
                real=real[position], exact=part, symbols=symbols, version=tensor._version
            )
            if tensor.dim() == 0 and tensor.dtype == torch.int64 and (part is not None or not symbols):
                # what C++ reads, as a size in the arguments of an operator
                tensor.item_memo = part.item() if part is not None else int(real[position])

    def _of(self, tensor: torch.Tensor) -> _Known | None:
        known = self._known.get(tensor)
        return known if known is not None and known.version == tensor._version else None


def holds_sizes(value: Any) -> bool:
    """Whether a number, or one of a list, is a size that may be another one at the next call."""
    return not isinstance(value, torch.Tensor) and any(isinstance(n, _SYMBOLS) for n in tree_leaves(value))


def _is_small(tensor: Any) -> bool:
    """Whether a result is a tensor of the trace with a few elements."""
    if not isinstance(tensor, FakeTensor) or tensor.requires_grad or tensor.is_inference():
        return False
    sizes: tuple[Any, ...] = tuple(tensor.shape)
    return all(isinstance(n, int) for n in sizes) and tensor.numel() <= _MOST_ELEMENTS


def _is_alike(real: torch.Tensor, traced: torch.Tensor) -> bool:
    return real.shape == traced.shape and real.dtype == traced.dtype


def _is_of(elements: np.ndarray[Any, Any], tensor: torch.Tensor) -> bool:
    """Whether a tensor of this type and shape holds the elements as they stand."""
    kinds = _EXACT.get(tensor.dtype, ())
    return elements.shape == tensor.shape and all(type(n) in kinds for n in elements.flat)


def _untraced() -> ExitStack:
    stack = ExitStack()
    stack.enter_context(torch._C.DisableTorchFunction())  # pyright: ignore[reportPrivateUsage]
    stack.enter_context(_disable_current_modes())
    return stack


def _symbols(args: Any, kwargs: Any, known: Mapping[int, _Known | None]) -> Iterator[Any]:
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, _SYMBOLS):
            yield leaf
        elif isinstance(leaf, slice):
            yield from (n for n in (leaf.start, leaf.stop, leaf.step) if isinstance(n, _SYMBOLS))
        elif isinstance(leaf, torch.Tensor) and (found := known[id(leaf)]) is not None:
            yield from found.symbols


def _fix(symbol: Any) -> None:
    """Make a size one number, under a guard."""
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(symbol)]
    kind(symbol)


def _real(
    function: Any,
    name: str,
    args: Any,
    kwargs: dict[str, Any],
    known: Mapping[int, _Known | None],
    result: torch.Tensor,
) -> list[torch.Tensor]:
    """The elements of the results for the sizes of this trace, on the CPU."""

    def number(leaf: Any) -> Any:
        if isinstance(leaf, _SYMBOLS):
            return leaf.node.hint
        if isinstance(leaf, slice):
            return slice(number(leaf.start), number(leaf.stop), number(leaf.step))
        if isinstance(leaf, torch.Tensor):
            found = known[id(leaf)]
            assert found is not None
            return found.real
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

    args, kwargs = tree_map(number, (args, kwargs))
    if name in _CONVERSIONS:
        made: Any = args[0].to(result.dtype)
    else:
        made = function(*args, **({**kwargs, "device": "cpu"} if "device" in kwargs else kwargs))
    return [part.clone() for part in (made if isinstance(made, tuple | list) else (made,))]


def _exact(
    name: str, args: Any, kwargs: dict[str, Any], known: Mapping[int, _Known | None]
) -> list[np.ndarray[Any, Any]] | None:
    """The elements of the results as expressions of sizes; None where no rule has them."""
    rule = _RULES.get(name)
    if rule is None:
        return None

    def elements(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        found = known[id(leaf)]
        assert found is not None
        if found.exact is not None:
            return found.exact
        if found.symbols or leaf.dtype not in _EXACT:
            raise _UnknownError
        with _untraced():
            return _array(found.real.tolist())

    try:
        args, kwargs = tree_map(elements, (args, kwargs))
        made = rule(*args, **{k: v for k, v in kwargs.items() if k not in ("device", "dtype", "pin_memory")})
    except (_UnknownError, TypeError, ValueError, IndexError):
        return None
    return [_array(part) for part in (made if isinstance(made, list) else [made])]


class _UnknownError(Exception):
    pass


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.array(value, dtype=object)


def _pairs(rule: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A rule of pairs of elements; numpy's own comparisons would ask whether symbols are true."""
    return np.frompyfunc(rule, 2, 1)


def _reversed(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: rule(b, a)


def _truncated(a: Any, b: Any) -> Any:
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def _divided(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        raise _UnknownError
    return _floor(a, b) if rounding_mode == "floor" else _pairs(_truncated)(a, b)


def _along(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, dim=None, keepdim=False: reduce(a, axis=dim, keepdims=keepdim)


def _clamped(a: Any, min: Any = None, max: Any = None) -> Any:
    a = a if min is None else _largest(a, min)
    return a if max is None else _smallest(a, max)


_add, _sub, _mul, _floor, _rest = map(
    _pairs, (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
)
_largest, _smallest = _pairs(torch.sym_max), _pairs(torch.sym_min)

_MAKERS = frozenset({"tensor", "as_tensor", "scalar_tensor", "full", "div", "floor_divide", "true_divide"})
"""Functions that make tensors of numbers alone."""

_CONVERSIONS = frozenset({"to", "long", "int", "float", "double", "type", "cpu", "cuda", "detach", "clone"})

_EXACT = {torch.int64: (int, torch.SymInt), torch.bool: (bool, torch.SymBool)}
"""Element type -> the numbers that it holds without rounding; narrower integers would wrap."""

_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("tensor", "as_tensor", "scalar_tensor"), _array),
    **dict.fromkeys(_CONVERSIONS, lambda a, *_, **__: a),
    **dict.fromkeys(("div", "divide"), _divided),
    **dict.fromkeys(("floor_divide", "floordiv"), _floor),
    "rfloordiv": _reversed(_floor),
    **dict.fromkeys(("remainder", "mod"), _rest),
    **dict.fromkeys(("add", "radd"), _add),
    **dict.fromkeys(("sub", "subtract"), _sub),
    "rsub": _reversed(_sub),
    **dict.fromkeys(("mul", "multiply", "rmul"), _mul),
    **dict.fromkeys(("neg", "negative"), operator.neg),
    **{name: _pairs(getattr(operator, name)) for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    "prod": _along(np.prod),
    "sum": _along(np.sum),
    "cumsum": lambda a, dim: np.cumsum(a, axis=dim),
    "maximum": _largest,
    "minimum": _smallest,
    **dict.fromkeys(("clamp", "clip"), _clamped),
    "getitem": lambda a, index: a[index],
    "select": lambda a, dim, index: np.take(a, index, axis=dim),
    "unbind": lambda a, dim=0: list(np.moveaxis(a, dim, 0)),
    "stack": lambda tensors, dim=0: np.stack(tensors, axis=dim),
    **dict.fromkeys(("cat", "concat"), lambda tensors, dim=0: np.concatenate(tensors, axis=dim)),
    "flatten": lambda a: a.reshape(-1),
    "flip": lambda a, dims: np.flip(a, dims),
}
"""Function -> its elements as expressions of integers; arrays hold sizes as objects."""

_FOLLOWED = frozenset(_RULES) | frozenset(
    {
        "full", "true_divide", "truediv", "rtruediv", "pow", "rpow", "sqrt", "rsqrt", "exp", "log", "log2",
        "ceil", "floor", "round", "trunc", "abs", "mean", "amax", "amin", "reshape", "view", "squeeze",
        "unsqueeze", "any", "all", "logical_and", "logical_or", "logical_not", "invert", "and", "or",
        "fmod", "rmod", "square", "half", "bool", "cumprod", "where", "max", "min",
    }
)  # fmt: skip
