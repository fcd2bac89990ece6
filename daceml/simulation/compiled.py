"""Runs the loops of `loops`: in Python, or compiled by numba where that is installed and pays."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Engine = Literal["python", "numba"]

# Loading numba and what it compiled earlier takes as long as Python takes for 100,000 tasks or so; whoever
# has a graph of this size asks of it more than once.
PAYS_FROM_TASKS = 20_000


@cache
def _installed() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def _compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    try:
        return numba.njit(cache=True)(loop)
    except RuntimeError:  # no folder in which machine code could be kept for the next process
        return numba.njit(loop)


def engine_for(tasks: int) -> Engine:
    """What computes a graph of so many tasks soonest: numba for many, or once it has been loaded."""
    pays = tasks >= PAYS_FROM_TASKS or _compiled.cache_info().currsize > 0
    return "numba" if pays and _installed() else "python"


def run(
    loop: Callable[..., Any],
    inputs: Sequence[Any],
    outputs: Sequence[NDArray[Any]],
    *,
    engine: Engine,
    sparse: bool = False,
) -> Any:
    """Call `loop(*inputs, *outputs)`, which writes into the outputs; returns what it returns.

    Args:
        sparse: the loop touches few elements, so that Python had better read them where they are.
    """
    if engine == "numba":
        return _compiled(loop)(*inputs, *outputs)
    if sparse:
        return loop(*(_elements(value) for value in (*inputs, *outputs)))
    lists = [value.tolist() if isinstance(value, np.ndarray) else value for value in (*inputs, *outputs)]
    result = loop(*lists)
    for array, values in zip(outputs, lists[len(inputs) :], strict=True):
        array[:] = values
    return result


def _elements(value: Any) -> Any:
    """An array whose elements are Python's own numbers, without a copy."""
    return value.data if isinstance(value, np.ndarray) else value
