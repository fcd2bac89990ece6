"""Cases of a parametrized test of which `make test` takes a few, and `make test-all` every one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Parameters of `pytest.mark.parametrize`: all cases, those that are not `kept` marked as slow.

    `@pytest.mark.parametrize("columns", sampled([32, 33, 300], 33))` keeps 33 quick. Values that are tuples
    are wrapped: `@pytest.mark.parametrize("shape", sampled([((3, 5),), ((1, 5),)], ((1, 5),)))`.

    Args:
        cases: values, or tuples of them for several parameters; no `pytest.param`: names are `ids=`.
        kept: of the cases.
    Raises:
        ValueError: one that is kept is no case, so that a renamed case is noticed.
    """
    every = list(cases)
    if missing := [case for case in kept if case not in every]:
        raise ValueError(f"{missing} are no cases of {every}")
    return [_kept(case) if case in kept else _slow(case) for case in every]


def slowed(cases: Iterable[Any], *slow: Any) -> list[Any]:
    """Parameters of `pytest.mark.parametrize`: all cases, marked as slow those that are `slow`.

    Args:
        cases: as for `sampled`, for tests that keep most of them.
        slow: of the cases.
    Raises:
        ValueError: one that is slow is no case.
    """
    every = list(cases)
    if missing := [case for case in slow if case not in every]:
        raise ValueError(f"{missing} are no cases of {every}")
    return sampled(every, *(case for case in every if case not in slow))


def _kept(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) and len(case) == 1 else case


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
