"""Decisions in the cache: read again, searched once, and never half-written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from daceml.toolchain.cache import Cache
from daceml.tuning import decision_store as store
from daceml.tuning.decision import Decision, Measured, Trial
from daceml.tuning.decision_store import stored_decision

TRIALS = (
    Trial(choices=(), outcome="standard recipe", predicted_ms=1.0, measured=Measured(ms=1.5, rounds=21)),
    Trial(choices=("a", "b"), outcome="chosen", measured=Measured(ms=1, ratio=0.7, low=0.6, high=0.8)),
    Trial(choices=("c",), outcome="refused", why="no such kernel"),
)


def made(budget_s: float, *, complete: bool = True) -> Decision:
    return Decision(
        choices=("a", "b"), trials=TRIALS, spent_s=1.0, budget_s=budget_s, complete=complete, key="k"
    )


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_a_decision_is_read_as_it_was_written(cache: Cache):
    first = stored_decision(cache, "key", 5.0, made)
    assert first == made(5.0)
    assert stored_decision(Cache(cache.root), "key", 5.0, lambda _: pytest.fail("searched again")) == first
    assert stored_decision(cache, "key", None, lambda _: pytest.fail("searched again")) == first


def test_another_program_and_another_machine_are_searched(cache: Cache, monkeypatch: pytest.MonkeyPatch):
    stored_decision(cache, "key", 5.0, made)
    seen: list[float] = []
    stored_decision(cache, "other", 5.0, lambda budget_s: seen.append(budget_s) or made(budget_s))
    monkeypatch.setattr(store, "fingerprint", lambda: "another processor, 64 cores, 64 threads")
    stored_decision(cache, "key", 5.0, lambda budget_s: seen.append(budget_s) or made(budget_s))
    assert seen == [5.0, 5.0]


def test_an_unfinished_search_stands_for_its_budget_alone(cache: Cache):
    stored_decision(cache, "key", 1.0, lambda budget_s: made(budget_s, complete=False))
    again = stored_decision(cache, "key", 1.0, lambda _: pytest.fail("searched again"))
    assert not again.complete
    assert stored_decision(cache, "key", 9.0, made).budget_s == 9.0


def test_of_two_threads_one_searches(cache: Cache):
    seen: list[float] = []

    def slow(budget_s: float) -> Decision:
        seen.append(budget_s)
        time.sleep(0.2)
        return made(budget_s)

    found: list[Decision] = []
    threads = [
        threading.Thread(target=lambda: found.append(stored_decision(cache, "key", 5.0, slow)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [5.0] and found == [made(5.0)] * 3


def test_an_interrupted_search_leaves_nothing(cache: Cache):
    def interrupted(budget_s: float) -> Decision:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored_decision(cache, "key", 5.0, interrupted)
    assert not list((cache.root / "building").iterdir())
    assert not [entry for entry in (cache.root / "decisions").iterdir() if entry.is_dir()]
    assert stored_decision(cache, "key", 5.0, made) == made(5.0)
