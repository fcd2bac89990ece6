"""A forward that is not one program: where it is cut, and what its parts are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from daceml.frontend.capture.redirected_forward import forward_of
from daceml.module.partial.cut import Cut
from daceml.module.partial.dynamo_regions import DynamoRegions
from daceml.module.partial.graph_session import graph_function
from daceml.module.partial.region_ledger import open_ledger, recorded_regions
from daceml.module.partial.submodules import CompiledSubmodules

if TYPE_CHECKING:
    from daceml.module.session import Session

log = logging.getLogger(__name__)

# Of the FLOPs; with less in programs, the forward is cut in another way, and the better way is kept.
_ENOUGH = 0.8


class PartialForward:
    """The forward of a session's module, in programs and Python.

    It is cut at submodules, or where Dynamo breaks the graph. The first ways are tried in turn, one a call,
    until one leaves at most a fifth of the FLOPs to eager PyTorch; then the best one is kept.

    Args:
        session: whose module cannot be one program.
    Attributes:
        cuts: why, for each reason that was met.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cuts: list[Cut] = []
        self._shares: list[float] = []
        self._lock = threading.Lock()
        self._ways: list[Callable[..., Any]] = []
        self._kept: Callable[..., Any] | None = None
        self._said = False

    def add(self, cut: Cut) -> None:
        """Note one more reason why the module is not one program."""
        if cut in self.cuts:
            return
        with self._lock:
            self.cuts.append(cut)
            if not self._ways or cut.untraceable:
                traceable = not any(known.untraceable for known in self.cuts)
                self._ways, self._shares, self._kept = _ways(self.session, traceable=traceable), [], None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kept, outer = self._kept, open_ledger() is not None
        if kept is None and _is_recomputed():
            return self._ways[0](*args, **kwargs)
        if kept is not None and not outer:
            return kept(*args, **kwargs)
        with recorded_regions() as ledger:
            before = ledger.compiled_flops, ledger.eager_flops
            way = kept or self._next()
            breaks = way.breaks if isinstance(way, DynamoRegions) else ()
            with ledger.inside(self, self.session.name, (*self.cuts[-1:], *breaks)):
                result = way(*args, **kwargs)
        if kept is None:
            compiled = ledger.compiled_flops - before[0]
            everything = compiled + ledger.eager_flops - before[1]
            self._judge(way, compiled / everything if everything else 1.0, nested=outer)
        return result

    def _next(self) -> Callable[..., Any]:
        return self._ways[min(len(self._shares), len(self._ways) - 1)]

    def _judge(self, way: Callable[..., Any], share: float, *, nested: bool) -> None:
        with self._lock:
            if self._kept is not None or self._next() is not way:
                return
            self._shares.append(share)
            if share >= _ENOUGH or len(self._shares) == len(self._ways):
                self._kept = self._ways[self._shares.index(max(self._shares))]
                self._report(max(self._shares), nested=nested)

    def _report(self, share: float, *, nested: bool) -> None:
        if not self._said and not nested:
            name, cut = self.session.name, self.cuts[0]
            log.warning(
                "%s is not one program: %s; programs do %.0f %% of its FLOPs, explain names the eager parts",
                name, cut, 100 * share,
            )  # fmt: skip
        self._said = True


def _is_recomputed() -> bool:
    """Whether hooks see what autograd saves: a checkpoint runs forward again, and finds the same tensors."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None  # pyright: ignore


def _ways(session: Session, *, traceable: bool) -> list[Callable[..., Any]]:
    """The ways to cut a forward, the first of which is tried first."""
    module = session.eager
    ways: list[Callable[..., Any]] = []
    if CompiledSubmodules.applies(module):
        ways.append(CompiledSubmodules(module, session.part))
    if traceable:
        ways.append(_dynamo(session))
    if CompiledSubmodules.applies(module, single=True):
        ways.append(CompiledSubmodules(module, session.part, single=True))
    return ways or [forward_of(module)]


def _dynamo(session: Session) -> DynamoRegions:
    options = session.options
    sizes = options["dynamic"] or options["dynamic_shapes"] is not None

    def compile_graph(graph: fx.GraphModule, name: str) -> Callable[..., Any]:
        return graph_function(graph, session.view, options, name=name)

    return DynamoRegions(session.eager, compile_graph, session.name, dynamic=True if sizes else None)
