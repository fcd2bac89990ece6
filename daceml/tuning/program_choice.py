"""The fastest of a compiled program, the same with torch's kernels for some operators, and eager PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from daceml.compiler.verification.value_difference import limit_of
from daceml.frontend.capture.call_device import without_autocast
from daceml.frontend.capture.trace_lock import tracing
from daceml.runtime.timing.comparison import disturbing
from daceml.runtime.timing.machine_load import Others
from daceml.tuning import eager_comparison
from daceml.tuning.chosen_program import ChosenProgram, compared
from daceml.tuning.comparison_record import (
    EagerComparison,
    OtherImplementation,
    TorchKernel,
    may_compare,
    remember,
    with_choices,
)
from daceml.tuning.eager_comparison import limit_s
from daceml.tuning.eager_run import EagerRun
from daceml.tuning.other_implementations import Candidate, candidates, faster_implementations
from daceml.tuning.program_run import ProgramRun, undisturbed
from daceml.tuning.torch_kernels import (
    MARGIN,
    EagerNodes,
    slower_operators,
    steps_by_node,
    time_by_node,
    traced_node,
)

log = logging.getLogger(__name__)

_CLEARLY_FASTER = 1.25
_DOUBTFUL_MARGIN = 2.0  # of operators that were timed while others disturbed
_CALLS = 4  # that fit the limit: of the program and of eager PyTorch, step by step
_PROFILES = 2
_WORTH_IT = 0.1  # of a call, that all choices gain: the program is compiled once more


def choose_program(
    chosen: ChosenProgram, state: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
) -> ChosenProgram:
    """Compare a program with eager PyTorch; if it is not clearly faster, let torch run some of its operators.

    These are the operators that torch's own kernels run faster. If they promise much, the program is compiled
    once more with them, and stays as it was if it is no faster then. The cache keeps what was found.

    Args:
        chosen: compiled just now, without this choice.
        state: key -> tensor of the module; what a call changes is put back.
        inputs: of a call, at whose sizes everything is timed; read and not changed.
    """
    making, others = chosen.making, Others()
    if not (may_compare(making) and making.made):
        return chosen
    found = compared(chosen, state, inputs, limit_s(making))
    if found is None:
        return chosen
    chosen = replace(chosen, eager=found)
    if found.rounds and found.program_ms * _CLEARLY_FASTER > found.eager_ms:
        try:
            chosen = _with_faster_operators(chosen, found, state, inputs, others)
        except Exception as error:  # whatever torch does not do with an operator: the program stands
            log.info("no torch kernels chosen: %s: %s", type(error).__name__, error)
    assert chosen.eager is not None, "both programs are compared"
    remember(making, inputs, chosen.eager)
    return chosen


def _with_faster_operators(
    chosen: ChosenProgram,
    found: EagerComparison,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[torch.Tensor],
    others: Others,
) -> ChosenProgram:
    """The program with torch's kernels for operators that they run faster; the same if it is not faster."""
    making, limit = chosen.making, limit_s(chosen.making)
    if (found.program_ms + found.eager_ms) * _CALLS / 2 > limit * 1e3:
        return chosen
    with undisturbed():
        choices = _faster_choices(chosen, state, inputs, others, limit)
    if not choices:
        return chosen
    made = with_choices(making, choices)
    with tracing(), without_autocast(), torch.no_grad():
        program, backward = made.bind(state)
    wanted = None if backward is None else backward.wanted
    with undisturbed():
        eager = EagerRun(making.exported, state, inputs, wanted, program.changed)
        before = ProgramRun(chosen.program, chosen.backward, inputs, limit=0.0)
        after = ProgramRun(program, backward, inputs, limit=limit_of(making.made[0].network))
        try:
            other = any(isinstance(choice, OtherImplementation) for choice in choices)
            if other and (differs := after.difference(before)):
                log.warning("not chosen, since results differ (%s): %s", differs, _named(choices))
                return chosen
            gain = eager_comparison.timed(before, after, limit_s=limit)
            seen = eager_comparison.timed(after, eager, limit_s=limit) if gain.slower else None
        finally:
            before.reset()
    if seen is None:
        log.info("no faster program: %s", _named(choices))
        return chosen
    log.info(
        "%s: a call takes %.3g ms instead of %.3g ms; %s (DACEML_MEASURE)",
        _named(choices), gain.eager_ms, gain.program_ms, gain.circumstances,
    )  # fmt: skip
    kernels = tuple(choice for choice in choices if isinstance(choice, TorchKernel))
    implementations = tuple(choice for choice in choices if isinstance(choice, OtherImplementation))
    eager_now = replace(seen, kernels=kernels, implementations=implementations, without_ms=gain.program_ms)
    return ChosenProgram(making=made, program=program, backward=backward, eager=eager_now)


def _faster_choices(
    chosen: ChosenProgram,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[torch.Tensor],
    others: Others,
    limit: float,
) -> list[TorchKernel | OtherImplementation]:
    """What promises to make the program faster; nothing where all of it promises little."""
    making, program, backward = chosen.making, chosen.program, chosen.backward
    run = ProgramRun(program, backward, inputs, limit=0.0)
    steps_us, call_us = (found := run.profile(_PROFILES, limit / _CALLS)), sum(found)
    margin = _DOUBTFUL_MARGIN if disturbing(others.share()) else MARGIN
    kernels = _faster_kernels(chosen, state, inputs, steps_us, limit=limit, margin=margin)
    passes = (program, *(() if backward is None else (backward.program,)))
    found_others: list[Candidate] = []
    for part, made in zip(passes, making.made, strict=True):
        steps = part.manifest.steps
        found_others += candidates(steps, steps_us[: len(steps)], made.network, call_us)
        steps_us = steps_us[len(steps) :]
    implementations = faster_implementations(found_others, making.cache, limit_s=limit / 2, margin=margin)
    traced, by_torch = making.made[0].network.traced, {kernel.node for kernel in kernels}
    choices = [*kernels, *(c for c in implementations if traced_node(c.name, traced) not in by_torch)]
    worth_it = sum(choice.lost_us for choice in choices) >= _WORTH_IT * call_us
    return choices if worth_it else []


def _faster_kernels(
    chosen: ChosenProgram,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[torch.Tensor],
    steps_us: Sequence[float],
    *,
    limit: float,
    margin: float,
) -> list[TorchKernel]:
    making, program, backward = chosen.making, chosen.program, chosen.backward
    steps = (*program.manifest.steps, *(() if backward is None else backward.program.manifest.steps))
    with tracing():
        eager = EagerNodes(making.exported, state, inputs, None if backward is None else backward.wanted)
    nodes = steps_by_node(steps, making.made[0].network.traced)
    program_us = time_by_node(steps_us, nodes, eager.forward_us())
    return slower_operators(eager, program_us, sum(steps_us), limit_s=limit / 2, margin=margin)


def _named(choices: Sequence[TorchKernel | OtherImplementation]) -> str:
    return ", ".join(f"{choice.by} runs {choice.operator} ({choice.where})" for choice in choices)
