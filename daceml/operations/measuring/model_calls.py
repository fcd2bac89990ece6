"""The ATen calls of a model: each different one, and how often a pass makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from daceml.errors import MeasurementError
from daceml.operations.measuring.calls import Call, Tensor, call_of


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """A call and how often each pass makes it; the ranges of its values are those of the first."""

    call: Call
    forward: int = 0
    backward: int = 0


def _called(model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return model(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise MeasurementError(
            "the model fails with these inputs",
            why=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
            fix="give inputs that a plain call of the model takes",
        ) from error


def model_calls(
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
) -> tuple[Occurrence, ...]:
    """Run a model once and collect what it calls, in the order of first calls.

    Args:
        model: a module, or whatever can be called; on a processor.
        backward: also the backward pass of the sum of all results.
    Raises:
        MeasurementError: it fails, or nothing of its result has a gradient, and a backward pass is asked for.
    """
    collector = _Collector()
    with torch.set_grad_enabled(backward):
        with collector:
            result = _called(model, args, dict(kwargs or {}))
        if backward:
            roots = _with_gradient(result)
            if not roots:
                raise MeasurementError(
                    "the model has no backward pass",
                    why="no tensor that it returns has a gradient",
                    fix="leave --train out, or return a tensor that depends on a parameter",
                )
            gradients = [torch.ones_like(one) for one in roots]
            collector.counts = collector.backward
            with collector:
                torch.autograd.backward(roots, gradients)
    return tuple(
        Occurrence(
            call=collector.calls[key], forward=collector.forward[key], backward=collector.backward[key]
        )
        for key in collector.calls
    )


class _Collector(TorchDispatchMode):
    """Sees every call below autograd, as the device would."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, Call] = {}
        self.forward: Counter[Any] = Counter()
        self.backward: Counter[Any] = Counter()
        self.counts = self.forward

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        call = call_of(func, args, kwargs or {})
        key = without_ranges(call)
        self.calls.setdefault(key, call)
        self.counts[key] += 1
        return func(*args, **(kwargs or {}))


def without_ranges(call: Call) -> Any:
    """What tells calls apart: two lookups in a table are one operation, whichever rows they read."""
    return (call.operator, *map(_shape, call.args), *((name, _shape(value)) for name, value in call.kwargs))


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (value.shape, value.strides, value.dtype)
    if isinstance(value, tuple):
        return tuple(map(_shape, value))
    return (type(value).__name__, value)  # 1 == True == 1.0, and their times differ


def _with_gradient(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result] if result.requires_grad else []
    if isinstance(result, Mapping):
        return _with_gradient(list(result.values()))
    if isinstance(result, list | tuple):
        return [tensor for one in result for tensor in _with_gradient(one)]
    return []
