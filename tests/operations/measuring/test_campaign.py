"""Campaigns as stories: workers that measure, refuse, die and are interrupted."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daceml.errors import MeasurementError
from daceml.operations.database.records import Duration, Entry, Environment, Operation
from daceml.operations.database.store import OpDatabase
from daceml.operations.measuring import one_operation
from daceml.operations.measuring.calls import Call, Tensor
from daceml.operations.measuring.campaign import Campaign, Job, Standing, measured_entry
from daceml.operations.measuring.executors import InProcess, of_client, processes
from daceml.operations.measuring.machine import environment
from daceml.operations.measuring.one_operation import Settings
from tests.operations.measuring.ticking import Ticking
from tests.support.golden import golden

HERE = Environment(device="Planted 1", fingerprint="cores=2", software={"torch": "2.13.0"})
QUICK = Settings(rounds=3)


class Memory:
    """A sink that forgets with the test."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def find(self, operation: Operation, *, device: str) -> Sequence[Entry]:
        return [e for e in self.entries if e.operation == operation and e.environment.device == device]


def job(size: int) -> Job:
    return Job(call=Call(operator="aten::relu", args=(Tensor(shape=(size,), strides=(1,), dtype="float32"),)))


def planted(one: Job, settings: Settings, *, asked: list[int] | None = None) -> Entry:
    (size,) = one.call.tensors[0].shape
    if asked is not None:
        asked.append(size)
    if size == 13:
        raise MeasurementError("13 is not measured", why="it is unlucky")
    if size == 14:
        raise ZeroDivisionError("a fault")
    if size == 15:
        raise KeyboardInterrupt
    return Entry(
        operation=one.operation,
        environment=HERE,
        duration=Duration(median_s=size * 1e-6, mode=settings.mode),
        provenance="measured",
        source="planted",
        licence="CC0-1.0",
        date="2026-11-23",
    )


def campaign(**given: Any) -> Campaign:
    return Campaign(**{"executor": InProcess, "where": HERE, "measure_job": planted, **given})


def test_what_is_known_is_not_measured_again():
    sink, asked = Memory(), list[int]()
    work = campaign(measure_job=partial(planted, asked=asked))
    first = work.run([job(1), job(2), job(1)], sink)
    assert len(first.measured) == 2 and asked == [1, 2], "equal jobs once"
    second = work.run([job(1), job(2), job(3)], sink)
    assert second.known == 2 and asked == [1, 2, 3]


@pytest.mark.parametrize(
    "elsewhere",
    [
        Environment(device="Planted 1", fingerprint="cores=4", software={"torch": "2.13.0"}),
        Environment(device="Planted 1", fingerprint="cores=2", software={"torch": "2.14.0"}),
        Environment(device="Planted 2", fingerprint="cores=2", software={"torch": "2.13.0"}),
    ],
    ids=["another board", "another version", "another device"],
)
def test_what_is_known_of_elsewhere_is_measured_here(elsewhere: Environment):
    sink = Memory()
    campaign().run([job(1)], sink)
    assert campaign(where=elsewhere).run([job(1)], sink).known == 0
    assert campaign(settings=Settings(mode="cold")).run([job(1)], sink).known == 0


def test_one_refusal_ends_no_campaign():
    outcome = campaign().run([job(12), job(13), job(14), job(16)], Memory())
    assert [entry.duration.median_s for entry in outcome.measured] == [12e-6, 16e-6]
    assert [one.reason for one in outcome.refused] == [
        "13 is not measured: it is unlucky",
        "ZeroDivisionError: a fault",
    ]
    assert not outcome.left and not outcome.interrupted


def test_time_left_follows_from_the_pace_so_far():
    now, told = [0.0], list[Standing]()

    def slow(one: Job, settings: Settings) -> Entry:
        now[0] += 10
        return planted(one, settings)

    sink = Memory()
    campaign().run([job(1)], sink)
    work = campaign(measure_job=slow, clock_s=lambda: now[0], observe=told.append)
    work.run([job(n) for n in (1, 2, 3, 4)], sink)
    assert [(one.done, one.total, one.left_s) for one in told] == [(2, 4, 20), (3, 4, 10), (4, 4, 0)]


def test_a_budget_leaves_the_rest_for_the_next_time():
    now = [0.0]

    def slow(one: Job, settings: Settings) -> Entry:
        now[0] += 10
        return planted(one, settings)

    sink = Memory()
    work = campaign(measure_job=slow, clock_s=lambda: now[0], budget_s=15)
    outcome = work.run([job(n) for n in (1, 2, 3, 4)], sink)
    assert len(outcome.measured) == 2 and outcome.left == (job(3), job(4))
    assert work.run([job(n) for n in (1, 2, 3, 4)], sink).known == 2


def test_ctrl_c_keeps_what_is_measured():
    sink = Memory()
    outcome = campaign().run([job(1), job(15), job(2)], sink)
    assert outcome.interrupted
    assert len(sink.entries) == len(outcome.measured) == 1
    assert set(outcome.left) >= {job(2)}


class Mortal(Executor):
    """Its worker dies of 66, and takes along what else is there."""

    def __init__(self) -> None:
        self.flying: list[tuple[Job, Future[Entry]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Entry]:
        future: Future[Entry] = Future()
        self.flying.append((args[0], future))
        sizes = [one.call.tensors[0].shape[0] for one, _ in self.flying]
        if 66 in sizes:
            if len(sizes) == 2 or sizes == [66]:
                for _, other in self.flying:
                    other.set_exception(BrokenExecutor("a process ended abruptly"))
        else:
            future.set_result(fn(*args, **kwargs))
            self.flying.clear()
        return future


def test_a_job_that_kills_its_worker_is_found_and_refused():
    made: list[Mortal] = []

    def executor() -> Mortal:
        made.append(Mortal())
        return made[-1]

    outcome = campaign(executor=executor, workers=1).run([job(1), job(66), job(2)], Memory())
    (refused,) = outcome.refused
    assert refused.reason == golden()
    assert "a process ended abruptly" in refused.reason
    assert len(outcome.measured) == 2 and len(made) == 2, "a new executor for the rest"


def end_of_process(one: Job, settings: Settings) -> Entry:
    if one.call.tensors[0].shape == (66,):
        os._exit(3)
    return planted(one, settings)


def test_processes_of_their_own(tmp_path: Path):
    with OpDatabase(tmp_path / "m.db") as sink:
        outcome = campaign(executor=processes(1), measure_job=end_of_process).run(
            [job(1), job(66), job(13), job(2)], sink
        )
        assert len(sink) == len(outcome.measured) == 2
    reasons = [one.reason for one in outcome.refused]
    assert len(reasons) == 2
    assert "process" in reasons[0] and "13" in reasons[1]


def test_an_operation_is_measured_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_operation, "stopwatch_of", lambda settings: Ticking())
    work = Campaign(executor=InProcess, settings=QUICK)
    with OpDatabase(tmp_path / "m.db") as sink:
        outcome = work.run([job(1000)], sink)
        (entry,) = outcome.measured
        assert entry.duration.median_s > 0 and entry.environment == environment()
        assert work.run([job(1000)], sink).known == 1
    assert measured_entry(job(1000), QUICK).operation == entry.operation


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="dask is not installed")
@pytest.mark.filterwarnings("ignore")  # of a library that is none of ours
def test_a_cluster_of_two_workers(tmp_path: Path):
    from distributed import Client, LocalCluster  # pyright: ignore[reportMissingImports]

    odd = Job(call=Call(operator="aten::nonzero", args=job(4).call.args))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        OpDatabase(tmp_path / "m.db") as sink,
    ):
        work = Campaign(executor=of_client(client), workers=2, settings=QUICK)
        outcome = work.run([job(100), job(200), odd, job(300)], sink)
        assert len(sink) == len(outcome.measured) == 3
        assert [one.reason.partition(":")[0] for one in outcome.refused] == ["aten"]
        assert work.run([job(400)], sink).measured, "the client is left open"
