"""Attribute the time of a block to causes: import, tracing, dace, compiler, child process, sleep, the rest.

Functions of known cost are replaced by timed ones as soon as their module is loaded. Times are those of the
main thread and exclusive: of two causes, one within the other, the inner one counts. Only `compiler_busy` is
a sum over all threads: compilers run several at once, next to the main thread.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from typing import Any

CAUSES = ("import", "tracing", "dace", "compiler", "child", "sleep")
_COMPILERS = ("g++", "gcc", "c++", "clang++", "nvcc", "cicc", "ptxas", "ld", "cuobjdump", "nvdisasm")
# module, function -> cause
_FUNCTIONS = (
    ("torch.export", "export", "tracing"),
    ("torch.onnx", "export", "tracing"),
    ("torch._dynamo.convert_frame", "_compile", "tracing"),
    ("daceml.codegen.build", "_build", "compiler"),
    ("time", "sleep", "sleep"),
    ("subprocess", "Popen.wait", "child"),
    ("subprocess", "Popen.communicate", "child"),
    ("multiprocessing.process", "BaseProcess.join", "child"),
    ("torch.multiprocessing.spawn", "ProcessContext.join", "child"),
)
_STAGES = {"export": "tracing", "kernels": "compiler"}  # of a compilation; all others work on graphs


class Clock:
    """Exclusive seconds of each cause, since the last `take`."""

    def __init__(self) -> None:
        self._main = threading.main_thread()
        self._stack: list[tuple[str, float, float]] = []  # cause, start, seconds of inner causes
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def during(self, cause: str) -> Generator[None]:
        if threading.current_thread() is not self._main:
            yield
            return
        if cause == "child" and self._stack and self._stack[-1][0] == "compiler":
            cause = "compiler"  # its process is what one waits for
        self._stack.append((cause, time.perf_counter(), 0.0))
        try:
            yield
        finally:
            cause, start, inner = self._stack.pop()
            spent = time.perf_counter() - start
            self.add(cause, spent - inner)
            if self._stack:
                outer, begun, within = self._stack[-1]
                self._stack[-1] = (outer, begun, within + spent)

    def add(self, cause: str, seconds: float) -> None:
        with self._lock:
            self._seconds[cause] = self._seconds.get(cause, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Return the seconds of each cause and start anew."""
        with self._lock:
            taken, self._seconds = self._seconds, {}
        return {cause: round(seconds, 4) for cause, seconds in sorted(taken.items()) if seconds >= 5e-4}


class Probes:
    """Replaces the functions above by timed ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting = list(_FUNCTIONS)
        self._stages = False
        self._time_imports()
        self._time_compilers()
        self.attach()

    def attach(self) -> None:
        """Replace functions of modules that were loaded since the last call; a set of lookups otherwise."""
        for entry in [entry for entry in self._waiting if entry[0] in sys.modules]:
            self._waiting.remove(entry)
            module, path, cause = entry
            *owners, name = path.split(".")
            owner: Any = functools.reduce(getattr, owners, sys.modules[module])
            setattr(owner, name, self._timed(getattr(owner, name), cause))
        if not self._stages and (pipeline := sys.modules.get("daceml.compiler.pipeline")):
            self._stages = True
            self._time_stages(pipeline.Stages)

    def _timed(self, function: Callable[..., Any], cause: str) -> Callable[..., Any]:
        clock = self._clock

        @functools.wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            with clock.during(cause):
                return function(*given, **named)

        return timed

    def _time_stages(self, stages: Any) -> None:
        plain, clock = stages.stage, self._clock

        @contextmanager
        def stage(self: Any, name: str) -> Generator[None]:
            with clock.during(_STAGES.get(name, "dace")), plain(self, name):
                yield

        stages.stage = stage

    def _time_imports(self) -> None:
        sys.meta_path.insert(0, _TimedFinder(self._clock))

    def _time_compilers(self) -> None:
        plain, clock = subprocess.run, self._clock

        @functools.wraps(plain)
        def run(command: Any, *given: Any, **named: Any) -> Any:
            first = command if isinstance(command, str) else str(command[0])
            if os.path.basename(first.split(" ")[0]) not in _COMPILERS:
                return plain(command, *given, **named)
            start = time.perf_counter()
            try:
                with clock.during("compiler"):
                    return plain(command, *given, **named)
            finally:
                clock.add("compiler_busy", time.perf_counter() - start)

        subprocess.run = run


class _TimedFinder:
    """Finds what the finders after it find, and times the execution of modules."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if isinstance(spec.loader, SourceFileLoader | ExtensionFileLoader):
                    self._time(spec.loader)
                return spec
        return None

    def _time(self, loader: Any) -> None:
        plain, clock = loader.exec_module, self._clock

        def exec_module(module: Any) -> None:
            with clock.during("import"):
                plain(module)

        loader.exec_module = exec_module
