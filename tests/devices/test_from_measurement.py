"""Devices that were measured: a processor, and a card that the catalogue knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daceml.devices.catalogue import catalogue, find_device, find_devices
from daceml.devices.from_measurement import device_from, devices_of_measurement
from daceml.devices.measured import CopyRate, MeasuredDevice
from daceml.errors import ConfigurationError, DacemlError, DeviceError
from tests.support.golden import golden, raises


def copies(*rates: tuple[int, float]) -> tuple[CopyRate, ...]:
    return tuple(CopyRate(size_bytes=size, bytes_per_s=rate, spread=0.01) for size, rate in rates)


PROCESSOR = MeasuredDevice(
    name="A processor", kind="cpu", threads=2, cache_bytes=1 << 20, call_us=0.5, versions={},
    date="2026-11-23",
    copies=copies((1 << 16, 80e9), (1 << 18, 90e9), (1 << 22, 20e9)), products={"float32": 1e11},
)  # fmt: skip
CARD = MeasuredDevice(
    name="NVIDIA H200", kind="cuda", cache_bytes=60 << 20, call_us=1.0, launch_us=2.5, graph_launch_us=1.25,
    versions={}, date="2026-11-23", copies=copies((1 << 20, 5e12), (1 << 30, 4.2e12)),
)  # fmt: skip


def test_a_processor_is_a_device():
    found = device_from(PROCESSOR)
    assert (found.name, found.kind, found.compute_capability) == ("A processor", "cpu", None)
    assert {label: figure.value for label, figure in found.figures()} == {
        "multiprocessors": 2, "achieved_bytes_per_s": 20e9, "l2_bytes": 1 << 20, "l2_bytes_per_s": 90e9,
        "floor_us": 0.5, "achieved_gemm_flops_per_s.float32": 1e11,
    }  # fmt: skip
    assert found.unverified == ()
    assert found.floor_us is not None
    assert "daceml doctor --measure" in found.floor_us.source and "2026-11-23" in found.floor_us.source


def test_a_card_keeps_its_data_sheet():
    known = find_device("H200")
    found = device_from(CARD, known)
    assert found.name == "H200-SXM-141GB" and found.multiprocessors == known.multiprocessors
    values = {label: figure.value for label, figure in found.figures()}
    assert values["memory_bytes_per_s"] == 4.8e12
    assert (values["achieved_bytes_per_s"], values["l2_bytes_per_s"]) == (4.2e12, 5e12)
    assert values["l2_bytes"] == 60 << 20, "what the driver says counts above the data sheet"
    assert values["floor_us"] == 1.25, "kernels of a graph are nearest to what an empty kernel takes"


def test_a_copy_within_the_cache_says_nothing_of_memory():
    small = MeasuredDevice(
        name="A",
        kind="cpu",
        cache_bytes=1 << 30,
        call_us=1,
        versions={},
        date="",
        copies=copies((1 << 20, 9e9)),
    )
    found = device_from(small)
    assert found.achieved_bytes_per_s is None
    assert found.notes == (golden(),)
    card = device_from(
        MeasuredDevice(
            name="H200",
            kind="cuda",
            cache_bytes=None,
            call_us=1,
            versions={},
            date="x",
            copies=copies((1, 9e12)),
        ),
        find_device("H200"),
    )
    assert card.achieved_bytes_per_s == find_device("H200").achieved_bytes_per_s
    assert card.floor_us is None and card.l2_bytes == find_device("H200").l2_bytes


def test_a_rate_above_the_peak_is_of_another_device():
    with raises(DeviceError, "A100-SXM4-80GB", "achieved_bytes_per_s", "4.2e+12", "2.039e+12"):
        device_from(CARD, find_device("A100"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "devices.json"
    file.write_text(json.dumps({"findings": [], "devices": [PROCESSOR.as_dict(), CARD.as_dict()]}))
    return file


def test_what_doctor_wrote(written: Path):
    processor, card = devices_of_measurement(written, catalogue())
    assert processor == device_from(PROCESSOR)
    assert card == device_from(CARD, find_device("H200"))
    assert devices_of_measurement(written)[1].multiprocessors is None, "nobody knows the card by its name"
    assert find_devices(str(written)) == (processor, card)
    with raises(DeviceError, '"devices"') as caught:
        find_device(str(written))
    assert caught.value.why == "A processor, H200-SXM-141GB"


@pytest.mark.parametrize(
    ("text", "kind", "fact", "exact"),
    [
        ("{", DeviceError, "line 1 column 2", False),
        ("[]", DeviceError, '"devices"', True),
        ('{"devices": []}', DeviceError, '"devices"', True),
        ('{"devices": 3}', DeviceError, '"devices"', True),
        ('{"devices": [3]}', ConfigurationError, "TypeError", False),
        (
            '{"devices": [{"copies": [], "resident": [], "name": "Mine", "kind": "cpu", "cache_bytes": null, '
            '"call_us": 1, "versions": {}, "date": ""}]}',
            ConfigurationError,
            "Mine",
            True,
        ),
        ('{"devices": [{"name": "A"}]}', ConfigurationError, "KeyError: 'copies'", True),
    ],
    ids=["no JSON", "a list", "no device", "no list", "a number", "no copies", "a name alone"],
)  # fmt: skip
def test_a_file_that_is_wrong(tmp_path: Path, text: str, kind: type[DacemlError], fact: str, exact: bool):
    file = tmp_path / "a.json"
    file.write_text(text)
    with raises(kind, fact, "daceml doctor --measure --json", exact=exact) as caught:
        devices_of_measurement(file)
    assert caught.value.where == str(file)


def test_a_file_that_is_not_there():
    with raises(DeviceError, "nowhere.json", "No such file", exact=False):
        devices_of_measurement(Path("nowhere.json"))
