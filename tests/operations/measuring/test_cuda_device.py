"""Measuring a device whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daceml.devices.measured import MeasuredDevice
from daceml.devices.occupancy import occupancy
from daceml.operations.measuring.cuda_device import measure_cuda
from daceml.report.measured_device import measured_device_lines
from tests.operations.measuring import fake_cupy
from tests.support.golden import golden


def driver(threads: int, registers: int, shared: int) -> int:
    return occupancy(90, threads=threads, registers=registers, shared_bytes=shared).blocks


@pytest.fixture(name="measured", scope="module")
def measured_device() -> MeasuredDevice:
    return measure_cuda(fake_cupy.Device(driver).package, 0)


def test_memory_and_cache_are_told_apart(measured: MeasuredDevice):
    assert measured.beyond_caches
    moved = 2 * measured.memory.size_bytes
    expected = moved / (fake_cupy.COPY_S + moved / fake_cupy.MEMORY_BYTES_PER_S)
    assert measured.memory.bytes_per_s == pytest.approx(expected)
    assert measured.memory.spread == pytest.approx(0, abs=1e-9)
    assert measured.cache is not None
    assert 2 * measured.cache.size_bytes <= fake_cupy.CACHE
    assert measured.cache.bytes_per_s > measured.memory.bytes_per_s


def test_launches_one_by_one_and_in_a_graph(measured: MeasuredDevice):
    assert measured.launch_us == pytest.approx(fake_cupy.LAUNCH_S * 1e6)
    assert measured.graph_launch_us == pytest.approx(fake_cupy.REPLAYED_S * 1e6)
    assert measured.call_us > 0


def test_the_drivers_word_on_occupancy_stands_beside_ours(measured: MeasuredDevice):
    assert len(measured.resident) >= 30
    assert len({one.registers for one in measured.resident}) >= 3
    assert not measured.occupancy_differs
    other = measure_cuda(fake_cupy.Device(lambda threads, registers, shared: 1).package, 0)
    assert other.occupancy_differs
    (line,) = [line for line in measured_device_lines(other) if line.startswith("  occupancy")]
    assert line == golden()
    assert f"{len(other.occupancy_differs)} of {len(other.resident)}" in line


def test_a_record_survives_json(measured: MeasuredDevice):
    assert MeasuredDevice.from_dict(measured.as_dict()) == measured
    lines = list(measured_device_lines(measured))
    assert "Planted 1 (cuda" in lines[0]
    assert [line for line in lines if "2.00 us" in line or "0.50 us" in line] == [golden(), golden()]


def test_rates_that_batches_do_not_agree_on_are_marked(measured: MeasuredDevice):
    copies = tuple(replace(one, spread=0.6) for one in measured.copies)
    plain, marked = (
        list(measured_device_lines(one))[1] for one in (measured, replace(measured, copies=copies))
    )
    assert [plain, marked] == [golden(), golden()]
    assert "60%" in marked and plain != marked.replace("60%", "0%")


def test_at_most_an_eighth_of_the_memory_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fake_cupy, "BYTES_FREE", 16 << 20)
    device = fake_cupy.Device(driver)
    found = measure_cuda(device.package, 0)
    assert 2 * max(device.copied) <= (16 << 20) / 8
    assert not found.beyond_caches
    memory = list(measured_device_lines(found))[1]
    assert memory == golden()
    assert "cache" in memory
