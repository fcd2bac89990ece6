"""Whether a program that was compiled just now is faster than eager PyTorch: both are timed for a moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import torch

from daceml.config import config
from daceml.runtime.timing.available_memory import available_bytes
from daceml.runtime.timing.comparison import disturbing
from daceml.runtime.timing.machine_load import Others
from daceml.tuning.comparison_record import EagerComparison
from daceml.tuning.eager_run import EagerRun, bytes_of
from daceml.tuning.program_run import ProgramRun, undisturbed

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.compiler.program_builder import Making
    from daceml.runtime.autograd import BackwardPass
    from daceml.runtime.program import Program

log = logging.getLogger(__name__)

_SHARE = 0.1  # of the time that compiling took
_MARGIN = 1.05
_DOUBTFUL_MARGIN = 1.25  # of few rounds, or of disturbed ones
_LEAST_LOSS_MS = 0.2  # below, what is measured is mostly how a call begins
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 9
_BRIEF = 1 / 16  # of the limit: so many calls fit
_BATCH_MS = 1.0
_HELD_TWICE = 2  # torch holds results and what it has saved of them for the gradients


def compared_with_eager(
    exported: ExportedProgram,
    program: Program,
    backward: BackwardPass | None,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[torch.Tensor],
    *,
    limit_s: float,
) -> EagerComparison | None:
    """Compare a program with eager PyTorch.

    Args:
        exported: what it was compiled from.
        state: key -> tensor of the module; what a call changes is put back.
        inputs: of a call, at whose sizes both are timed; read and not changed.
        limit_s: after which no round begins.
    Returns:
        None where nothing is known: there is too little memory for torch's results, or torch cannot run the
        trace as it would run the module.
    """
    if _is_watched(backward):
        return None
    try:
        return _compare(exported, program, backward, state, inputs, limit_s=limit_s)
    except Exception as error:  # whatever torch does not do with a trace: the program stands
        log.debug("not compared with eager PyTorch: %s: %s", type(error).__name__, error)
        return None


def limit_s(making: Making) -> float:
    """Seconds for which a program that was compiled just now may be timed: a tenth of what that took, and
    `DACEML_MEASURE` at the most."""
    return min(config().measure, _SHARE * sum(making.stages.seconds.values()))


def _is_watched(backward: BackwardPass | None) -> bool:
    """Whether a mode of torch, or hooks on gradients, would see the calls."""
    trained = () if backward is None else backward.state
    hooked = any(x._backward_hooks for x in trained)  # pyright: ignore[reportPrivateUsage]
    return hooked or torch._C._len_torch_dispatch_stack() > 0  # pyright: ignore[reportPrivateUsage]


def _compare(
    exported: ExportedProgram,
    program: Program,
    backward: BackwardPass | None,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[torch.Tensor],
    *,
    limit_s: float,
) -> EagerComparison | None:
    free = available_bytes()
    if free is not None and _HELD_TWICE * bytes_of(exported) > free / 2:
        log.info("not compared with eager PyTorch, which might not find enough memory")
        return None
    wanted = None if backward is None else backward.wanted
    with undisturbed():
        eager = EagerRun(exported, state, inputs, wanted, program.changed)
        own = ProgramRun(program, backward, inputs, limit=0.0)
        try:
            return timed(own, eager, limit_s=limit_s)
        finally:
            own.reset()


def timed(
    program: Callable[[], object],
    eager: Callable[[], object],
    *,
    limit_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> EagerComparison:
    """Time both in turn until it is clear which is faster; after `limit_s` no round begins."""
    end, others = clock() + limit_s, Others()
    runs = (program, eager)
    brief = _call_ms(program, 1, clock) < _BRIEF * limit_s * 1e3  # it makes ready what all calls need
    calls = [1, 1]
    if brief:
        eager()
        calls = [max(1, int(_BATCH_MS / max(_call_ms(run, 1, clock), 1e-3))) for run in runs]
    rounds: list[tuple[float, float]] = []
    slower = disturbed = False
    while clock() < end and len(rounds) < _MOST_ROUNDS:
        order = (1, 0) if len(rounds) % 2 else (0, 1)
        took = {i: _call_ms(runs[i], calls[i], clock) for i in order}
        rounds.append((took[0], took[1]))
        few, disturbed = len(rounds) < _FEWEST_ROUNDS, disturbing(others.share())
        margin = _DOUBTFUL_MARGIN if few or disturbed else _MARGIN
        slower = not (few and disturbed) and _slower(rounds, margin)
        if not slower and not (few and (brief or disturbed)):
            break
    if not rounds:
        return EagerComparison(program_ms=0.0, eager_ms=0.0, rounds=0, slower=False, limit_s=limit_s)
    own_ms, eager_ms = (median(times) for times in zip(*rounds, strict=True))
    return EagerComparison(
        program_ms=own_ms,
        eager_ms=eager_ms,
        rounds=len(rounds),
        slower=slower,
        disturbed=disturbed,
        limit_s=limit_s,
    )


def _slower(rounds: Sequence[tuple[float, float]], margin: float) -> bool:
    """Whether the program loses by its best and by its median round: one disturbed round says nothing."""
    own, eager = zip(*rounds, strict=True)
    return all(
        taken(own) > max(margin * taken(eager), taken(eager) + _LEAST_LOSS_MS) for taken in (min, median)
    )


def _call_ms(run: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) * 1e3 / calls
