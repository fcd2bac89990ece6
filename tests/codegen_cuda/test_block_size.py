"""Which blocks a kernel is launched in: from facts written by hand, and as nvcc and the runtime do it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

from daceml.codegen_cuda import device_objects
from daceml.codegen_cuda.block_size import BlockShape, Trial, choose_shape, shape_of, with_shape
from daceml.codegen_cuda.device_objects import cuda_object
from daceml.codegen_cuda.kernel_facts import load_facts
from daceml.codegen_cuda.toolchain import CudaToolchain, find_nvcc
from daceml.runtime.records.kernel_facts import KernelFacts
from daceml.toolchain.cache import Cache
from tests.codegen_cuda.kernel_units import Scores, unit_of
from tests.support.sampling import sampled

POINTS = BlockShape(threads=256)


def chosen(
    said: int | KernelFacts,
    others: Mapping[BlockShape, KernelFacts],
    *,
    architecture: int = 90,
    is_open: bool = True,
    shape: BlockShape = POINTS,
) -> tuple[BlockShape, list[BlockShape]]:
    """The shape for a kernel of so many registers or such facts, and what was compiled on the way."""
    tried: list[BlockShape] = []

    def compiled(shape: BlockShape) -> KernelFacts:
        tried.append(shape)
        return others[shape]

    facts = KernelFacts(registers=said) if isinstance(said, int) else said
    first = Trial(shape=shape, facts=facts)
    return choose_shape(architecture, first, compiled, is_open=is_open).shape, tried


def test_a_kernel_that_fills_the_multiprocessor_stays():
    assert chosen(32, {}) == (POINTS, [])


def test_registers_that_256_threads_do_not_divide_are_taken_by_128():
    """56 registers are 36 warps: 4 blocks of 256 threads leave 4 of them, 9 of 128 none."""
    smaller = BlockShape(threads=128)
    assert chosen(56, {smaller: KernelFacts(registers=56)}) == (smaller, [smaller])


def test_what_another_size_promised_has_to_hold():
    smaller = BlockShape(threads=128)
    assert chosen(56, {smaller: KernelFacts(registers=90)}) == (POINTS, [smaller])
    assert chosen(56, {smaller: KernelFacts(registers=56, spill_bytes=8)}) == (POINTS, [smaller])


def test_sizes_that_hold_as_many_threads_stay_at_256():
    """64 registers are 32 warps, in blocks of any size: just enough."""
    assert chosen(64, {}) == (POINTS, [])


def test_fewer_registers_are_asked_for_where_less_than_half_is_held():
    """128 registers are 16 warps of 64; 4 blocks of 256 threads are 32."""
    wanted = BlockShape(threads=256, min_blocks=4)
    assert chosen(128, {wanted: KernelFacts(registers=64)}) == (wanted, [wanted])
    assert chosen(128, {wanted: KernelFacts(registers=64, spill_bytes=4)}) == (POINTS, [wanted])
    assert chosen(128, {wanted: KernelFacts(registers=64, stack_bytes=16)}) == (POINTS, [wanted])
    # of the 48 warps of 8.6, half are 3 blocks
    wanted = BlockShape(threads=256, min_blocks=3)
    assert chosen(128, {wanted: KernelFacts(registers=80)}, architecture=86) == (wanted, [wanted])


def test_registers_that_are_held_back_at_a_price_are_given():
    """Left alone, nvcc may spill to keep to 40 registers."""
    free = BlockShape(threads=256, min_blocks=1)
    spilling = KernelFacts(registers=40, spill_bytes=20, stack_bytes=8)
    assert chosen(spilling, {free: KernelFacts(registers=60)}) == (free, [free])
    assert chosen(spilling, {free: spilling}) == (POINTS, [free])
    smaller = BlockShape(threads=128, min_blocks=1)
    found = chosen(spilling, {free: KernelFacts(registers=56), smaller: KernelFacts(registers=56)})
    assert found == (smaller, [free, smaller])


def test_rows_keep_their_threads():
    """72 registers are 24 warps in blocks of 256: 128 threads would be 28, and are not asked for."""
    rows = BlockShape(threads=256)
    wanted = BlockShape(threads=256, min_blocks=4)
    assert chosen(72, {wanted: KernelFacts(registers=72)}, is_open=False) == (rows, [wanted])
    rows = BlockShape(threads=128)
    wanted = BlockShape(threads=128, min_blocks=8)
    assert chosen(128, {wanted: KernelFacts(registers=64)}, is_open=False, shape=rows) == (wanted, [wanted])


def test_nothing_is_chosen_for_an_architecture_that_nobody_has_written_down():
    assert chosen(128, {}, architecture=130) == (POINTS, [])
    free = BlockShape(threads=256, min_blocks=1)
    spilling = KernelFacts(registers=40, spill_bytes=20)
    assert chosen(spilling, {free: KernelFacts(registers=128)}, architecture=130) == (free, [free])


def test_the_text_of_a_kernel_has_its_shape():
    unit = unit_of(Scores(), torch.randn(5, 300))
    assert shape_of(unit.text) == (POINTS, True)
    other = BlockShape(threads=128, min_blocks=5)
    changed = with_shape(unit.text, other)
    assert shape_of(changed) == (other, True)
    assert with_shape(changed, POINTS) == unit.text
    assert (unit.launched.grid[0], unit.launched.with_threads(128).grid[0]) == (2, 3)
    rows = unit_of(nn.Softmax(-1), torch.randn(40, 70))
    assert shape_of(rows.text) == (BlockShape(threads=128), False)
    assert rows.launched.with_threads(64) == rows.launched
    few = unit_of(Scores(), torch.randn(100))
    assert shape_of(few.text) == (BlockShape(threads=32), False)
    assert shape_of("int none;") is None


def test_a_kernel_is_compiled_in_the_shape_that_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """nvcc says 56 registers of any shape; the second time, nobody asks it."""
    texts: list[str] = []

    def compile_(self: CudaToolchain, text: str, folder: Path, **_: object) -> dict[str, KernelFacts]:
        texts.append(text)
        (folder / "kernel.o").write_text(text)
        return {"_ZN6daceml6kernel4rowsE": KernelFacts(registers=56)}

    tools = CudaToolchain(nvcc="nvcc", release=(13, 0), architecture=90)
    monkeypatch.setattr(CudaToolchain, "compile", compile_)
    monkeypatch.setattr(device_objects, "cuda_toolchain", lambda _=None: tools)
    unit = unit_of(Scores(), torch.randn(5, 300))
    for _ in range(2):
        made = cuda_object(unit.text, Cache(tmp_path))
        facts = load_facts(made)
        assert facts is not None and (facts.threads, facts.min_blocks) == (128, 0)
        assert shape_of(made.read_text()) == (BlockShape(threads=128), True)
    assert len(texts) == 2


@pytest.mark.skipif(find_nvcc() is None, reason="there is no CUDA compiler")
@pytest.mark.parametrize("architecture", sampled([80, 90, 100], 90))
def test_nvcc_takes_what_goes_round_in_any_shape(architecture: int, tmp_path: Path):
    nvcc = find_nvcc()
    assert nvcc is not None
    tools = CudaToolchain(nvcc=nvcc, release=(13, 0), architecture=architecture)
    points, rows = unit_of(Scores(), torch.randn(50, 9000)), unit_of(nn.Softmax(-1), torch.randn(400, 3000))
    text = with_shape(points.text, BlockShape(threads=512, min_blocks=2)) + rows.text
    facts = tools.compile(text, tmp_path, includes=(device_objects.include_folder(),))
    assert len(facts) == 2 and not any(one.spill_bytes for one in facts.values())
