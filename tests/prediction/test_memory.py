"""What a step needs of a device's memory: blocks that come and go, and what does not fit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from daceml.prediction.live_bytes import LiveBytes
from daceml.prediction.model_step import StepMemory
from daceml.prediction.model_steps.memory_need import CONTEXT_BYTES, NCCL_BYTES, memory_need
from daceml.prediction.model_steps.step_prediction import predict_captured
from daceml.simulation.memory.allocations import Allocations
from tests.prediction.steps import PLAIN, parameter, sourced, step_of
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


def test_a_measured_context_counts_instead_of_the_usual_one():
    measured = 1450 * 2**20
    need = memory_need(memory(7_000_000_000), PLAIN, context_bytes=measured)
    assert need.reserved == measured and need.fits is False
    step = step_of("a forward x 10", memory=memory(7_000_000_000))
    assert (
        predict_captured(step, PLAIN).memory.fits
        and not predict_captured(step, PLAIN, context_bytes=measured).memory.fits
    )


def blocks(*sizes: int) -> StepMemory:
    """Blocks that all live from the first operation to the last."""
    count = len(sizes)
    lives = Allocations(
        size_bytes=np.array(sizes), taken_by=np.zeros(count, np.int64), given_back_by=np.ones(count, np.int64)
    )
    return StepMemory(
        parameters=0, buffers=0, gradients=0, optimizer=0, saved=0, peak=sum(sizes), allocations=lives
    )


def test_segments_of_the_caching_allocator_decide_whether_a_step_fits():
    """A block of 11 MiB takes a whole segment, rounded up to a multiple of 2 MiB: 12 MiB."""
    held = blocks(*[11 * 2**20] * 10)
    step = step_of("a forward x 10", "b forward x 10", memory=held)
    need = predict_captured(step, PLAIN).memory
    assert need is not None and need.segments == 10 * 12 * 2**20
    assert need.total == need.segments + CONTEXT_BYTES
    full = dataclasses.replace(PLAIN, memory_bytes=sourced(CONTEXT_BYTES + 115 * 2**20))
    assert memory_need(held, full).fits, "110 MiB are allocated"
    assert memory_need(held, full, step=step).fits is False, "120 MiB are reserved"


def test_cached_blocks_are_given_back_before_a_step_does_not_fit():
    """First 30 blocks of 1 MiB, small ones, then a large one: 40 MiB with what is cached, 20 without."""
    sizes = np.array([2**20] * 20 + [20 * 2**20])
    lives = Allocations(
        size_bytes=sizes, taken_by=np.array([0] * 20 + [1]), given_back_by=np.array([0] * 20 + [1])
    )
    held = dataclasses.replace(blocks(20 * 2**20), allocations=lives)
    step = step_of("a forward x 10", "b forward x 10", memory=held)
    assert memory_need(held, PLAIN, step=step).segments == 40 * 2**20
    full = dataclasses.replace(PLAIN, memory_bytes=sourced(CONTEXT_BYTES + 25 * 2**20))
    need = memory_need(held, full, step=step)
    assert need.fits and need.segments == 20 * 2**20


def test_a_processor_has_no_context():
    processor = dataclasses.replace(PLAIN, kind="cpu")
    assert memory_need(memory(1000), processor, 1).total == 1000


def test_an_unknown_need_is_said():
    known, unknown = (
        predict_captured(step_of("a forward x 10", memory=told), PLAIN).flags for told in (memory(1000), None)
    )
    (flag,) = set(unknown) - set(known)
    assert flag == golden()


def test_parameters_of_a_story_have_sizes():
    assert parameter("a.b", 1.0).size_bytes == 2**20
