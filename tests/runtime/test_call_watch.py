"""Calls of C functions are noticed before they run, natively and in Python alike."""

from __future__ import annotations

import io
import sys
import time
import types
from typing import Any

import pytest

from daceml.config import config
from daceml.runtime import call_watch
from daceml.runtime.call_watch import watched_calls
from daceml.runtime.launcher import build_launcher
from daceml.toolchain.cache import Cache


@pytest.fixture(params=["native", "Python"])
def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "native":
        build_launcher(Cache(config().cache_folder))
    else:
        monkeypatch.setattr(call_watch, "is_built", lambda cache: False)
    return request.param


def test_functions_and_methods_are_noticed_before_they_run(watched: str):
    seen: list[tuple[str, int]] = []
    text = io.StringIO()

    def notice(frame: types.FrameType, function: Any) -> None:
        if function is time.perf_counter or function.__name__ == "write":
            seen.append((frame.f_code.co_name, len(text.getvalue())))

    def writes() -> None:
        text.write("abc")
        sorted([2, 1])
        text.write("d")

    with watched_calls([time.perf_counter], ["write"], notice):
        writes()
        time.perf_counter()
    writes()
    assert seen == [
        ("writes", 0),
        ("writes", 3),
        ("test_functions_and_methods_are_noticed_before_they_run", 4),
    ]


def test_what_is_raised_takes_the_place_of_the_call(watched: str):
    text = io.StringIO()

    def refuse(frame: types.FrameType, function: Any) -> None:
        if function.__name__ == "write":
            raise PermissionError("no writing")

    with pytest.raises(PermissionError, match="no writing"), watched_calls([], ["write"], refuse):
        text.write("abc")
    assert text.getvalue() == "" and sys.getprofile() is None
    text.write("abc")


def test_a_profiler_of_the_user_goes_on(watched: str):
    events: list[str] = []

    def profiler(frame: types.FrameType, event: str, function: Any) -> None:
        events.append(event)

    sys.setprofile(profiler)
    try:
        with watched_calls([], ["write"], lambda frame, function: None):
            events.clear()
            len([])
            assert not events
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)


def test_only_chosen_calls_reach_python():
    build_launcher(Cache(config().cache_folder))
    seen: list[Any] = []
    with watched_calls([time.time], ["write"], lambda frame, function: seen.append(function)):
        for _ in range(3):
            len([])
            max(1, 2)
        time.time()
    assert [f for f in seen if f is not sys.setprofile] == [time.time]
