"""A pytest plugin that writes a line of JSON for each test: `pytest -p benchmarks.test_suite.recorder`.

`$TEST_TIMES` names the folder; every process writes one file there. Without it nothing is recorded.
`$TEST_ORDER`, a number, has the tests run in the random order of that number.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.test_suite.causes import Clock, Probes

_FOLDER, _ORDER = "TEST_TIMES", "TEST_ORDER"
_BEGUN = time.perf_counter()


class Recorder:
    """Writes what each test of this process took, and why."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self._clock = Clock()
        self._probes = Probes(self._clock)
        self._pid = os.getpid()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None]:
        """Collecting imports what tests import."""
        result = yield
        self._write("collection", time.perf_counter() - _BEGUN, {})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        self._probes.attach()
        self._clock.take()
        start, cpu = time.perf_counter(), _cpu_s()
        result = yield
        spent = [now - then for now, then in zip(_cpu_s(), cpu, strict=True)]
        self._write(item.nodeid, time.perf_counter() - start, {"own_cpu": spent[0], "children_cpu": spent[1]})
        return result

    def _write(self, test: str, wall_s: float, more: dict[str, float]) -> None:
        if os.getpid() != self._pid:  # a fork that came back here
            return
        line: dict[str, Any] = {
            "test": test,
            "wall_s": round(wall_s, 4),
            **{name: round(value, 4) for name, value in more.items()},
            "causes": self._clock.take(),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _cpu_s() -> tuple[float, float]:
    """Processor seconds of this process and of its children that have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if seed := os.environ.get(_ORDER):
        random.Random(seed).shuffle(items)


def pytest_configure(config: pytest.Config) -> None:
    if folder := os.environ.get(_FOLDER):
        config.pluginmanager.register(Recorder(Path(folder)), "daceml-test-times")
