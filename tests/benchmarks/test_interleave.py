"""Processes that are asked in turn; the steps here sleep, so that no number depends on the machine."""

from __future__ import annotations

import itertools
import os
import time
from functools import partial
from types import SimpleNamespace

import pytest

from benchmarks import interleave
from benchmarks.interleave import TUNED_ALLOCATOR, Step, Variant, calls_per_batch, measure, time_slice
from benchmarks.rounds import MINIMUM_ROUNDS
from tests.support.golden import raises


def build_sleep(seconds: float) -> Step:
    return partial(time.sleep, seconds)


def build_if_environment(name: str, value: str) -> Step:
    if os.environ.get(name) != value:
        raise LookupError(f"{name} is {os.environ.get(name)!r}")
    return build_sleep(0.001)


def build_nothing() -> Step:
    raise LookupError("there is no such peer")


def test_two_variants_in_processes_of_their_own():
    # foreign_limit 1: a sleep uses no time of the machine, so that whatever else runs may keep running.
    seen = measure(
        [
            Variant(name="short", build=partial(build_sleep, 0.002)),
            Variant(name="long", build=partial(build_sleep, 0.008)),
        ],
        rounds=6,
        slice_s=0.02,
        foreign_limit=1.0,
    )
    assert len(seen.rounds) == 6
    assert seen.measured
    # A sleep never ends early; on a busy machine it ends late, which only brings the two closer.
    assert seen.duration_us("short").low >= 2000
    assert seen.duration_us("long").low >= 8000
    assert 1.0 < seen.ratio("long", "short").value <= 4.0


def test_a_variants_environment_reaches_its_process_and_not_ours():
    name, value = next(iter(TUNED_ALLOCATOR.items()))
    measure(
        [
            Variant(name="allocator", build=partial(build_if_environment, name, value)),
            Variant(
                name="own",
                build=partial(build_if_environment, "DACEML_BENCHMARK_TEST", "1"),
                environment={"DACEML_BENCHMARK_TEST": "1"},
            ),
        ],
        rounds=1,
        slice_s=0.002,
        patience=1,
    )
    assert "DACEML_BENCHMARK_TEST" not in os.environ
    assert os.environ.get(name) != value


def test_a_variant_that_fails_says_so_with_its_traceback():
    with raises(RuntimeError, "'peer'", "there is no such peer", exact=False):
        measure([Variant(name="peer", build=build_nothing)], rounds=1)


def test_what_may_be_missing_leaves_the_others_measured():
    seen = measure(
        [
            Variant(name="ours", build=partial(build_sleep, 0.001)),
            Variant(name="peer", build=build_nothing, optional=True),
        ],
        rounds=1,
        slice_s=0.002,
        patience=1,
    )
    assert seen.names == ("ours",)
    assert seen.missing == {"peer": "LookupError: there is no such peer"}


def test_a_variant_may_have_the_allocator_of_the_machine(monkeypatch: pytest.MonkeyPatch):
    name = next(iter(TUNED_ALLOCATOR))
    monkeypatch.setenv(name, "65536")
    build = partial(build_if_environment, name, "65536")
    seen = measure([Variant(name="own", build=build, allocator={})], rounds=1, slice_s=0.002, patience=1)
    assert len(seen.rounds) == 1


def test_no_round_begins_after_the_limit():
    seen = measure([Variant(name="short", build=partial(build_sleep, 0.001))], slice_s=0.002, limit_s=0.0)
    assert len(seen.rounds) == 1


def test_twice_the_limit_is_for_as_many_rounds_as_an_interval_needs(monkeypatch: pytest.MonkeyPatch):
    seconds = itertools.count()  # a round takes one
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), perf_counter=time.perf_counter)
    monkeypatch.setattr(interleave, "time", clock)
    variant = Variant(name="short", build=partial(build_sleep, 0.001))
    for foreign_limit, rounds in ((1.0, MINIMUM_ROUNDS), (-1.0, 9)):
        seen = measure([variant], slice_s=0.002, foreign_limit=foreign_limit, limit_s=4.5)
        assert len(seen.rounds) == rounds


def test_names_have_to_differ():
    twice = Variant(name="same", build=partial(build_sleep, 0.0))
    with raises(ValueError, "('same', 'same')"):
        measure([twice, twice])


def test_short_steps_are_timed_in_batches():
    assert calls_per_batch(partial(time.sleep, 0.002)) == 1
    assert calls_per_batch(lambda: None) > 100


def test_a_slice_holds_at_least_one_batch():
    assert len(time_slice(partial(time.sleep, 0.001), 0.0, 2)) == 1
