"""Cut where Dynamo breaks the graph: each graph is compiled, and Python between them runs as it stands."""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import fx, nn
from torch._guards import CompileContext

from daceml.config import config
from daceml.frontend.capture.provenance import is_user_file
from daceml.frontend.capture.redirected_forward import Forward, forward_of
from daceml.module.partial.cut import Cut

log = logging.getLogger(__name__)

CompileGraph = Callable[[fx.GraphModule, str], Callable[..., Any]]
"""A function of the graph's inputs; the text names the graph in reports."""

_OPTIONS = {
    "suppress_errors": True,
    "recompile_limit": 64,  # of one code object, which all instances of a class share; torch's is 8
    "use_numpy_random_stream": True,  # numpy's own numbers, not torch's in their place
    "record_runtime_overhead": False,  # 5 us for each graph, in each call
}


class DynamoRegions:
    """The forward of a module in graphs, which Dynamo guards, and the Python between them.

    Args:
        module: as the user wrote it.
        compile_graph: is called once for each graph.
        name: of the module, in reports.
        dynamic: as in torch.compile.
    Attributes:
        breaks: why Dynamo ended a graph before forward returned.
    """

    def __init__(
        self, module: nn.Module, compile_graph: CompileGraph, name: str, *, dynamic: bool | None
    ) -> None:
        self.breaks: list[Cut] = []
        self._compile_graph, self._count = compile_graph, 0
        self._name, self._eager = name, forward_of(module)
        self._compilations: Counter[int] = Counter()  # of a piece of code, by Dynamo's number of it
        self._gave_up = False
        # Dynamo keeps its backends for as long as the class of the module lives
        this: weakref.ref[DynamoRegions] = weakref.ref(self)
        self._run = _compiled(forward_of(module), functools.partial(_backend, this), dynamic=dynamic)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._eager if self._gave_up else self._run)(*args, **kwargs)

    def compiled(self, graph: fx.GraphModule) -> Callable[..., Any]:
        """A function for one graph of Dynamo's."""
        self._count += 1
        reason = getattr(graph, "compile_subgraph_reason", None)
        if reason is not None and getattr(reason, "graph_break", False):
            cut = _cut_at(reason)
            if cut not in self.breaks:
                self.breaks.append(cut)
        self._count_compilation()
        return self._compile_graph(graph, f"{self._name}, graph {self._count}")

    def _count_compilation(self) -> None:
        """Give up where the same lines are compiled again and again, as where a list grows at every call."""
        this = CompileContext.current_compile_id()
        if this is None or self._gave_up:
            return
        self._compilations[this.frame_id or 0] += 1
        limit = config().recompile_limit
        if max(self._compilations.values()) > limit:
            self._gave_up = True
            self.breaks.append(
                Cut(
                    what=f"the same lines were compiled {limit} times",
                    why="what their Python reads is another at each call, such as a list that grows",
                    fix="let a hook write a buffer in place, or raise DACEML_RECOMPILE_LIMIT",
                )
            )
            log.warning("%s runs eagerly from now on: %s", self._name, self.breaks[-1])


def _backend(
    regions: weakref.ref[DynamoRegions], graph: fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[..., Any]:
    alive = regions()
    return graph.forward if alive is None else alive.compiled(graph)


def _cut_at(reason: Any) -> Cut:
    stack = [frame for frame in reason.user_stack if is_user_file(frame.filename)]
    frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in stack]
    lines = [line.strip() for line in str(reason.reason).splitlines() if line.strip()]
    what = lines[0] if lines else "Dynamo ends a graph here"
    if what.startswith("generic_jump"):
        what = "Python branches on a tensor's value"
    explanation = next((line.partition(": ")[2] for line in lines if line.startswith("Explanation:")), "")
    return Cut(what=what, where=frames[-1] if frames else "", why=explanation)


def _compiled(function: Forward, backend: Callable[..., Any], *, dynamic: bool | None) -> Forward:
    """What `torch.compile` makes, with options that hold while Dynamo compiles, and cost a call nothing."""
    from torch._dynamo.eval_frame import optimize

    context: Any = optimize(backend, dynamic=dynamic)
    compiling = context.callback

    def lenient(*frame: Any) -> Any:
        with _lenient():
            return compiling(*frame)

    lenient._torchdynamo_orig_backend = compiling  # pyright: ignore  # torch looks for the backend there
    context.callback = lenient
    return context(function)


@contextmanager
def _lenient() -> Generator[None]:
    """What Dynamo cannot trace runs eagerly, without a word."""
    from torch._dynamo import config

    _quieten()
    outer = getattr(_silent, "thread", False)
    _silent.thread = True
    try:
        with config.patch(_OPTIONS):
            yield
    finally:
        _silent.thread = outer


_silent = threading.local()

_TALKATIVE = ("torch._dynamo", "torch._subclasses")


@functools.cache
def _quieten() -> None:
    """Keep back what Dynamo, and what it traces, say where a graph breaks; reports name every cut."""
    from torch._dynamo import utils

    for name in [name for name in logging.root.manager.loggerDict if name.startswith(_TALKATIVE)]:
        logging.getLogger(name).addFilter(lambda record: not getattr(_silent, "thread", False))
    warn_once: Any = utils.warn_once

    def quiet_warn_once(*args: Any, **kwargs: Any) -> None:
        if not getattr(_silent, "thread", False):
            warn_once(*args, **kwargs)

    utils.warn_once = quiet_warn_once
