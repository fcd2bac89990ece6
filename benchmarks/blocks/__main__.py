"""Blocks against their peers and the memory's speed: python -m benchmarks.blocks --mode training --check.

--waterfall shows what each pass brings instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from benchmarks import ceilings, command, interleave, waterfall
from benchmarks.bars import Bar
from benchmarks.blocks.definitions import BLOCKS, Block, spec_of
from benchmarks.ceilings import Ceilings
from benchmarks.interleave import Variant
from benchmarks.parity import compile_for_training_with_daceml, programs_of_daceml
from benchmarks.parity_training import training
from benchmarks.peers import RUNTIMES, WAYS, Mode, build_step
from benchmarks.speed import FROZEN, OURS, Comparison, mean_bar, slower_bar

MEAN_SPEEDUP = 1.8
FLOOR_SHARE = 0.7
_BATCH = 4  # of the comparison with float64


def compared(block: Block, mode: Mode, rounds: int) -> Comparison:
    """Times of all ways to run a block."""
    left_out = ("eager_channels_last", FROZEN)
    ways = [way for way, modes in WAYS.items() if mode in modes and way not in left_out]
    missing: dict[str, str] = {}
    for runtime in RUNTIMES if block.train_mode else ():
        if runtime in ways:
            ways.remove(runtime)
            missing[runtime] = "torch's exporter writes the block as it is in eval mode"
    find = partial(spec_of, block.spec.name)
    variants = [
        Variant(
            name=way,
            build=partial(build_step, find, mode, way, train_mode=block.train_mode),
            optional=way not in ("eager", OURS),
        )
        for way in ways
    ]
    measurement = interleave.measure(variants, rounds=rounds)
    return Comparison(case=f"{block.spec.name}, {mode}", measurement=measurement, missing=missing)


def floor_us(block: Block, mode: Mode, machine: Ceilings) -> float:
    """The least time of a block on a machine."""
    tensors = block.forward_tensors if mode == "inference" else block.step_tensors
    special = block.forward_exponentials if mode == "inference" else block.step_exponentials
    return machine.floor_us(4.0 * tensors * block.elements, float(special) * block.elements)


def floor_bar(comparison: Comparison, least_us: float) -> Bar:
    """A bar on how many times longer than its floor a block takes."""
    taken = comparison.measurement.duration_us(OURS).value
    return Bar(
        name=f"{comparison.case}, time over its floor",
        figure=taken / least_us if comparison.measurement.measured else None,
        limit=1.0 / FLOOR_SHARE,
        note=f"{100 * least_us / taken:.0f} % of the floor of {least_us / 1e3:.1f} ms",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compare blocks with their peers and with the memory's speed.")
    parser.add_argument(
        "--mode", choices=get_args(Mode), action="append", help="of both, unless one is given"
    )
    parser.add_argument("--block", choices=list(BLOCKS), action="append", help="these only")
    parser.add_argument("--waterfall", action="store_true", help="what each pass brings, and nothing else")
    options = parser.parse_args(arguments)
    rounds = 6 if options.quick else 12
    if options.waterfall:
        return command.finish("blocks", options, waterfalls(options, rounds), [])
    machine = ceilings.measure()
    print(f"{machine.bytes_per_s / 1e9:.1f} GB/s, {machine.exponentials_per_s / 1e9:.2f} G exponentials/s")
    rows: list[dict[str, Any]] = []
    comparisons: list[Comparison] = []
    bars: list[Bar] = []
    for name in options.block or BLOCKS:
        block = BLOCKS[name]
        bars.append(_right(block))
        for mode in options.mode or get_args(Mode):
            comparison = compared(block, mode, rounds)
            comparisons.append(comparison)
            least_us = floor_us(block, mode, machine)
            bars.append(floor_bar(comparison, least_us))
            rows.append({**comparison.row(), "floor_us": least_us})
            share = 100 * least_us / comparison.measurement.duration_us(OURS).value
            print(f"{comparison.line()}; {share:.0f} % of the floor", flush=True)
    bars += [
        mean_bar("blocks", comparisons, MEAN_SPEEDUP),
        slower_bar("blocks", comparisons, 1.0),
    ]
    return command.finish("blocks", options, rows, bars)


def waterfalls(options: argparse.Namespace, rounds: int) -> list[dict[str, Any]]:
    """What each pass brings to each block."""
    rows: list[dict[str, Any]] = []
    for name in options.block or BLOCKS:
        for mode in options.mode or get_args(Mode):
            find = partial(spec_of, name)
            passes = waterfall.measure(find, mode, rounds=rounds, train_mode=BLOCKS[name].train_mode)
            rows.append({"case": f"{name}, {mode}", "waterfall": passes})
            print("\n".join([rows[-1]["case"], *waterfall.lines(passes)]), flush=True)
    return rows


def _right(block: Block) -> Bar:
    """A training step against float64, in a batch that is small enough for it."""

    def small(generator: Any, dtype: Any, batch: int | None = None) -> tuple[Any, ...]:
        return block.spec.inputs(generator, dtype, _BATCH if batch is None else batch)

    spec = replace(block.spec, inputs=small)
    seen = training(spec, compile_for_training_with_daceml, programs_of_daceml, seeds=(0,))
    worst = [bar for bar in seen.bars() if not bar.met]
    return Bar(
        name=f"{block.spec.name}, figures outside the limits of parity",
        figure=len(worst),
        limit=0,
        note=", ".join(bar.name for bar in worst),
    )


if __name__ == "__main__":
    sys.exit(main())
