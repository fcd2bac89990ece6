"""The blocks: their steps run, every way computes the same, and floors count what has to move."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import peers, waterfall
from benchmarks.blocks.__main__ import floor_bar, floor_us, main
from benchmarks.blocks.definitions import BLOCKS, spec_of
from benchmarks.ceilings import Ceilings
from benchmarks.models.spec import ModelSpec
from tests.benchmarks.comparisons import comparison
from tests.support.golden import golden
from tests.support.sampling import sampled


def small(name: str) -> ModelSpec:
    """A block with two rows, or images."""
    spec = spec_of(name)

    def inputs(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None) -> tuple[Any, ...]:
        return spec.inputs(generator, dtype, 2)

    return replace(spec, inputs=inputs)


@pytest.mark.parametrize("name", list(BLOCKS))
def test_a_step_leaves_no_gradients(name: str):
    step = peers.build_step(lambda: small(name), "training", "eager")
    assert step() is None


@pytest.mark.parametrize("name", sampled(["silu", "softmax", "batch_norm"], "softmax", "batch_norm"))
def test_all_ways_compute_the_same(name: str):
    ways = ["eager", "eager_channels_last", "daceml"]
    results = [
        peers.build_step(lambda: small(name), "inference", way, train_mode=BLOCKS[name].train_mode)()
        for way in ways
    ]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


def test_a_block_is_larger_than_the_last_cache():
    for block in BLOCKS.values():
        (x, *_) = block.spec.inputs(torch.Generator(), torch.float32, 1)
        assert block.elements % x.numel() == 0
        assert 4 * block.elements >= 64e6


def test_the_floor_is_the_memory_s_or_the_exponentials():
    machine = Ceilings(bytes_per_s=4.0 * BLOCKS["mish"].elements, exponentials_per_s=1e18)
    assert floor_us(BLOCKS["mish"], "inference", machine) == 2e6
    assert floor_us(BLOCKS["mish"], "training", machine) == 5e6
    bar = floor_bar(comparison("mish", eager=40.0, daceml=10.0), least_us=8.0)
    assert bar.met
    assert bar.note == golden()
    assert "80 %" in bar.note


def test_the_waterfall_of_a_block_is_a_row_with_its_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked: list[tuple[str, bool]] = []

    def measure(find: Callable[[], ModelSpec], mode: peers.Mode, **how: Any) -> list[dict[str, Any]]:
        asked.append((find().name, how["train_mode"]))
        duration = {"median": 1500.0, "low": 1400.0, "high": 1600.0, "n": 6}
        amounts = {"kernels": 1, "bytes_moved": 10, "measured": True, "duration_us": duration}
        return [{"after": waterfall.NOTHING, "idle": [], **amounts}]

    monkeypatch.setattr(waterfall, "measure", measure)
    file = tmp_path / "blocks.json"
    assert main(["--block", "batch_norm", "--mode", "inference", "--waterfall", "--json", str(file)]) == 0
    assert asked == [("batch_norm", True)]
    (row,) = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert (row["waterfall"][0]["after"], row["waterfall"][0]["kernels"]) == ("no pass", 1)
