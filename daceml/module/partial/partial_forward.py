"""A forward that is not one program: where it is cut, and what its parts are."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from daceml.frontend.capture.redirected_forward import forward_of
from daceml.module.partial.cut import Cut
from daceml.module.partial.dynamo_regions import DynamoRegions
from daceml.module.partial.graph_session import graph_function
from daceml.module.partial.region_ledger import RegionLedger, open_ledger, recorded_regions, share_text
from daceml.module.partial.submodules import CompiledSubmodules

if TYPE_CHECKING:
    from daceml.module.session import Session

log = logging.getLogger(__name__)

# Of the FLOPs; with less in programs, the forward is cut in another way, and the better way is kept.
_ENOUGH = 0.8
# To enter a submodule that is cut itself takes about 60 us, and fewer FLOPs than these take twenty times that
_WORTH_AN_ENTRY = 50_000_000


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """What became of one call under one way of cutting.

    Attributes:
        share: of the FLOPs, those in programs.
        programs: that were entered.
        entries: of programs, and of parts that are cut.
        dear: whether entering parts that are cut takes a share of the time that can be seen.
    """

    share: float
    programs: int
    entries: int
    dear: bool

    def rank(self) -> tuple[bool, float]:
        """What the best outcome has the most of."""
        enough = self.share >= _ENOUGH
        return enough, -self.entries if enough else self.share


class PartialForward:
    """The forward of a session's module, in programs and Python.

    It is cut at submodules, or where Dynamo breaks the graph. The ways are tried in turn, one a call, until
    one leaves at most a fifth of the FLOPs to eager PyTorch and has no small parts that are cut in turn. Of
    the ways that leave at most a fifth, that which enters the fewest parts is kept.

    Args:
        session: whose module cannot be one program.
    Attributes:
        cuts: why, for each reason that was met.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cuts: list[Cut] = []
        self._outcomes: list[_Outcome] = []
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
                self._ways, self._outcomes, self._kept = _ways(self.session, traceable=traceable), [], None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kept, outer = self._kept, open_ledger() is not None
        if kept is None and _is_recomputed():
            return self._ways[0](*args, **kwargs)
        if kept is not None and not outer:
            return kept(*args, **kwargs)
        with recorded_regions() as ledger:
            before = _totals(ledger)
            way = kept or self._next()
            breaks = way.breaks if isinstance(way, DynamoRegions) else ()
            with ledger.inside(self, self.session.name, (*self.cuts[-1:], *breaks)):
                result = way(*args, **kwargs)
        if kept is None:
            seen = _totals(ledger)
            seen.subtract(before)
            self._judge(way, _outcome(seen), nested=outer)
        return result

    def _next(self) -> Callable[..., Any]:
        return self._ways[min(len(self._outcomes), len(self._ways) - 1)]

    def _judge(self, way: Callable[..., Any], outcome: _Outcome, *, nested: bool) -> None:
        with self._lock:
            if self._kept is not None or self._next() is not way:
                return
            self._outcomes.append(outcome)
            best = max(self._outcomes, key=_Outcome.rank)
            settled = best.share >= _ENOUGH and not (best.dear and best is outcome)
            if settled or len(self._outcomes) == len(self._ways):
                self._kept = self._ways[self._outcomes.index(best)]
                self._report(best, nested=nested)

    def _report(self, outcome: _Outcome, *, nested: bool) -> None:
        if not self._said and not nested:
            name, cut = self.session.name, self.cuts[0]
            does = f"programs do {share_text(outcome.share)} of its FLOPs, explain names the eager parts"
            log.warning(
                "%s is not one program: %s; %s", name, cut, does if outcome.programs else "it runs eagerly"
            )
        self._said = True


def _totals(ledger: RegionLedger) -> Counter[str]:
    """FLOPs so far, and how often programs and parts that are cut were entered."""
    cut = sum(region.calls for key, region in ledger.regions.items() if isinstance(key, PartialForward))
    programs = sum(region.calls for region in ledger.regions.values() if not region.cuts)
    return Counter(compiled=ledger.compiled_flops, eager=ledger.eager_flops, programs=programs, cut=cut)


def _outcome(seen: Counter[str]) -> _Outcome:
    flops = seen["compiled"] + seen["eager"]
    within = seen["cut"] - 1  # besides the part that is judged
    return _Outcome(
        share=seen["compiled"] / flops if flops else 1.0,
        programs=seen["programs"],
        entries=seen["programs"] + within,
        dear=within > 1 and flops < within * _WORTH_AN_ENTRY,
    )


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
