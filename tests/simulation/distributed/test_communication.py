"""What names and details of events say of a communication."""

from __future__ import annotations

import math

import pytest

from daceml.simulation.distributed.communication import (
    Communication,
    CommunicationKind,
    Group,
    kind_named,
    message_bytes,
)
from tests.support.golden import golden


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl:all_reduce", CommunicationKind.ALL_REDUCE),
        ("nccl:_reduce_scatter_base", CommunicationKind.REDUCE_SCATTER),
        ("gloo:all_to_all", CommunicationKind.ALL_TO_ALL),
        ("c10d::_allgather_base_", CommunicationKind.ALL_GATHER),
        ("nccl:send 0->1", CommunicationKind.SEND),
        ("nccl:recv 1<-0", CommunicationKind.RECEIVE),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", CommunicationKind.ALL_GATHER),
        ("ncclKernel_Reduce_RING_LL_Sum_float", CommunicationKind.REDUCE),
        ("allreduce_coalesced", CommunicationKind.ALL_REDUCE),
        ("mpi:barrier", CommunicationKind.BARRIER),
        ("nccl:coalesced", None),
        ("aten::add", None),
    ],
)
def test_names_of_all_writers_say_the_kind(name: str, kind: CommunicationKind | None):
    assert kind_named(name) is kind


def test_the_size_is_that_of_the_larger_message():
    details = {"In msg nelems": 100, "Out msg nelems": 800, "dtype": "BFloat16"}
    assert message_bytes(details) == 1600


def test_the_size_follows_from_shapes_where_nobody_says_it():
    assert message_bytes({"Input Dims": [[4, 5]], "Input type": ["float"]}) == 80
    assert message_bytes({"Input Dims": [[[3], [2, 2]]], "Input type": ["long int"]}) == 56


@pytest.mark.parametrize(
    "details",
    [{}, {"Input Dims": [[4]], "Input type": ["TensorList"]}, {"Input Dims": [[]], "Input type": ["float"]}],
)
def test_a_size_that_nobody_knows_is_no_number(details: dict[str, object]):
    assert math.isnan(message_bytes(details))


def test_a_communication_says_what_it_is():
    group = Group(name="0", ranks=(0, 1))
    send = Communication(
        kind=CommunicationKind.SEND, group=group, start_us=0, end_us=1, size_bytes=40.0, peer=1
    )
    assert send.what == golden() and all(fact in send.what for fact in ("send", "40", "rank 1"))
    assert Communication(kind=CommunicationKind.BARRIER, group=group, start_us=0, end_us=1).what == "barrier"


def test_only_kinds_in_which_all_wait_for_all_are_joint():
    assert CommunicationKind.ALL_TO_ALL.joint and CommunicationKind.BARRIER.joint
    assert not CommunicationKind.BROADCAST.joint and not CommunicationKind.SEND.joint
