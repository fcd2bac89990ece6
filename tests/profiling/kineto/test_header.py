"""What files say of the run, and what they say wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from daceml.profiling.kineto.header import header_of
from tests.support.golden import golden


def test_devices_ranks_and_the_rest():
    said = {
        "deviceProperties": [{"id": 0, "numSms": 80}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "baseTimeNanoseconds": 5_000,
        "schemaVersion": 1,
    }
    found = header_of(said)
    assert (found.devices[0]["numSms"], found.rank, found.world_size, found.base_us) == (80, 3, 8, 5)
    assert set(found.rest) == {"distributedInfo", "baseTimeNanoseconds", "schemaVersion"}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ({"deviceProperties": {}}, ["'deviceProperties'"]),
        ({"deviceProperties": [1]}, ["'deviceProperties'"]),
        ({"distributedInfo": 4}, ["'distributedInfo'"]),
        ({"distributedInfo": {"rank": "3"}}, ["'rank'", "'distributedInfo'", "'3'"]),
        ({"distributedInfo": {"rank": -1}}, ["'rank'", "'distributedInfo'", "-1"]),
        ({"distributedInfo": {"world_size": 0}}, ["'world_size'", "'distributedInfo'", "0"]),
        ({"baseTimeNanoseconds": "1"}, ["'baseTimeNanoseconds'"]),
        ({"distributedInfo": {"rank": 9, "world_size": 8}}, ["rank", "9", "8"]),
    ],
)
def test_what_is_wrong_is_ignored_and_told(said: dict[str, Any], facts: list[str]):
    found = header_of(said)
    assert found.notes == (golden(),)
    assert all(fact in found.notes[0] for fact in facts)
    assert (found.devices, found.world_size, found.base_us) == ((), None, 0)
