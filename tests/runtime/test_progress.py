"""Progress reaches the observer of its own context, and nobody else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from daceml.runtime.progress import Progress, observed_by, publish
from tests.support.small_networks import build, elementwise


def test_an_observer_hears_what_is_published_in_its_block():
    heard: list[Progress] = []
    publish("before")
    with observed_by(heard.append):
        publish("kernels", 1, 2)
    publish("after")
    assert heard == [Progress(stage="kernels", done=1, total=2)]


def test_the_inner_observer_takes_over_and_the_outer_one_comes_back_after_an_error():
    outer: list[Progress] = []
    inner: list[Progress] = []

    def fail() -> None:
        with observed_by(inner.append):
            publish("a")
            raise ValueError("stop")

    with observed_by(outer.append):
        with pytest.raises(ValueError, match="stop"):
            fail()
        publish("b")
    assert [p.stage for p in inner] == ["a"] and [p.stage for p in outer] == ["b"]


def test_another_thread_is_not_heard():
    heard: list[Progress] = []
    with observed_by(heard.append):
        other = threading.Thread(target=publish, args=("elsewhere",))
        other.start()
        other.join()
    assert heard == []


def test_building_a_program_counts_its_kernels(tmp_path: Path):
    heard: list[Progress] = []
    with observed_by(heard.append):
        build(elementwise(["_out = _a + dace.float32(41)", "_out = _a * dace.float32(43)"]), tmp_path)
    kernels = [(p.done, p.total) for p in heard if p.stage == "kernels"]
    assert kernels == [(0, 2), (1, 2), (2, 2)]
    assert [(p.done, p.total) for p in heard if p.stage == "code"] == [(0, 2), (1, 2)]
