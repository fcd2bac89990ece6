"""One cache of compiled things for all runs of tests, never the user's own, and two threads on every machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_CACHE = Path(__file__).parents[1] / "build" / "test-cache"
_CACHE_BYTES = 3 << 30  # of a cache that many runs have filled; it is emptied beyond

# Before any test imports daceml or torch, which read these once. A DACEML_CACHE that is set is kept.
os.environ.setdefault("OMP_NUM_THREADS", "2")
# DaCe would read the whole Python stack for every node that a test adds: deep within pytest, 70 ms each.
os.environ.setdefault("DACE_compiler_lineinfo", "none")
os.environ.setdefault("DACEML_CACHE", str(_CACHE))
if "PYTEST_XDIST_WORKER" in os.environ:
    # Each core has a worker already, and kernels that wait for one compiler are compiled together.
    os.environ.setdefault("DACEML_JOBS", "1")

import pytest  # after the environment is set
from hypothesis import settings

from tests.support import golden

# No test is timed: a busy machine is no fault.
settings.register_profile("daceml", deadline=None)
settings.load_profile("daceml")


def pytest_addoption(parser: pytest.Parser) -> None:
    golden.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    golden.configure(config)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        _bound_cache()


def _bound_cache() -> None:
    if sum(file.stat().st_size for file in _CACHE.rglob("*") if file.is_file()) > _CACHE_BYTES:
        shutil.rmtree(_CACHE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow tests come first: none of them is left over for one worker at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
