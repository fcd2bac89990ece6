"""One communication, as all of its members saw it."""

from __future__ import annotations

from daceml.errors import MatchingError
from daceml.simulation.distributed.communication import CommunicationKind
from daceml.simulation.distributed.matching import matched
from daceml.simulation.distributed.rank_run import rank_run
from tests.support.golden import golden, raises
from tests.support.recorded_ranks import RankRecording, run_of


def two_ranks(world: int = 2) -> tuple[RankRecording, RankRecording]:
    return RankRecording(0, world), RankRecording(1, world)


def test_the_kth_of_a_kind_and_size_is_the_kth_of_the_other():
    first, second = two_ranks()
    for launched, elements in ((0, 10), (100, 20), (200, 10)):
        first.collective("nccl:all_reduce", launched, launched + 10, 50, elements)
        second.collective("nccl:all_reduce", launched + 7, launched + 20, 40, elements)
    run = run_of(second, first)
    assert [(m.order, m.size_bytes, m.members) for m in run.matches] == [
        (0, 40, ((0, 0), (1, 0))),
        (0, 80, ((0, 1), (1, 1))),
        (1, 40, ((0, 2), (1, 2))),
    ]
    # the second rank's trace begins 7 us later, by the clock that both read
    assert run.timings.start_us.tolist() == [[11, 21], [111, 121], [211, 221]]


def test_numbers_match_whatever_the_order():
    first, second = two_ranks()
    for recording, numbers in ((first, (4, 5)), (second, (5, 4))):
        for launched, number in zip((0, 100), numbers, strict=True):
            recording.collective("nccl:all_reduce", launched, launched + 10, 50, Seq=number)
    assert [match.members for match in run_of(first, second).matches] == [((0, 0), (1, 1)), ((0, 1), (1, 0))]


def test_parts_of_an_all_to_all_need_not_be_equal():
    first, second = two_ranks()
    first.collective("nccl:all_to_all", 0, 10, 50, 100)
    second.collective("nccl:all_to_all", 0, 10, 50, 700)
    (match,) = run_of(first, second).matches
    assert match.size_bytes == 2800


def test_a_send_is_what_its_peer_receives():
    first, second = two_ranks()
    first.collective("nccl:send 0->1", 0, 10, 50)
    first.collective("nccl:recv 0<-1", 100, 110, 50)
    second.collective("nccl:recv 1<-0", 0, 10, 50)
    second.collective("nccl:send 1->0", 100, 110, 50)
    run = run_of(first, second)
    assert [match.members for match in run.matches] == [((0, 0), (1, 0)), ((1, 1), (0, 1))]
    assert run.timings.sender.tolist() == [0, 1]
    assert {match.kind for match in run.matches} == {CommunicationKind.SEND}


def test_ranks_that_were_not_traced_are_waited_for_by_nobody():
    first, second = two_ranks(world=4)
    for recording in (first, second):
        recording.collective("nccl:all_reduce", 0, 10, 50)
        recording.collective(f"nccl:send {recording.rank}->3", 100, 110, 50)
    run = run_of(first, second)
    assert [match.members for match in run.matches] == [((0, 0), (1, 0))]
    group, messages = run.notes
    assert (group, messages) == (golden(), golden())
    assert "'world'" in group and "2" in messages


def test_a_rank_that_lacks_a_call_is_refused_by_name():
    first, second = two_ranks()
    for recording in (first, second):
        recording.collective("nccl:all_reduce", 0, 10, 50)
    first.collective("nccl:all_reduce", 100, 110, 50)
    with raises(MatchingError, "rank 1", "rank 0", "all-reduce", "4000", "'world'") as refusal:
        run_of(first, second)
    assert refusal.value.where == "rank1"
    assert "1" in refusal.value.why and "2" in refusal.value.why


def test_ranks_that_name_other_sizes_are_refused_with_both():
    first, second = two_ranks()
    first.collective("nccl:all_reduce", 0, 10, 50, 100)
    second.collective("nccl:all_reduce", 0, 10, 50, 200)
    with raises(MatchingError, "call 0", "rank 1", "all-reduce", "800 bytes", "400 bytes"):
        run_of(first, second)


def test_a_send_that_nobody_receives_is_refused():
    first, second = two_ranks()
    first.collective("nccl:send 0->1", 0, 10, 50)
    second.gemm(0, 10, 50)
    with raises(MatchingError, "rank 0", "rank 1", "'world'") as refusal:
        run_of(first, second)
    assert refusal.value.where == "rank1"


def test_one_rank_twice_is_refused():
    first, _ = two_ranks()
    first.collective("nccl:all_reduce", 0, 10, 50)
    with raises(MatchingError, "rank 0"):
        matched([rank_run(first.trace()), rank_run(first.trace())])
