"""What the trace of one rank tells of its communication."""

from __future__ import annotations

import dataclasses

from daceml.errors import CommunicationError
from daceml.simulation.distributed.communication import CommunicationKind, Group
from daceml.simulation.distributed.rank_run import rank_run
from tests.support.golden import raises
from tests.support.recorded_ranks import NCCL, RankRecording


def test_a_kernel_is_what_the_annotation_around_its_launch_says():
    recording = RankRecording(1, world=4)
    recording.gemm(0, 10, 50)
    recording.collective("nccl:all_to_all", 20, 60, 30, elements=6144)
    run = rank_run(recording.trace())
    (one,) = run.communications
    assert (run.rank, run.host, run.multiprocessors) == (1, "host of rank 1", 80)
    assert (one.kind, one.size_bytes, one.channels) == (CommunicationKind.ALL_TO_ALL, 24576, 8)
    assert one.group == Group(name="world", ranks=(0, 1, 2, 3))
    assert (one.start_us, one.end_us) == (60, 90)
    assert run.graph.name_of(one.task) == NCCL


def test_what_the_kernel_says_itself_counts_more():
    recording = RankRecording(0)
    recording.correlation += 1
    recording._add("cuda_runtime", "cudaLaunchKernel", 100, 0, 2, correlation=1)
    facts = {
        "Collective name": "reduce_scatter", "In msg nelems": 64, "Out msg nelems": 8, "dtype": "Half",
        "Process Group Name": "2", "Process Group Ranks": "[0, 4]", "Seq": 17,
    }  # fmt: skip
    recording.device(NCCL, 20, 5, 10, correlation=1, **facts)
    (one,) = rank_run(recording.trace()).communications
    assert (one.kind, one.size_bytes, one.sequence) == (CommunicationKind.REDUCE_SCATTER, 128, 17)
    assert one.group == Group(name="2", ranks=(0, 4))


def test_ranks_of_a_group_are_looked_up_where_the_kernel_leaves_some_out():
    recording = RankRecording(0)
    long = {"Process Group Name": "tp", "Process Group Ranks": "[0, 1, 2, ... 7]"}
    recording.collective("nccl:all_reduce", 0, 5, 10, **long)
    header = {"rank": 0, "world_size": 16, "pg_config": [{"pg_name": "tp", "ranks": list(range(8))}]}
    (one,) = rank_run(recording.trace(distributedInfo=header)).communications
    assert one.group == Group(name="tp", ranks=tuple(range(8)))


def test_calls_stand_in_the_order_of_their_launches():
    recording = RankRecording(0)
    recording.collective("nccl:all_gather", 10, 40, 5)
    recording.collective("nccl:all_reduce", 0, 20, 5)
    kinds = [one.kind for one in rank_run(recording.trace()).communications]
    assert kinds == [CommunicationKind.ALL_REDUCE, CommunicationKind.ALL_GATHER]


def test_a_send_knows_its_peer():
    recording = RankRecording(0)
    recording.collective("nccl:send 0->3", 0, 5, 10)
    recording.collective("nccl:recv 0<-2", 20, 25, 10)
    send, receive = rank_run(recording.trace()).communications
    assert (send.kind, send.peer) == (CommunicationKind.SEND, 3)
    assert (receive.kind, receive.peer) == (CommunicationKind.RECEIVE, 2)


def test_work_of_a_cpu_is_found_and_is_a_task():
    recording = RankRecording(0)
    recording.operator("aten::mm", 0, 10)
    recording.gloo("all_reduce", 12, 20, 30, elements=100)
    run = rank_run(recording.trace(host_name="node7"))
    (one,) = run.communications
    assert (one.kind, one.size_bytes, run.host) == (CommunicationKind.ALL_REDUCE, 400, "node7")
    assert run.graph.name_of(one.task) == "gloo:all_reduce"


def test_a_trace_without_a_rank_is_refused():
    recording = RankRecording(0)
    recording.gemm(0, 10, 50)
    with raises(CommunicationError, "rank0.json", "torch.distributed") as refusal:
        rank_run(dataclasses.replace(recording.trace(), rank=None))
    assert refusal.value.where == "rank0"


def test_a_kernel_that_nothing_names_is_refused():
    recording = RankRecording(0)
    recording.call("cudaLaunchKernel", 0, 2, ("ncclDevKernel_Generic(args)", 20, 5, 10))
    with raises(CommunicationError, "'ncclDevKernel_Generic(args)'", "ProfilerActivity.CPU") as refusal:
        rank_run(recording.trace())
    assert refusal.value.where == "rank0"
