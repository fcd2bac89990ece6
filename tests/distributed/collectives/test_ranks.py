"""Ranks: who has started them, how they know of each other, and what is said of one that fails."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
import torch

from daceml.distributed.agreement import agreed_with_first, differences, require_equal_models
from daceml.distributed.collectives import heartbeat as signs
from daceml.distributed.collectives.array_memory import tensor_at
from daceml.distributed.collectives.heartbeat import Heartbeat
from daceml.distributed.collectives.ranks import launcher, ranks_of
from daceml.errors import DistributedSetupError, RankFailedError, RanksDifferError
from daceml.runtime.collective_log import logged, start_collective_log, stop_collective_log
from tests.support.golden import golden, raises

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}


class Told:
    """Ranks that know the place of the store."""

    name = "told"

    def __init__(self, rank: int, said: list[str]) -> None:
        self.rank, self.size, self.said = rank, 2, said

    def tell(self, text: str) -> str:
        self.said += [text] * (self.rank == 0)
        return self.said[0]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Heartbeat, Heartbeat]]:
    """The signs of two ranks in this process."""
    monkeypatch.setattr(signs, "INTERVAL_S", 0.05)
    monkeypatch.setattr(signs, "_SILENT_S", 0.3)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    said: list[str] = []
    both = [Heartbeat(Told(rank, said), 5.0) for rank in range(2)]  # pyright: ignore[reportArgumentType]
    yield both[0], both[1]
    for one in reversed(both):
        one.end()


@pytest.mark.parametrize(
    ("environment", "who"),
    [
        (TORCHRUN, "torchrun"),
        ({"PMI_RANK": "1"}, "mpirun"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "mpirun"),
        (TORCHRUN | {"PMI_RANK": "1"}, "torchrun"),
        ({"RANK": "0"}, None),
        ({}, None),
    ],
)
def test_the_environment_names_the_launcher(environment: dict[str, str], who: str | None):
    assert launcher(environment) == who


def test_what_is_no_group_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with raises(DistributedSetupError, "MPI", "pip install 'daceml[mpi]'"):
        ranks_of("all", device="cpu", timeout_s=1.0)


def test_ranks_that_keep_up_have_no_problem(pair: tuple[Heartbeat, Heartbeat]):
    assert pair[0].problem("all-reduce 1") is None
    assert pair[1].problem("all-reduce 1") is None


def test_a_rank_that_has_begun_less_does_not_come(pair: tuple[Heartbeat, Heartbeat]):
    pair[0].begun, pair[1].doing = 3, "loading data"
    time.sleep(0.2)
    ranks, why = pair[0].problem("all-reduce 3") or ([], "")
    assert ranks == [1]
    assert why == golden()
    assert all(fact in why for fact in ("rank 1", "all-reduce 3", "0", "loading data"))


def test_a_rank_that_has_ended_has_said_so(pair: tuple[Heartbeat, Heartbeat]):
    pair[1].end()
    ranks, why = pair[0].problem("all-reduce 1") or ([], "")
    assert ranks == [1]
    assert why == golden()
    assert "rank 1" in why


def test_a_silent_rank_is_lost(pair: tuple[Heartbeat, Heartbeat]):
    pair[1].stop()
    ranks, why = pair[0].problem("all-reduce 1") or ([], "")
    assert ranks == [1]
    assert why == golden()
    assert "rank 1" in why and "0.3 s" in why


def test_nobody_waits_for_the_answer_of_a_rank_that_is_gone(pair: tuple[Heartbeat, Heartbeat]):
    pair[1].stop()
    with raises(RankFailedError, "rank 1", "rank 0 of 2", "0.3 s"):
        require_equal_models(pair[0], {"weight": torch.ones(2)}, 60.0)


def test_the_buckets_are_those_of_rank_0(pair: tuple[Heartbeat, Heartbeat]):
    assert agreed_with_first(pair[0], (("a", "b"), ("c",))) == (("a", "b"), ("c",))
    assert agreed_with_first(pair[1], (("c",), ("a",))) == (("a", "b"), ("c",))
    with raises(RanksDifferError, "rank 0") as refusal:
        agreed_with_first(pair[1], (("a", "d"),))
    assert refusal.value.why.endswith(": d")


def test_models_differ_in_their_first_tensor_that_does():
    assert differences(["a: float32[2]"], ["a: float32[2]"]) == ""
    assert differences(["a", "b"], ["a"]) == golden()
    assert differences(["a"], ["c"]) == golden()


def test_memory_is_seen_as_a_tensor_in_any_order():
    kept = torch.arange(6, dtype=torch.float32)
    seen = tensor_at(kept.data_ptr(), (2, 3), (1, 2), torch.float32, torch.device("cpu"))
    assert seen.tolist() == [[0, 2, 4], [1, 3, 5]]
    seen.zero_()
    assert not kept.any()
    assert tensor_at(0, (0, 3), (3, 1), torch.float64, torch.device("cpu")).shape == (0, 3)


def test_collectives_are_logged_while_somebody_records():
    with logged("mpi:all_reduce", torch.ones(3), "mpi", 2):
        pass
    start_collective_log()
    with logged("mpi:all_reduce", torch.ones(3), "mpi", 2):
        time.sleep(0.001)
    (one,) = stop_collective_log()
    assert (one.name, one.elements, one.dtype, one.size) == ("mpi:all_reduce", 3, "float32", 2)
    assert one.end_ns - one.start_ns >= 1_000_000
    assert stop_collective_log() == ()
