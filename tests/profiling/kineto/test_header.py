"""What files say of the run, and what they say wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from daceml.profiling.kineto.header import header_of


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
    ("said", "note"),
    [
        ({"deviceProperties": {}}, "'deviceProperties' of the file is no list of objects, and was ignored"),
        ({"deviceProperties": [1]}, "'deviceProperties' of the file is no list of objects, and was ignored"),
        ({"distributedInfo": 4}, "'distributedInfo' of the file is no object, and was ignored"),
        ({"distributedInfo": {"rank": "3"}}, "'rank' of 'distributedInfo' is '3', and was ignored"),
        ({"distributedInfo": {"rank": -1}}, "'rank' of 'distributedInfo' is -1, and was ignored"),
        ({"distributedInfo": {"world_size": 0}}, "'world_size' of 'distributedInfo' is 0, and was ignored"),
        ({"baseTimeNanoseconds": "1"}, "'baseTimeNanoseconds' of the file is no number, and was ignored"),
        (
            {"distributedInfo": {"rank": 9, "world_size": 8}},
            "the file says that it is rank 9 of 8: the number of ranks was ignored",
        ),
    ],
)
def test_what_is_wrong_is_ignored_and_told(said: dict[str, Any], note: str):
    found = header_of(said)
    assert found.notes == (note,)
    assert (found.devices, found.world_size, found.base_us) == ((), None, 0)
