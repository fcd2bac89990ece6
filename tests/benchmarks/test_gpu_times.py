"""How times of a device become ratios and bars, told with clocks that say what they are told."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from benchmarks.gpu.bars import bars_of, copy_share
from benchmarks.gpu.precisions import PRECISIONS, compare, computing_in
from benchmarks.gpu.reasons import reason_of
from benchmarks.gpu.table import columns, tables
from benchmarks.gpu.target import Target
from benchmarks.gpu.timing import Step, best_peer, calls_per_batch, measure, row_of
from benchmarks.rounds import Measurement, Slice


def named(name: str) -> Callable[[], Step]:
    """A way whose step knows its name."""

    def step() -> str:
        return name

    return lambda: step


def clock_of(**durations_us: float) -> Callable[[Step, int], float]:
    return lambda step, calls: durations_us[str(step())]


def rounds(**durations_us: float) -> dict[str, Any]:
    entry = {name: Slice(duration_us=us, foreign=0.0) for name, us in durations_us.items()}
    return row_of(Measurement(names=tuple(entry), rounds=(entry,) * 12))


def row(
    kind: str, name: str, mode: str = "inference", precision: str = "tf32", **rest: Any
) -> dict[str, Any]:
    case = f"{name}, {mode}, {precision}"
    head = {"case": case, "kind": kind, "name": name, "mode": mode, "precision": precision, "emulated": False}
    return head | rest


def test_ratios_are_taken_within_rounds_and_a_missing_peer_has_its_reason():
    def absent() -> Step:
        raise RuntimeError("no compiler\nfurther lines")

    ways = {"eager": named("eager"), "inductor": absent, "daceml": named("daceml")}
    seen = measure(ways, clock_of(eager=30.0, daceml=10.0), rounds=6)
    assert seen.ratio("eager", "daceml").value == 3.0
    assert seen.missing == {"inductor": "RuntimeError: no compiler"}
    assert row_of(seen)["speedup"]["median"] == 3.0


def test_a_measurement_without_ours_is_an_error():
    def absent() -> Step:
        raise RuntimeError("no kernels")

    with pytest.raises(RuntimeError, match="no kernels"):
        measure({"eager": named("eager"), "daceml": absent}, clock_of(eager=30.0))


def test_copies_and_variations_are_no_peers():
    seen = measure(
        {name: named(name) for name in ("copy", "automatic", "eager", "daceml")},
        clock_of(copy=1.0, automatic=2.0, eager=9.0, daceml=3.0),
    )
    assert best_peer(seen) == "eager"


@pytest.mark.parametrize(("once_us", "calls"), [(1.0, 2000), (10.0, 1000), (4e6, 1)])
def test_a_batch_is_long_enough_for_events(once_us: float, calls: int):
    assert calls_per_batch(lambda: None, lambda step, count: once_us, 10_000.0) == calls


def test_events_are_read_when_the_device_is_done(monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            told.append("record")

        def synchronize(self) -> None:
            told.append("wait")

        def elapsed_time(self, end: Event) -> float:
            assert told[-1] == "wait"
            return 2.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    assert Target().batch_us(lambda: told.append("step"), 4) == 500.0
    assert told == ["record", "step", "step", "step", "step", "record", "wait"]


def test_a_step_is_captured_after_it_has_run_elsewhere(monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []

    class Stream:
        def wait_stream(self, other: Stream) -> None:
            told.append("wait for a stream")

    class Graph:
        def replay(self) -> None:
            told.append("replay")

    @contextmanager
    def region(name: str) -> Generator[None]:
        told.append(f"enter {name}")
        yield
        told.append(f"leave {name}")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: region("stream"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: told.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: region("capture"))
    Target().replay(lambda: told.append("step"))()
    assert told == [
        "wait for a stream", "enter stream", "step", "step", "step", "leave stream", "wait for a stream",
        "synchronize", "enter capture", "step", "leave capture", "replay",
    ]  # fmt: skip


def test_a_block_that_moves_as_fast_as_a_copy():
    # five tensors in the time in which a copy moves four
    block = row(
        "block", "mish", "training", "fp32",
        replays=rounds(eager=250.0, daceml=100.0, copy=40.0), outside=[], large_tensors=5,
    )  # fmt: skip
    share = copy_share(block)
    assert share is not None and share.value == 1.0
    assert all(bar.met for bar in bars_of([block]))
    block["replays"] = rounds(eager=230.0, daceml=100.0, copy=33.0)
    assert [bar.met for bar in bars_of([block])] == [True, False, False]


def test_networks_are_held_against_torch_compile():
    fast = row(
        "times", "mbconv", calls=rounds(eager=9.0, inductor=6.0, daceml=5.0), replays=rounds(daceml=1.0)
    )
    slow = row(
        "times", "mish", calls=rounds(eager=2.0, inductor=8.0, daceml=10.0), replays=rounds(daceml=1.0)
    )
    mean, slowest = bars_of([fast, slow])
    assert not mean.met
    assert not slowest.met and slowest.note == "mish, inference, tf32"
    mean, slowest = bars_of([fast])
    assert mean.met and slowest.met


def test_a_network_that_failed_is_not_measured():
    fast = row("times", "mbconv", calls=rounds(inductor=6.0, daceml=5.0), replays=rounds(daceml=1.0))
    mean, slowest = bars_of([fast, row("times", "mish", failure="exit code -11")])
    assert mean.figure is None and "mish, inference, tf32" in mean.note
    assert slowest.figure is None


def test_other_bars():
    layer = row(
        "times", "bert", precision="bf16", calls=rounds(daceml=1.0),
        replays=rounds(eager=120.0, inductor=105.0, daceml=100.0),
    )  # fmt: skip
    guided = row(
        "guided", "mbconv, guided", precision="fp32", outside=[],
        replays=rounds(daceml=100.0, automatic=140.0, eager=190.0, cudnn=90.0),
    )  # fmt: skip
    host = row("overhead", "host overhead", overhead_us={"median": 10.4, "low": 9.8, "high": 11.0, "n": 12})
    assert [bar.met for bar in bars_of([layer, guided, host])] == [True, True, True, False]
    layer["replays"] = rounds(eager=120.0, inductor=104.0, daceml=100.0)
    guided["replays"] = rounds(daceml=100.0, automatic=130.0, eager=190.0, cudnn=90.0)
    assert [bar.met for bar in bars_of([layer, guided])] == [False, True, False]


def test_times_in_emulation_are_no_bars():
    block = row("block", "mish", replays=rounds(daceml=9.0, copy=1.0), outside=[], large_tensors=2)
    assert [bar.met for bar in bars_of([block | {"emulated": True}])] == [True]


@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16", "fp16"])
def test_a_limit_takes_roundings_and_nothing_more(name: str):
    precision = PRECISIONS[name]
    reference = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    eager = reference.to(precision.dtype)
    rounded = (reference * (1 + precision.eps / 2)).to(precision.dtype)
    wrong = (reference * (1 + 40 * precision.eps)).to(precision.dtype)

    def passes(result: torch.Tensor) -> bool:
        seen = compare({"y": result}, {"y": eager}, {"y": reference}, precision=precision, depth=16)
        return not seen.failures

    assert passes(rounded) and not passes(wrong)
    assert not passes(rounded.double()), "another element type"


def test_precisions_set_tf32_and_put_it_back():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with computing_in(PRECISIONS["tf32"]):
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
    with computing_in(PRECISIONS["fp32"]):
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)
    assert before == (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)


def test_tables_have_every_kind_of_row():
    rows = [
        row("block", "mish", replays=rounds(eager=3.0, daceml=1.0, copy=1.0), outside=[], large_tensors=2),
        row("times", "mish", calls=rounds(inductor=4.0, daceml=2.0), replays=rounds(daceml=2.0)),
        row("times", "yolov4", failure="exit code -11"),
        row("check", "draws", outside=["two seeds drop the same elements"]),
        row(
            "correctness", "mish", precision="bf16", outside=[],
            worst={"name": "y", "error": 1e-3, "eager_error": 1e-3, "limit": 4e-3},
        ),
    ]  # fmt: skip
    document = {
        "rows": rows, "bars": [bar.as_json() for bar in bars_of(rows)],
        "device": {"gpu": "A Device", "driver": "580.1"},
        "machine": {"commit": "abc", "date": "2026-11-23T01"},
    }  # fmt: skip
    shown = tables([document])
    assert "A Device" in shown[0] and "580.1" in shown[0]
    for case, *figures in (
        ("mish, inference", "100 %"),
        ("mish, inference", "2.000", "inductor 0.004", "daceml 0.002"),
        ("geometric mean", "inference", "2.000", "1 of 2"),
        ("yolov4", "exit code -11"),
        ("draws", "two seeds drop the same elements"),
        ("mish, inference", "0.25"),
        ("MISSED", "draws", "two seeds drop the same elements"),
    ):
        assert any(case in line and all(figure in line for figure in figures) for line in shown), case


def test_columns_stand_under_each_other():
    shown = columns(["a", "b"], [["long cell", "x"], ["y", "and a last one"]])
    assert len({line.index(cell) for line, cell in zip(shown, ("b", "x", "and"), strict=True)}) == 1


def test_a_failed_build_is_told_by_the_compilers_error():
    said = "the compiler failed\n  why:   In file included from k.cpp:3:\n         v.h:9: error: no such"
    assert reason_of(RuntimeError(said)) == "RuntimeError: the compiler failed v.h:9: error: no such"
    assert reason_of(ValueError()) == "ValueError: no message"
