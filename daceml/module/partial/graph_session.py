"""A session for one graph of Dynamo, which is split where it is not one program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx, nn
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from daceml.compiler.call import making_of_call
from daceml.compiler.guards import call_key, named_key
from daceml.compiler.module_request import ModuleRequest
from daceml.config import config
from daceml.errors import MemoryBudgetError
from daceml.frontend.capture.arguments import Arguments
from daceml.module.inference_results import outside_inference_mode
from daceml.module.partial.cut import Cut, cut_of, is_refusal
from daceml.module.partial.dynamo_graph import DynamoGraph
from daceml.module.partial.graph_pieces import Piece, pieces_of
from daceml.module.partial.region_ledger import open_ledger
from daceml.module.session import Session
from daceml.runtime.autograd import keep_dynamo_out

if TYPE_CHECKING:
    from daceml.compiler.options import ModuleOptions

View = Callable[[Session], nn.Module]


def graph_function(
    graph: fx.GraphModule, view: View, options: Mapping[str, Any], *, name: str = "", whole: bool = False
) -> Callable[..., Any]:
    """A function of a Dynamo graph's inputs that runs it compiled.

    Args:
        options: of the session; sizes that Dynamo left symbolic are symbolic.
        name: of the graph, in logs and reports.
        whole: raise an error where the graph is not one program.
    """
    keep_dynamo_out()
    module = DynamoGraph(graph)
    symbolic = module.dynamic_shapes()
    given = {**options, "dynamic": False, "dynamic_shapes": symbolic, "fullgraph": whole}
    session = Session(module, view, cut=PartialGraph, name=name, before_eager=True, **given)

    if module.takes_tensors_only:
        return lambda *inputs: session(inputs, {})
    seen: set[tuple[Any, ...]] = set()

    def call(*inputs: Any) -> Any:
        arguments = module.arguments(inputs)
        numbers = tuple(given for given in arguments if not isinstance(given, torch.Tensor))
        if numbers and numbers not in seen:
            if len(seen) >= config().recompile_limit:
                return module(*arguments)  # a number that is another one at every call is worth no program
            seen.add(numbers)
        return session(arguments, {})

    return call


class PartialGraph:
    """A graph in pieces: programs, and operators that run eagerly.

    Args:
        session: whose module is a `DynamoGraph` that is not one program.
    Attributes:
        cuts: why, for each reason that was met.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cuts: list[Cut] = []
        self._lock = threading.Lock()
        self._split: fx.GraphModule | None = None

    def add(self, cut: Cut) -> None:
        """Note one more reason why the graph is not one program."""
        if cut not in self.cuts:
            self.cuts.append(cut)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        graph = self.session.eager
        assert isinstance(graph, DynamoGraph)
        with self._lock:
            if self._split is None:
                self._split = self._pieces(graph)
        return self._split.forward(*graph.every_input(args))  # __call__ prints what it raises

    def _pieces(self, graph: DynamoGraph) -> fx.GraphModule:
        with _disable_current_modes(), outside_inference_mode():
            split, pieces = pieces_of(graph.graph_module, self.cuts[0], self._check)
        for name, piece in pieces.items():
            part = getattr(split, name)
            compiled = None
            if piece.cut is None:
                whole = f"{self.session.name}.{name.removeprefix('submod_')}"
                compiled = graph_function(part, self.session.view, self.session.options, name=whole)
            setattr(split, name, _PieceCall(part, piece, compiled))
        return split

    def _check(self, graph: DynamoGraph, examples: Sequence[Any]) -> Cut | None:
        """Whether a graph can be a program; nothing is compiled."""
        request = self.session.request
        fixed = {"dynamic": False, "dynamic_shapes": None, "verify": False}
        options = cast("ModuleOptions", {**request.options, **fixed})
        request = ModuleRequest(module=graph, options=options)
        try:
            modes = named_key(call_key(examples)).modes
            making, _, _ = making_of_call(request, Arguments(tuple(examples), {}), modes)
            making.ahead = False
            with torch.no_grad():
                making.optimised()
        except MemoryBudgetError:
            raise
        except Exception as error:
            if not is_refusal(error):
                raise
            return cut_of(error)
        return None


class _PieceCall(nn.Module):
    """Runs one piece of a graph."""

    def __init__(self, part: fx.GraphModule, piece: Piece, compiled: Callable[..., Any] | None) -> None:
        super().__init__()
        self._part, self._piece, self._compiled = part, piece, compiled

    def forward(self, *inputs: Any) -> Any:
        if self._compiled is not None:
            return self._compiled(*inputs)
        if (ledger := open_ledger()) is None:
            return self._part.forward(*inputs)
        cuts = () if self._piece.cut is None else (self._piece.cut,)
        with ledger.inside(self, self._piece.name, cuts):
            return self._part.forward(*inputs)
