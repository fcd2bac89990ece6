"""Runs the loops of `loops`: in Python, or compiled by numba where that is installed and pays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EnvironmentProblem

Engine = Literal["python", "numba"]

# Loading numba and what it compiled earlier takes 0.5 s, in which Python orders and replays this many tasks.
LOADING_IN_TASKS = 300_000

_asked_tasks = 0


@cache
def _loads() -> bool:
    """Whether numba is there, and takes this version of numpy."""
    try:
        importlib.import_module("numba")
    except ImportError:
        return False
    return True


@cache
def _compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    if not _loads():
        raise EnvironmentProblem(
            "numba cannot be imported, and engine='numba' needs it",
            fix="pip install 'daceml[simulation]', or leave the engine out",
        )
    import numba

    try:
        return numba.njit(cache=True)(loop)
    except RuntimeError:  # no folder in which machine code could be kept for the next process
        return numba.njit(loop)


def engine_for(tasks: int) -> Engine:
    """What had better run a loop over so many tasks.

    numba is loaded once Python's work so far would have paid for that: whatever follows, nobody then waits
    more than twice as long as who had known how much does.
    """
    global _asked_tasks
    _asked_tasks += tasks
    pays = _asked_tasks >= LOADING_IN_TASKS or _compiled.cache_info().currsize > 0
    return "numba" if pays and _loads() else "python"


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
