"""Rewrites of operators: what to look for, why not to touch it, and what to put in its place.

    class FoldTransposeIntoGemm(Rewrite):
        \"\"\"Gemm(Transpose(a), b) -> Gemm(a, b, transA)\"\"\"

        def pattern(self, op, a, b):
            return op.Gemm(op.Transpose(a, name="transpose"), b, name="gemm")

        def check(self, a, transpose, gemm):
            return None if a.rank == 2 else "a is not a matrix"

        def rewrite(self, op, a, b, gemm):
            return op.Gemm(a, b, transA=1 - gemm.transA, transB=gemm.transB, alpha=gemm.alpha)

An instance is a pass: it takes a network of ONNX nodes, rewrites every place where its pattern stands, and
records what it did and what it refused. Operators of the same type are looked up in an index, and what was
rewritten is looked at again with what reads it: the cost is linear in the network.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from daceml.errors import UnsupportedProgramError
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.random_operators import draws
from daceml.sdfg.network import Network
from daceml.sdfg.passes import ELSEWHERE, Level, PassRecord, Refusal
from daceml.transformations.rewriting.pattern import (
    Anything,
    Match,
    OperatorGraph,
    OperatorPattern,
    PatternOps,
    ResultOf,
    matches,
)
from daceml.transformations.rewriting.refusals import refused_result
from daceml.transformations.rewriting.replacement import (
    Operator,
    ReplacementOps,
    Value,
    remove_unread,
    take_place,
)

# A rewrite whose result it would rewrite again, for ever
_MOST_PER_OPERATOR = 10


class Rewrite(ABC):
    """A pattern, a check with a reason, and a replacement.

    `check` and `rewrite` take by name what they want: variables of the pattern as `Value`, operators of it
    that have a name as `Operator`.

    Attributes:
        level: the stage of compilation that it belongs to.
        shared_inside: whether operators besides the last may have other readers; they stay for those.
        shape_of: variable whose shape the result has to have; "" where any will do.
        by_place: a recipe may say at which results it works.
    """

    level: ClassVar[Level] = "coarse"
    takes_network: ClassVar[bool] = True  # as a hook
    by_place: ClassVar[bool] = True
    shared_inside: ClassVar[bool] = False
    shape_of: ClassVar[str] = ""

    @abstractmethod
    def pattern(self, *args: Any, **kwargs: Any) -> Any:
        """What stands there now; parameters after `op` are variables, which stand for any array."""

    def check(self, *args: Any, **kwargs: Any) -> str | None:
        """Why this place stays as it is: a sentence; None where it is rewritten."""
        return None

    @abstractmethod
    def rewrite(self, *args: Any, **kwargs: Any) -> Any:
        """What takes the place of the pattern's results: as many values, of the same shapes."""

    @property
    def name(self) -> str:
        """As `explain` shows it."""
        return type(self).__name__

    def __call__(self, network: Network) -> PassRecord:
        """Rewrite a network of ONNX nodes wherever the pattern stands. Mutates it, and its list of passes."""
        record = _Application(self, network).run()
        network.passes.append(record)
        return record

    def first_places(self, network: Network, most: int | None = None) -> tuple[str, ...]:
        """Rewrite no more than the first places, and say where they were. Mutates the network.

        Args:
            most: how many; all where None.
        """
        application = _Application(self, network, most)
        application.run()
        return tuple(application.places)


class _Application:
    """One rewrite going through one network."""

    def __init__(self, rewrite: Rewrite, network: Network, most: int | None = None) -> None:
        self.by, self.graph, self.most = rewrite, OperatorGraph(network), most
        self.places: list[str] = []
        self.rewritten: list[str] = []
        names = list(inspect.signature(rewrite.pattern).parameters)[1:]
        found = rewrite.pattern(PatternOps(rewrite.name), *map(Anything, names))
        self.terms: tuple[ResultOf, ...] = found if isinstance(found, tuple) else (found,)
        if not self.terms or not all(isinstance(term, ResultOf) for term in self.terms):
            raise TypeError(f"{rewrite.name}.pattern gives {found!r}; it has to give results of op.Name(…)")
        self.root = self.terms[0].operator
        if any(term.operator is not self.root for term in self.terms):
            raise TypeError(
                f"{rewrite.name}.pattern gives results of several operators; it may give one's only"
            )

    def run(self) -> PassRecord:
        """Every place."""
        network, key = self.graph.network, (self.root.domain, self.root.op_type)
        waiting = deque(self.graph.by_type.get(key, ()))
        limit = _MOST_PER_OPERATOR * (len(waiting) + 1)
        applied, refused = 0, dict[ONNXNode, Refusal]()
        while waiting and applied != self.most:
            node = waiting.popleft()
            match = matches(self.root, node, self.graph) if self.graph.holds(node) else None
            if match is None or not self._has_results(node):
                continue
            bound = self._bound(match)
            reason = self._shared(match) or self._of_another_shape(node, bound) or self._checked(bound)
            place = str(self.graph.results(node)[self.terms[0].place])
            if reason is None and not self.graph.network.may_change(place):
                reason = ELSEWHERE
            if reason is not None:
                refused[node] = refused_result(node, reason, self.graph)
                continue
            refused.pop(node, None)
            self.places.append(node.where())
            self.rewritten.append(place)
            new = self._replace(node, match, bound)
            applied += 1
            if applied > limit:
                raise UnsupportedProgramError(
                    f"rewrite {self.by.name} does not come to an end",
                    where=node.where(),
                    why=f"after {applied} times it still finds its pattern, in what it has written itself",
                    fix="let check() refuse what rewrite() gives",
                )
            waiting += [n for n in self._around(new) if (n.domain, n.op_type) == key]
        network.sdfg.reset_cfg_list()
        return PassRecord(
            level=self.by.level,
            name=self.by.name,
            applied={self.by.name: applied} if applied else {},
            refused=tuple(refused[node] for node in refused if self.graph.holds(node)),
            places=tuple(self.rewritten),
        )

    def _checked(self, bound: Mapping[str, Any]) -> str | None:
        reason = _call(self.by.check, bound)
        if reason is not None and not isinstance(reason, str):
            raise TypeError(
                f"{self.by.name}.check gives {reason!r}; it has to give None where the rewrite applies, "
                "else a sentence that says why not"
            )
        return reason

    def _of_another_shape(self, node: ONNXNode, bound: Mapping[str, Any]) -> str | None:
        """A constant of one element may have more dimensions than what it is joined with."""
        result = self.graph.results(node)[self.terms[0].place]
        if not self.by.shape_of or result is None:
            return None
        same = Value(result, self.graph).shape == bound[self.by.shape_of].shape
        return None if same else f"its result has not the shape of {self.by.shape_of}"

    def _has_results(self, node: ONNXNode) -> bool:
        found = self.graph.results(node)
        return all(term.place < len(found) and found[term.place] is not None for term in self.terms)

    def _bound(self, match: Match) -> dict[str, Any]:
        values = {name: Value(array, self.graph) for name, array in match.arrays.items()}
        return values | {name: Operator(node, self.graph) for name, node in match.named().items()}

    def _shared(self, match: Match) -> str | None:
        """Why an operator of the pattern has to stay."""
        root = match.operators[self.root]
        taken = {term.place for term in self.terms}
        for place, array in enumerate(self.graph.results(root)):
            wanted = array is not None and (self.graph.is_result(array) or self.graph.readers(array))
            if wanted and place not in taken:
                return f"another result of {root.op_type} is wanted, too"
        if self.by.shared_inside:
            return None
        inside = {node for pattern, node in match.operators.items() if pattern is not self.root}
        known = set(match.operators.values())
        for node in inside:
            for array in self.graph.results(node):
                if array is None:
                    continue
                if self.graph.is_result(array):
                    return f"the network returns the result of {node.op_type}"
                if any(reader not in known for reader in self.graph.readers(array)):
                    return f"the result of {node.op_type} has another reader"
        return None

    def _replace(self, node: ONNXNode, match: Match, bound: Mapping[str, Any]) -> list[ONNXNode]:
        """Put the replacement in; gives the operators that are new."""
        graph, olds = self.graph, self.graph.results(node)
        op = ReplacementOps(graph, node, self.by.name)
        given = _call(self.by.rewrite, bound, op)
        values: tuple[Value, ...] = given if isinstance(given, tuple) else (given,)
        if len(values) != len(self.terms) or not all(isinstance(v, Value) for v in values):
            raise TypeError(f"{self.by.name}.rewrite gives {given!r} for {len(self.terms)} results")
        self._check_made(op, node, [a for a in olds if a is not None])
        if len({v.array for v in values}) < len(values):
            raise UnsupportedProgramError(
                f"rewrite {self.by.name} gives one value for two results",
                where=node.where(),
                fix="let it give op.Identity(value) for one of them",
            )
        touched: list[str] = []
        for term, value in zip(self.terms, values, strict=True):
            old = olds[term.place]
            assert old is not None, "the pattern has this result"
            self._check_type(Value(old, graph), value, node, untyped=value.array in op.untyped)
            op.untyped.discard(value.array)
            take_place(graph, old, value.array)
            touched += [old, value.array]
        remove_unread(
            graph,
            [node, *match.operators.values(), *(made for made in op.made if not draws(made))],
            [*match.arrays.values(), *op.constants],
        )
        made = [n for n in op.made if graph.holds(n)]
        if unknown := [a for n in made for a in graph.results(n) if a in op.untyped]:
            raise UnsupportedProgramError(
                f"rewrite {self.by.name} makes a tensor of unknown shape",
                where=node.where(),
                why=f"ONNX's shape inference does not tell that of {unknown[0]}",
                fix="give it to the call: op.Name(…, shape=…, dtype=…)",
            )
        readers = [
            r for a in touched if a in graph.access for r in graph.readers(a) if isinstance(r, ONNXNode)
        ]
        return [*made, *readers]

    def _check_made(self, op: ReplacementOps, node: ONNXNode, olds: list[str]) -> None:
        """A replacement that reads what it replaces would be a cycle."""
        for made in op.made:
            if any(a in olds for a in self.graph.operands(made)):
                raise UnsupportedProgramError(
                    f"rewrite {self.by.name} reads what it replaces",
                    where=node.where(),
                    why=f"its {made.op_type} reads a result of the matched {node.op_type}",
                    fix="compute it anew from the operands",
                )

    def _check_type(self, old: Value, new: Value, node: ONNXNode, *, untyped: bool) -> None:
        if not untyped and (old.shape != new.shape or old.dtype != new.dtype):
            raise UnsupportedProgramError(
                f"rewrite {self.by.name} changes a tensor",
                where=node.where(),
                why=f"{old} would become {new}",
                fix="let rewrite() give the shape and element type of what it replaces",
            )

    def _around(self, new: Iterable[ONNXNode]) -> list[ONNXNode]:
        """New operators, and what reads them within the depth of the pattern."""
        found = dict.fromkeys(new)
        front = list(found)
        for _ in range(_depth(self.root)):
            arrays = [a for n in front for a in self.graph.results(n) if a is not None]
            front = [r for a in arrays for r in self.graph.readers(a) if isinstance(r, ONNXNode)]
            found |= dict.fromkeys(front)
        return list(found)


def _depth(pattern: OperatorPattern) -> int:
    below = (term.operator for term in pattern.operands if isinstance(term, ResultOf))
    return 1 + max(map(_depth, below), default=0)


def _call(function: Callable[..., Any], bound: Mapping[str, Any], *first: Any) -> Any:
    """Call with what a function asks for by name."""
    parameters = list(inspect.signature(function).parameters.values())[len(first) :]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return function(*first)
    if unknown := [p.name for p in parameters if p.name not in bound]:
        raise TypeError(f"{function.__qualname__} asks for {unknown}; the pattern has {sorted(bound)}")
    return function(*first, *(bound[p.name] for p in parameters))
