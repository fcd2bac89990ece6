"""What a step needs of a device's memory: blocks that come and go, and what does not fit."""

from __future__ import annotations

import pytest

from daceml.prediction.live_bytes import LiveBytes
from daceml.prediction.model_step import StepMemory
from daceml.prediction.model_steps.memory_need import CONTEXT_BYTES, NCCL_BYTES, memory_need
from daceml.prediction.model_steps.step_prediction import predict_captured
from tests.prediction.steps import PLAIN, parameter, step_of
from tests.support.golden import golden


class Block:
    """Stands for memory."""


def memory(peak: int) -> StepMemory:
    return StepMemory(parameters=100, buffers=0, gradients=100, optimizer=200, saved=50, peak=peak)


def test_blocks_count_while_somebody_holds_them():
    live = LiveBytes()
    first, second = Block(), Block()
    live.add(first, 1000)
    live.add(second, 512)
    assert (live.now, live.peak) == (1024 + 512, 1024 + 512)
    del first
    assert (live.now, live.peak) == (512, 1536)
    live.add(Block(), 100)
    assert (live.now, live.peak) == (512, 1536)


def test_a_block_counts_once_however_often_it_is_seen():
    live, block = LiveBytes(), Block()
    live.add(block, 512)
    live.add(block, 512)
    assert live.now == 512


@pytest.mark.parametrize(
    ("devices", "nccl"), [(1, 0), (2, NCCL_BYTES[2]), (3, NCCL_BYTES[8]), (8, NCCL_BYTES[8])]
)
def test_several_devices_hold_buckets_and_what_communicates(devices: int, nccl: int):
    need = memory_need(memory(1000), PLAIN, devices)
    assert need.buckets == (100 if devices > 1 else 0)
    assert need.total == 1000 + need.buckets + CONTEXT_BYTES + nccl


def test_what_is_larger_than_the_device_does_not_fit():
    assert memory_need(memory(7_000_000_000), PLAIN).fits is True
    assert memory_need(memory(8_000_000_000), PLAIN).fits is False
    step = step_of("a forward x 10", memory=memory(9_000_000_000))
    (flag,) = [flag for flag in predict_captured(step, PLAIN).flags if "9.6 GB" in flag]
    assert flag == golden() and "8.0 GB" in flag


def test_an_unknown_need_is_said():
    known, unknown = (
        predict_captured(step_of("a forward x 10", memory=told), PLAIN).flags for told in (memory(1000), None)
    )
    (flag,) = set(unknown) - set(known)
    assert flag == golden()


def test_parameters_of_a_story_have_sizes():
    assert parameter("a.b", 1.0).size_bytes == 2**20
