"""Which rank a recording is of: the name of its file, and what its header says."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.profiling.recording.collectives import collective_events
from daceml.profiling.recording.ranks import Place, path_of, place_in, rank_facts
from daceml.runtime.collective_log import LoggedCollective


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, Place(rank=1, size=4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, Place(rank=2, size=3)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, Place(rank=0, size=2)),
        ({"RANK": "1"}, Place()),
        ({"RANK": "one", "WORLD_SIZE": "two"}, Place()),
        ({}, Place()),
    ],
)
def test_a_launcher_tells_the_rank(environment: dict[str, str], place: Place):
    assert place_in(environment) == place


@pytest.mark.parametrize(
    ("name", "of_rank"),
    [("run.json.gz", "run_rank3.json.gz"), ("run.json", "run_rank3.json"), ("run", "run_rank3")],
)
def test_each_rank_has_a_file_of_its_own(name: str, of_rank: str):
    assert path_of(Path("traces", name), Place(rank=3, size=4)) == Path("traces", of_rank)
    assert path_of(Path("traces", name), Place()) == Path("traces", name)


def test_the_header_knows_ranks_on_one_machine_and_not_its_name():
    first, second = (rank_facts(Place(rank=rank, size=2)) for rank in range(2))
    assert first is not None and second is not None
    assert (first["rank"], second["rank"], first["size"]) == (0, 1, 2)
    assert first["host"] == second["host"] and len(first["host"]) == 12
    assert rank_facts(Place()) is None


def test_collectives_that_torch_does_not_see_are_events_like_its_own():
    one = LoggedCollective(
        name="mpi:all_reduce",
        thread=7,
        start_ns=2_000_000,
        end_ns=2_500_000,
        elements=10,
        dtype="float32",
        group="mpi",
        size=2,
        sequence=4,
    )
    (event,) = collective_events([one], 1_000_000)
    assert (event["name"], event["tid"], event["ts"], event["dur"]) == ("mpi:all_reduce", 7, 1000.0, 500.0)
    assert event["args"]["Collective name"] == "allreduce" and event["args"]["Seq"] == 4
    assert event["args"]["In msg nelems"] == 10 and event["args"]["Group size"] == 2
