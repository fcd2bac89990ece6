"""Scalar expressions printed as Python tasklet code: single assignment, sharing, typed literals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import dace
from dace import symbolic

from daceml.sdfg.scalar import CUT, FLOATS, HALF, OPERATIONS, DType, Index, Scalar
from daceml.sdfg.scalar_rewrite import nodes_of

# Names start with an underscore: arrays of a network never do, and connectors must differ from arrays.
RESULT = "_out"
_LONGEST = 96


@dataclass(frozen=True, kw_only=True)
class Access:
    """What one input connector reads: None stands for a whole dimension, indexed inside the code."""

    array: str
    indices: tuple[Index | None, ...]
    shape: tuple[Index, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskletCode:
    """Code that assigns `_out`, and what its connectors `_a0, _a1, …` read.

    Attributes:
        code: Python statements.
        reads: connector -> access.
        value: connector that stands for a reduction's accumulator, None where the expression has none.
        place: what `_out` covers, where the code writes at a position in it.
    """

    code: str
    reads: dict[str, Access]
    value: str | None = None
    place: Access | None = None


def find_reductions(root: Scalar) -> list[Scalar]:
    """Reduce nodes of an expression, bodies excluded."""
    found: dict[int, Scalar] = {}
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op == "reduce":
            found[id(node)] = node
        else:
            stack.extend(node.args)
    return list(found.values())


def print_tasklet(root: Scalar) -> TaskletCode:
    """Code for an expression; a reduce node in it is printed as the connector `_acc`."""
    return _Printer(root).result()


def print_store(value: Scalar, place: Scalar) -> TaskletCode:
    """Code that writes a value where `place`, a `gather` of the array that is written, would read."""
    return _Printer(value, place).result()


def print_results(values: Sequence[Scalar]) -> tuple[TaskletCode, tuple[str, ...]]:
    """Code that assigns several values without reductions, and the connector of each."""
    return _Printer(values[0]).results(values[1:])


def type_name(dtype: DType) -> str:
    """The type as tasklet code spells it."""
    return "dace." + dtype.to_string()


def literal_text(value: float, dtype: DType) -> str:
    """A constant: `dace.float32(0.5)`, `-dace.float32(inf)`, `dace.int64(3)`, `True`."""
    if dtype == dace.bool_:
        return str(bool(value))
    if isinstance(value, float) and math.isinf(value) and value < 0:
        return f"(-{type_name(dtype)}(inf))"
    if dtype == dace.int64 and value == -(2**63):
        # C++ has no literal for it: a minus sign is an operator on a number that is one too large
        return f"{type_name(dtype)}({value + 1} - 1)"
    return f"{type_name(dtype)}({value!r})"


def _converted(text: str, conversion: Scalar) -> str:
    """The text of a conversion of what has a text."""
    before, name = conversion.args[0].dtype, type_name(conversion.dtype)
    if before not in FLOATS or conversion.dtype not in CUT:
        return f"{name}({text})"
    wide = f"{type_name(dace.float32)}({text})" if before in HALF else text
    return f"{name}(whole_{conversion.dtype.to_string()}({wide}))"


class _Printer:
    """Numbers the values of an expression, then prints every value used more than once as a statement."""

    def __init__(self, root: Scalar, place: Scalar | None = None) -> None:
        self.numbers: dict[object, int] = {}
        self.by_identity: dict[int, int] = {}
        self.values: list[Scalar] = []
        self.operands: list[tuple[int, ...]] = []
        self.uses: list[int] = []
        self.root = self._number(root)
        self.place, self.positions = place, tuple(self._number(p) for p in place.args) if place else ()
        self.names: dict[int, str] = {}
        self.texts: dict[int, tuple[str, bool]] = {}
        self.statements: list[str] = []
        self.reads: dict[str, Access] = {}
        self.value: str | None = None

    def result(self) -> TaskletCode:
        target, access = RESULT, None
        if self.place is not None:
            access, written = _covered(self.place)
            target += self._brackets(self.place, self.positions, written)
        final = self._text(self.root, nested=False)
        self.statements.append(f"{target} = {final}")
        return TaskletCode(code="\n".join(self.statements), reads=self.reads, value=self.value, place=access)

    def results(self, further: Sequence[Scalar]) -> tuple[TaskletCode, tuple[str, ...]]:
        numbers = [self.root, *(self._number(value) for value in further)]
        texts = [self._text(number, nested=False) for number in numbers]
        connectors = tuple(f"{RESULT}{k}" for k in range(len(texts)))
        assigned = [f"{name} = {text}" for name, text in zip(connectors, texts, strict=True)]
        return TaskletCode(code="\n".join([*self.statements, *assigned]), reads=self.reads), connectors

    def _number(self, node: Scalar) -> int:
        """The number of a value, which one more place uses."""
        # The body of a reduction belongs to another tasklet.
        fresh = nodes_of(node, enter=lambda n: n.op != "reduce" and id(n) not in self.by_identity)
        for part in fresh:
            if id(part) not in self.by_identity:
                self._add(part)
        number = self.by_identity[id(node)]
        self.uses[number] += 1
        return number

    def _add(self, node: Scalar) -> None:
        """Number a value whose operands are numbered, and count that it uses them."""
        # Two reductions are the same only if identical.
        operands = () if node.op == "reduce" else tuple(self.by_identity[id(a)] for a in node.args)
        data = id(node) if node.op == "reduce" else (type(node.data), node.data)
        if isinstance(node.data, float):
            data = (repr(node.data),)
        key = (node.op, node.dtype, data, operands)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.values)
            self.values.append(node)
            self.operands.append(operands)
            self.uses.append(0)
            for operand in operands:
                self.uses[operand] += 1
        self.by_identity[id(node)] = number

    def _text(self, number: int, *, nested: bool) -> str:
        """The text of a value: that of its operands is made first, without recursion."""
        stack = [(number, False)]
        while stack:
            current, operands_known = stack.pop()
            if current in self.names or current in self.texts:
                continue
            if operands_known:
                self.texts[current] = self._made(current)
                continue
            if self.values[current].op == "gather":
                self._connector(current)  # what is read is numbered before the positions that are read
            stack.append((current, True))
            stack += [(operand, False) for operand in reversed(self.operands[current])]
        return self._known(number, nested=nested)

    def _known(self, number: int, *, nested: bool) -> str:
        """The text of a value that has one."""
        if number in self.names:
            return self.names[number]
        text, infix = self.texts[number]
        return f"({text})" if nested and infix else text

    def _made(self, number: int) -> tuple[str, bool]:
        """The text of a value whose operands have theirs, and whether it needs parentheses when nested."""
        node, operands = self.values[number], self.operands[number]
        match node.op:
            case "literal":
                return literal_text(node.data, node.dtype), False
            case "index":
                return f"{type_name(node.dtype)}({symbolic.symstr(node.data)})", False
            case "read":
                array, indices = node.data
                return self._connect(number, Access(array=array, indices=indices)), False
            case "reduce":
                self.value = self.names[number] = "_acc"
                return "_acc", False
            case "gather":
                connector, written = self._connector(number)
                text, infix = connector + self._brackets(node, operands, written), False
            case "cast":
                text, infix = _converted(self._known(operands[0], nested=False), node), False
            case _:
                operation = OPERATIONS[node.op]
                parts = [self._known(o, nested=operation.infix) for o in operands]
                text, infix = operation.template.format(*parts), operation.infix
        if number != self.root and (self.uses[number] > 1 or len(text) > _LONGEST):
            self._named(number, text)
        return text, infix

    def _named(self, number: int, text: str) -> str:
        name = self.names[number] = f"_t{len(self.statements)}"
        self.statements.append(f"{name} = {text}")
        return name

    def _position(self, number: int) -> str:
        """A position that is data, by a name: dace takes what stands in brackets for integers, and would
        make `ceil(x - 0.5)` there `x + int_ceil(0.5, -1)`."""
        text = self._text(number, nested=False)
        return text if text.isidentifier() else self._named(number, text)

    def _connect(self, number: int, access: Access) -> str:
        name = self.names[number] = f"_a{len(self.reads)}"
        self.reads[name] = access
        return name

    def _connector(self, number: int) -> tuple[str, list[int]]:
        """The connector of a gather, and the dimensions to index in what it covers."""
        access, written = _covered(self.values[number])
        connector = next((c for c, a in self.reads.items() if a == access), None)
        if connector is None:
            connector = f"_a{len(self.reads)}"
            self.reads[connector] = access
        return connector, written

    def _brackets(self, gather: Scalar, numbers: Sequence[int], written: Sequence[int]) -> str:
        """The positions of an element in what a connector covers."""
        _, known, _ = gather.data
        operands = dict(zip([d for d, i in enumerate(known) if i is None], numbers, strict=True))
        positions = [
            self._position(operands[d]) if d in operands else symbolic.symstr(known[d]) for d in written
        ]
        return f"[{', '.join(positions)}]" if positions else ""


def _covered(gather: Scalar) -> tuple[Access, list[int]]:
    """What a connector covers for an element whose position is data, and the dimensions to index in it."""
    array, indices, shape = gather.data
    # dace numbers the dimensions of a connector without those of one element.
    written = [d for d, i in enumerate(indices) if i is None and shape[d] != 1]
    if _confuses_dace(shape, len(written)):
        written = [d for d, extent in enumerate(shape) if extent != 1]
        indices = tuple(None if d in written else i for d, i in enumerate(indices))
    return Access(array=array, indices=indices, shape=shape), written


def _confuses_dace(shape: Sequence[Index], written: int) -> bool:
    """Whether dace would take positions for those of other dimensions.

    Of several positions it drops those whose number is that of a dimension of size 1, unless there is one
    for each other dimension.
    """
    others = sum(extent != 1 for extent in shape)
    return 1 < written < others and any(extent == 1 for extent in shape[:written])
