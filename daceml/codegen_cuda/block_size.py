"""Threads of a block, and blocks that its registers leave room for: chosen by what the assembler says.

A kernel's text has both as constants, so a choice costs a run of nvcc, and nothing before it. Kernels of
points begin with blocks of 256. Other sizes hold more threads on a multiprocessor where registers are handed
out in pieces that 256 do not divide. Where less than half of a multiprocessor is used even so, nvcc is asked
once for code of fewer registers, which is taken if nothing is spilled for it. Where it spills without being
asked, it is asked once to take as many registers as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from daceml.devices.occupancy import LIMITS, WARP, Occupancy, occupancy
from daceml.runtime.records.kernel_facts import KernelFacts

CANDIDATES = (256, 128, 512)  # the first of equals is taken: smaller blocks begin more often
# Kernels that wait for memory are as fast with half of the warps, where each thread loads a vector: more of
# them are not worth a register. Source: Volkov, "Better Performance at Lower Occupancy" (GTC 2010).
ENOUGH = 0.5

_CONSTANTS = re.compile(
    r"constexpr int (?:(\w+)_threads = (?P<threads>\d+), )?(\w+)_blocks = (?P<blocks>\d+);"
)
_BOUNDS = re.compile(r"__launch_bounds__\((?P<threads>\d+), \w+\)")


@dataclass(frozen=True, kw_only=True)
class BlockShape:
    """What is promised to nvcc of a kernel's launches.

    Attributes:
        threads: of a block.
        min_blocks: that a multiprocessor can hold, which bounds the registers of a thread; 0 leaves their
            number to nvcc, which holds them back by a rule of its own, and with 1 takes all it has a use for.
    """

    threads: int
    min_blocks: int = 0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the assembler said of a kernel in a shape."""

    shape: BlockShape
    facts: KernelFacts


def rules() -> str:
    """What decides a choice besides what the compiler says: a part of the key of an object."""
    return f"{CANDIDATES} {ENOUGH} {LIMITS}"


def constants(function: str, threads: int | None) -> str:
    """The line of a kernel's text that `with_shape` changes.

    Args:
        threads: of a block; None where the kernel is right for one number of them only.
    """
    size = "" if threads is None else f"{function}_threads = {threads}, "
    return f"constexpr int {size}{function}_blocks = 0;"


def shape_of(text: str) -> tuple[BlockShape, bool] | None:
    """The shape in a text, and whether its threads are open; None of a text that is no generated kernel."""
    found = list(_CONSTANTS.finditer(text))
    if len(found) != 1:
        return None
    is_open = found[0]["threads"] is not None
    fixed = _BOUNDS.search(text)
    if not is_open and fixed is None:
        return None
    threads = found[0]["threads"] if is_open or fixed is None else fixed["threads"]
    return BlockShape(threads=int(threads), min_blocks=int(found[0]["blocks"])), is_open


def with_shape(text: str, shape: BlockShape) -> str:
    """A kernel's text in another shape; its threads change only where they are open."""

    def line(found: re.Match[str]) -> str:
        size = "" if found["threads"] is None else f"{found[1]}_threads = {shape.threads}, "
        return f"constexpr int {size}{found[3]}_blocks = {shape.min_blocks};"

    return _CONSTANTS.sub(line, text)


def choose_shape(
    architecture: int,
    first: Trial,
    compiled: Callable[[BlockShape], KernelFacts],
    *,
    is_open: bool,
    shared_bytes: int = 0,
) -> Trial:
    """The shape that a kernel is launched in; the same for the same kernel, compiler and architecture.

    Args:
        first: 256 threads, or the only number of them.
        compiled: what the assembler says of the kernel in a shape.
        is_open: whether there may be other threads than at first.
        shared_bytes: dynamic, of a block.
    """
    if first.facts.spill_bytes:
        shape = BlockShape(threads=first.shape.threads, min_blocks=1)
        tried = Trial(shape=shape, facts=compiled(shape))
        first = tried if tried.facts.spill_bytes < first.facts.spill_bytes else first
    if architecture not in LIMITS:
        return first

    def held(trial: Trial) -> Occupancy:
        shared = trial.facts.shared_bytes + shared_bytes
        registers = trial.facts.registers
        return occupancy(architecture, threads=trial.shape.threads, registers=registers, shared_bytes=shared)

    best = first
    if is_open and "registers" in held(first).limited_by:
        # the code is the same for other numbers of threads, unless it has more registers than these may
        shapes = [BlockShape(threads=n, min_blocks=first.shape.min_blocks) for n in CANDIDATES]
        guesses = [Trial(shape=shape, facts=first.facts) for shape in shapes]
        guess = max(guesses, key=lambda one: held(one).warps)
        if held(guess).warps > held(first).warps:
            tried = Trial(shape=guess.shape, facts=compiled(guess.shape))
            best = tried if _no_worse(tried, first) and held(tried).warps > held(first).warps else first
    found = held(best)
    if found.limited_by == ("registers",) and found.share < ENOUGH:
        warps_of_block = -(-best.shape.threads // WARP)
        enough = -(-int(ENOUGH * LIMITS[architecture].warps) // warps_of_block)
        shape = BlockShape(threads=best.shape.threads, min_blocks=enough)
        tried = Trial(shape=shape, facts=compiled(shape))
        if _no_worse(tried, best) and held(tried).warps > found.warps:
            return tried
    return best


def _no_worse(tried: Trial, before: Trial) -> bool:
    """Whether fewer registers were bought with nothing that goes through memory."""
    spilled = tried.facts.spill_bytes <= before.facts.spill_bytes
    return spilled and tried.facts.stack_bytes <= before.facts.stack_bytes
