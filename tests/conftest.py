"""One cache of compiled things for all runs, never the user's own, and two threads on every machine."""

from __future__ import annotations

import gc
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import alone, golden

_CACHE = Path(__file__).parents[1] / "build" / "test-cache"
_CACHE_BYTES = 3 << 30  # of a cache that many runs have filled; it is emptied beyond
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

# Before any test imports daceml or torch, which read these once. A DACEML_CACHE that is set is kept.
os.environ.setdefault("OMP_NUM_THREADS", "2")
# There are more threads than cores: those that wait would take the time of those that work (40 % of it).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# DaCe would read the whole Python stack for every node that a test adds: deep within pytest, 70 ms each.
os.environ.setdefault("DACE_compiler_lineinfo", "none")
os.environ.setdefault("DACEML_CACHE", str(_CACHE))
# A part that runs eagerly would hide a fault of the compiler; tests of cuts say fullgraph=False.
os.environ.setdefault("DACEML_FULLGRAPH", "1")
# Nor does eager PyTorch run what it runs faster.
os.environ.setdefault("DACEML_MEASURE", "0")
if _IS_WORKER:
    # Each core has a worker already, and kernels that wait for one compiler are compiled together.
    os.environ.setdefault("DACEML_JOBS", "1")

# No test is timed: a busy machine is no fault. `make test` draws fewer examples than `make test-all`.
settings.register_profile("daceml", deadline=None)
settings.register_profile("daceml, quick", settings.get_profile("daceml"), max_examples=30)


def pytest_addoption(parser: pytest.Parser) -> None:
    golden.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    golden.configure(config)
    settings.load_profile("daceml, quick" if config.option.markexpr == "not slow" else "daceml")
    if not _IS_WORKER:
        _bound_cache()


def _bound_cache() -> None:
    if sum(file.stat().st_size for file in _CACHE.rglob("*") if file.is_file()) > _CACHE_BYTES:
        shutil.rmtree(_CACHE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first: none of them is left over for one worker at the end."""

    def shortness(item: pytest.Item) -> int:
        return sum(item.get_closest_marker(mark) is None for mark in ("slow", "timeout"))

    items.sort(key=shortness)


def pytest_collection_finish() -> None:
    """What is collected lives until the end, and need not be looked through for garbage (8 % of the time)."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _turn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that measures (mark `alone`) waits for those of the other workers, and they for it."""
    if not _IS_WORKER:
        yield
        return
    folder = tmp_path_factory.getbasetemp().parent
    with alone.turn(folder, alone=request.node.get_closest_marker("alone") is not None):
        yield


@pytest.fixture(autouse=True)
def _level_of_the_log() -> Iterator[None]:
    """A benchmark that a test calls silences the log, which other tests read."""
    log = logging.getLogger("daceml")
    level = log.level
    yield
    log.setLevel(level)


@pytest.fixture
def no_fallback(monkeypatch: pytest.MonkeyPatch):
    """Neither ONNX Runtime nor torch's dispatcher run what daceml cannot."""
    from daceml.config import config as read_config

    monkeypatch.setenv("DACEML_FALLBACK", "none")
    read_config.cache_clear()
    yield
    monkeypatch.undo()
    read_config.cache_clear()
