"""A group of torch.distributed, in a process that is its only rank; tests of several ranks are slow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from daceml.distributed.collectives.torch_group import TorchGroup, TorchWork


class Failing:
    """Work of a process group that ends with an error."""

    def __init__(self, message: str) -> None:
        self.message = message

    def wait(self, timeout: timedelta) -> None:
        assert timeout == timedelta(seconds=2)
        raise RuntimeError(self.message)


@pytest.fixture
def group() -> Iterator[TorchGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield TorchGroup(None, 5.0)
    dist.destroy_process_group()


def test_one_rank_talks_to_itself(group: TorchGroup):
    assert (group.name, group.rank, group.size) == ("gloo", 0, 1)
    x = torch.arange(3.0)
    for begin in (group.all_reduce, group.broadcast):
        begin(x).wait(5.0)
    assert x.tolist() == [0, 1, 2] and group.tell("here") == "here"
    group.give_up()


@pytest.mark.parametrize(
    ("message", "kind"), [("Wait timed out", TimeoutError), ("connection closed by peer", RuntimeError)]
)
def test_a_timeout_has_a_type_of_its_own(message: str, kind: type[Exception]):
    with pytest.raises(kind, match=message) as error:
        TorchWork(Failing(message)).wait(2)
    assert type(error.value) is kind
