"""Lines about a step that takes long: soon after it begins, and then every few seconds."""

from __future__ import annotations

import time

import pytest

from daceml.runtime import progress_lines as lines
from daceml.runtime.progress import publish
from daceml.runtime.progress_lines import EVERY_S, FIRST_S, progress_lines
from tests.support.waiting import until


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "FIRST_S", 0.0)
    monkeypatch.setattr(lines, "EVERY_S", 0.01)


def test_the_intervals_keep_the_promise():
    assert FIRST_S < 1
    assert EVERY_S < 5


def test_a_short_step_prints_nothing():
    heard: list[str] = []
    with progress_lines(heard.append):
        publish("export")
    assert heard == []


def test_a_step_that_is_known_to_be_long_prints_at_once():
    heard: list[str] = []
    with progress_lines(heard.append, "compiling Net", at_once=True):
        assert heard == ["compiling Net (0 s)"]


@pytest.mark.usefixtures("fast")
def test_lines_say_the_stage_its_parts_and_the_remaining_time():
    heard: list[str] = []
    with progress_lines(heard.append, "compiling Net"):
        until(lambda: len(heard) > 1)
        publish("export")
        until(lambda: "capturing the model" in heard[-1])
        publish("kernels", 1, 4)
        until(lambda: "1 of 4" in heard[-1])
        publish("a stage of the user")
        until(lambda: "a stage of the user" in heard[-1])
    count = len(heard)
    assert heard[0].startswith("compiling Net (0 s)")
    assert all(line.startswith("compiling Net") and line.endswith(" s)") for line in heard)
    (parts, *_) = [line for line in heard if "1 of 4" in line]
    assert "compiling kernels, 1 of 4, about " in parts and " s left" in parts
    time.sleep(0.05)
    assert len(heard) == count, "the thread ends with the block"


@pytest.mark.usefixtures("fast")
def test_the_thread_ends_where_the_block_fails():
    heard: list[str] = []
    with pytest.raises(ValueError, match="no"), progress_lines(heard.append):  # noqa: PT012
        until(lambda: bool(heard))
        raise ValueError("no")
    count = len(heard)
    time.sleep(0.05)
    assert len(heard) == count
    assert heard[0].startswith("starting")
