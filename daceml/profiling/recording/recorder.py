"""`daceml.profile` and `daceml.Recorder`: recordings of a loop, and of a function that is one step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from daceml.errors import ConfigurationError
from daceml.profiling.recording.recording import Recording
from daceml.profiling.recording.step_plan import Plan

if TYPE_CHECKING:
    import torch
    from torch import nn

F = TypeVar("F", bound=Callable[..., Any])


class Recorder:
    """Records functions that are decorated with `@daceml.profile(recorder)`: each call is a step.

    When a function has been called often enough its trace is written, as `<function>.json.gz` in the folder,
    and later calls run as if they were not decorated. In a run of several ranks, as torchrun and mpirun start
    them, each rank writes `<function>_rank<rank>.json.gz`. A call that raises ends the recording without a
    trace, and the next call begins another one.

    Args:
        folder: where the traces are written.
        model, optimizer, steps, warmup, unprofiled, memory: as in `daceml.profile`.

    Attributes:
        paths: the traces that were written.
    Raises:
        ConfigurationError: a number of steps that cannot be.
    """

    def __init__(
        self,
        folder: str | Path,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        steps: int = 5,
        warmup: int = 2,
        unprofiled: int = 3,
        memory: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.model, self.optimizer, self.memory = model, optimizer, memory
        self.plan = Plan(steps=steps, warmup=warmup, unprofiled=unprofiled)
        self.paths: list[Path] = []
        self._running: dict[str, Recording] = {}
        self._finished: set[str] = set()

    def close(self) -> None:
        """End what is being recorded, and write what there is.

        Raises:
            RecordingError: a function was called too rarely for one step to be recorded.
        """
        while self._running:
            self._end(next(iter(self._running)))

    def _call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if name in self._finished:
            return function(*args, **kwargs)
        recording = self._running.get(name)
        if recording is None:
            recording = Recording(self.model, self.optimizer, plan=self.plan, memory=self.memory)
            recording.__enter__()
            self._running[name] = recording
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            del self._running[name]
            recording.__exit__(type(error), error, error.__traceback__)
            raise
        recording.step()
        if recording.done:
            self._end(name)
        return result

    def _end(self, name: str) -> None:
        recording = self._running.pop(name)
        recording.__exit__(None, None, None)
        self.paths.append(recording.save(self.folder / f"{name}.json.gz"))
        self._finished.add(name)

    def decorated(self, function: F) -> F:
        """The function, each call of which is a step."""
        name = function.__name__

        @functools.wraps(function)
        def step(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, function, args, kwargs)

        return step  # pyright: ignore[reportReturnType]


@overload
def profile(model: Recorder) -> Callable[[F], F]: ...
@overload
def profile(
    model: nn.Module | None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    steps: int = 5,
    warmup: int = 2,
    unprofiled: int = 3,
    memory: bool = False,
    path: str | Path | None = None,
) -> Recording: ...
def profile(
    model: nn.Module | Recorder | None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    steps: int = 5,
    warmup: int = 2,
    unprofiled: int = 3,
    memory: bool = False,
    path: str | Path | None = None,
) -> Recording | Callable[[F], F]:
    """Record some steps of a training run, for what-if questions.

        with daceml.profile(model, optimizer) as trace:
            for batch in loader:
                train(batch)
                trace.step()
        trace.save("run.json.gz")

    `@daceml.profile(recorder)` records a function instead, each call of which is a step.

    Args:
        model: whose layers and gradients the trace shall know, as it is called: compiled, or within
            DistributedDataParallel. None records operators and kernels alone, as `daceml.compile_step` needs
            it, which refuses modules with hooks.
        optimizer: of which the trace says what it is.
        steps: that are recorded.
        warmup: steps before, in which the profiler sets itself up.
        unprofiled: steps that are timed without the profiler, before and again after the recording, which
            tells how much the profiler has slowed the run down; one more on each side is left out.
        memory: whether allocations are recorded.
        path: where the trace is saved at the end, besides `trace.save`.
    Raises:
        ConfigurationError: no module, or numbers of steps that cannot be.
    """
    if isinstance(model, Recorder):
        return model.decorated
    from torch import nn

    if model is not None and not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"daceml.profile takes a module or a Recorder, not a {type(model).__name__}",
            fix="pass the nn.Module that is trained, or None to record without layers",
        )
    plan = Plan(steps=steps, warmup=warmup, unprofiled=unprofiled)
    return Recording(model, optimizer, plan=plan, memory=memory, path=path)
