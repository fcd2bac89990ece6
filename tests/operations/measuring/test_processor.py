"""The processor as a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.devices.measured import MeasuredDevice
from daceml.errors import ConfigurationError
from daceml.operations.measuring.copies import SMALLEST, copy_rates
from daceml.operations.measuring.processor import last_cache_bytes, measure_processor


@pytest.fixture(scope="module")
def found() -> MeasuredDevice:
    return measure_processor()


@pytest.mark.slow  # it measures this machine for half a minute
def test_this_processor(found: MeasuredDevice):
    assert found.kind == "cpu"
    assert found.threads is not None
    assert found.launch_us is None
    assert found.products.keys() == {"float32", "bfloat16"}
    assert all(1e8 < rate < 1e15 for rate in found.products.values())
    sizes = [one.size_bytes for one in found.copies]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == SMALLEST
    assert all(1e6 < one.bytes_per_s < 1e14 for one in found.copies)
    assert MeasuredDevice.from_dict(found.as_dict()) == found


def test_copies_grow_until_they_are_beyond_the_cache():
    found = copy_rates(lambda size: lambda runs: runs * size / 1e9, largest=1 << 20, free_bytes=1 << 40)
    assert [one.size_bytes for one in found] == [32 << 10, 128 << 10, 512 << 10, 2 << 20]
    assert [one.bytes_per_s for one in found] == pytest.approx([2e9] * 4)


def test_the_last_cache_is_that_of_the_highest_level(tmp_path: Path):
    assert last_cache_bytes(tmp_path) is None
    for index, (level, size) in enumerate([("1", "32K"), ("1", "48K"), ("3", "32768K"), ("2", "1M")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(level + "\n")
        (folder / "size").write_text(size + "\n")
    (tmp_path / "index9").mkdir()  # a level that nobody describes
    assert last_cache_bytes(tmp_path) == 32 << 20


@pytest.mark.parametrize("change", [{"copies": []}, {"colour": "green"}, {"copies": [{"size": 1}]}])
def test_what_is_no_record_is_refused(found: MeasuredDevice, change: dict[str, object]):
    values = {**found.as_dict(), **change}
    with pytest.raises(ConfigurationError) as caught:
        MeasuredDevice.from_dict(values)
    assert caught.value.fix
