"""One recording: a context in which the user calls `step()` at the end of every step."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import warnings
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from daceml.config import config
from daceml.errors import RecordingError
from daceml.profiling.recording.ranks import own_place, path_of, rank_facts
from daceml.profiling.recording.step_clock import StepClock
from daceml.profiling.recording.step_plan import Part, Plan
from daceml.profiling.recording.trace_file import Document, extended, read_document, write_document
from daceml.runtime.threads_at_exit import let_threads_finish

if TYPE_CHECKING:
    import torch
    from torch import nn

    from daceml.profiling.trace import Trace

_one_at_a_time = threading.Lock()


class Recording:
    """A run that is being recorded, or was.

    Some steps are timed, then the profiler warms up and records, then some steps are timed again: see `Plan`.
    Nothing is written where the run raises.

    Args:
        model: whose layers and gradients the trace shall know; None where there is none.
        optimizer: of which the header says what it is; its steps are seen anyway.
        plan: how many steps are recorded.
        memory: whether allocations are recorded, too.
        path: where the trace is saved at the end; None for `save`.
    Raises:
        RecordingError: another recording, or torch's profiler, is running; too few steps to record one.
    """

    def __init__(
        self,
        model: nn.Module | None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        plan: Plan | None = None,
        memory: bool = False,
        path: str | Path | None = None,
    ) -> None:
        from daceml.profiling.recording.gradients import ReadyOrder

        self.model, self.optimizer, self.memory = model, optimizer, memory
        self.plan = plan or Plan()
        self.path: Path | None = None
        self._goal = None if path is None else Path(path)
        self._document: Document | None = None
        self._steps = 0
        self._clock = StepClock(_on_device(model))
        self._part: Part | None = None
        self._timed: dict[Part, list[float]] = {}
        self._order = ReadyOrder()
        self._around = ExitStack()  # hooks of the layers, and the profiler
        self._learning = ExitStack()  # hooks of the gradients
        self._profiler: Any = None
        self._profiling = False
        self._calls: tuple[Any, ...] = ()
        self._collectives: tuple[Any, ...] = ()
        self._running = False

    def __enter__(self) -> Self:
        other = "torch's profiler" if _profiler_runs() else ""
        if not other and not _one_at_a_time.acquire(blocking=False):
            other = "another recording"
        if other:
            raise RecordingError(
                "a recording cannot begin",
                why=f"{other} is running in this process",
                fix="end it first; one recording sees all threads",
            )
        self._running = True
        try:
            self._enter(self.plan.part(0))
        except BaseException:
            self._abandon()
            raise
        return self

    def step(self) -> None:
        """A step of the run has ended, and the next one begins.

        Raises:
            RecordingError: outside the `with` block.
        """
        if not self._running:
            raise RecordingError(
                "step() was called outside the recording", fix="call it inside `with daceml.profile(...)`"
            )
        self._clock.mark()
        self._order.step()
        self._steps += 1
        part = self.plan.part(self._steps)
        if part is not self._part:
            self._leave()
            self._enter(part)
        elif part in (Part.WARMUP, Part.ACTIVE):
            self._profiler.step()

    @property
    def done(self) -> bool:
        """Whether all steps of the plan have been seen; more are left alone."""
        return self._part is Part.OVER or (self._document is not None and not self._running)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            self._leave()
            self._end_profiler()
            recorded = self._recorded
            if not recorded:
                raise RecordingError(
                    "nothing was recorded",
                    why=f"the run had {self._steps} steps, and the first that is recorded is number "
                    f"{self.plan.least}",
                    fix=f"call step() at the end of each of {self.plan.least} steps or more, "
                    "or pass unprofiled=0, warmup=1",
                )
            self._document = self._finished(recorded)
        finally:
            self._abandon()
        if self._goal is not None:
            self.save(self._goal)

    def save(self, path: str | Path) -> Path:
        """Write the trace; compressed where the name ends in `.gz`.

        In a run of several ranks each one writes a file of its own, with the rank behind the name:
        `run_rank0.json.gz`. Where `daceml trace profile` started the run, the file lies in its folder.

        Raises:
            RecordingError: there is no trace.
            OutputFileError: the file cannot be written.
        """
        collected = config().traces
        place = own_place()
        if place.size > 1:
            let_threads_finish()
        own = path_of(Path(collected, Path(path).name) if collected else Path(path), place)
        write_document(self._there(), own)
        self.path = own
        return own

    @cached_property
    def trace(self) -> Trace:
        """What was recorded, as the analyses take it."""
        from daceml.profiling.kineto.reader import trace_of

        return trace_of(json.dumps(self._there()).encode(), str(self.path or "a recording"))

    @property
    def header(self) -> dict[str, Any]:
        """What the recorder adds to the profiler's file: layers, gradients, times, programs, the machine."""
        from daceml.profiling.recording.trace_file import HEADER

        return self._there()[HEADER]

    def _there(self) -> Document:
        if self._document is None:
            raise RecordingError(
                "there is no trace yet", fix="leave the `with` block first; a run that raises has none"
            )
        return self._document

    # ---- parts of the run

    def _enter(self, part: Part) -> None:
        """Begin a part; its first step begins when this returns."""
        if part is Part.WARMUP:
            self._start_profiler()
        elif part is Part.ACTIVE:
            self._start_calls()
            self._profiler.step()
        self._part = part
        self._clock.start()

    def _leave(self) -> None:
        """End the part that is under way."""
        part = self._part
        if part is None:
            return
        self._timed[part] = self._clock.stop()
        if part is Part.WARMUP:
            self._learning.close()
        elif part is Part.ACTIVE:
            self._end_profiler()

    def _start_profiler(self) -> None:
        from daceml.profiling.recording.gradients import gradients_watched
        from daceml.profiling.recording.layers import layers_marked

        if self.model is not None:
            self._around.enter_context(layers_marked(self.model))
            self._learning.enter_context(gradients_watched(self.model, self._order))
        self._profiler = _profiler(self.plan, self.memory)
        self._profiling = True
        with warnings.catch_warnings():
            # torch 2.11 says of every profiler that a second cycle would replace the first; this one has one
            warnings.filterwarnings("ignore", "(Warning: )?Profiler clears events")
            self._profiler.start()

    def _start_calls(self) -> None:
        from daceml.profiling.recording.kernels import programs_loaded

        if programs_loaded():
            from daceml.runtime.call_log import start_call_log, stop_call_log
            from daceml.runtime.collective_log import start_collective_log, stop_collective_log

            start_call_log()
            start_collective_log()
            self._around.callback(lambda: setattr(self, "_collectives", stop_collective_log()))
            self._around.callback(lambda: setattr(self, "_calls", stop_call_log()))

    def _end_profiler(self) -> None:
        """Stop the profiler, where it runs, and take all hooks away."""
        self._learning.close()
        try:
            if self._profiling:
                self._profiling = False
                # a step that has not ended is cut short here, and `extended` takes its annotation away
                self._profiler.stop()
        finally:
            self._around.close()

    def _abandon(self) -> None:
        """Leave nothing behind, whatever state the run is in."""
        if not self._running:
            return
        self._running = False
        try:
            self._end_profiler()
        finally:
            self._profiler = None
            _one_at_a_time.release()

    # ---- what is written

    @property
    def _recorded(self) -> int:
        """Complete steps that the profiler has recorded."""
        return len(self._timed.get(Part.ACTIVE, ()))

    def _finished(self, recorded: int) -> Document:
        from daceml.profiling.recording.collectives import collective_events
        from daceml.profiling.recording.header import header_facts, recorded_kernels

        folder = Path(tempfile.mkdtemp(prefix="daceml-trace-"))
        try:
            self._profiler.export_chrome_trace(str(folder / "profiler.json"))
            document = read_document(folder / "profiler.json")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        kernels = recorded_kernels(document, self._calls, self.model)
        base_ns = int(document.get("baseTimeNanoseconds", 0))
        events = [*kernels.events, *collective_events(self._collectives, base_ns)]
        ranks = rank_facts(own_place())
        if ranks is not None:  # torch writes it of its own process groups
            document.setdefault("distributedInfo", {"rank": ranks["rank"], "world_size": ranks["size"]})
        header = {
            **header_facts(self.model, self.optimizer, self._order.latest),
            "rank": ranks,
            "steps": recorded,
            "times": self._times(),
            "programs": kernels.programs,
            "calls_without_kernels": kernels.missing,
        }
        return extended(document, header, events, self.plan.warmup + recorded - 1)

    def _times(self) -> dict[str, Any]:
        """What the profiler costs; the first step of each unprofiled part does not count."""
        plain = [t for part in (Part.BEFORE, Part.AFTER) for t in self._timed.get(part, ())[1:]]
        profiled = self._timed[Part.ACTIVE]
        ratio = median(profiled) / median(plain) if plain else None
        return {"profiled_us": profiled, "unprofiled_us": plain, "inflation": ratio}


def _on_device(model: nn.Module | None) -> bool:
    import torch

    if not torch.cuda.is_available():
        return False
    return model is None or any(parameter.is_cuda for parameter in model.parameters())


def _profiler_runs() -> bool:
    from torch._C._autograd import _profiler_enabled  # pyright: ignore[reportPrivateUsage]

    return _profiler_enabled()


def _profiler(plan: Plan, memory: bool) -> Any:
    """torch's profiler for the steps of a plan that it sees."""
    from torch import cuda
    from torch._C._profiler import _ExperimentalConfig  # pyright: ignore[reportPrivateUsage]
    from torch.profiler import ProfilerActivity, profile, schedule

    activities, config = [ProfilerActivity.CPU], None
    if cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
        config = _ExperimentalConfig(enable_cuda_sync_events=True)
    return profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=plan.warmup, active=plan.steps, repeat=1),
        record_shapes=True,
        profile_memory=memory,
        experimental_config=config,
    )
