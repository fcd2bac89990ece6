"""Random programs with aliases: views, changes in place, `out=`, state, and results that are parts of others.

A program is the text of a forward. It is drawn from a number, line by line, while it runs on example tensors,
so that every line is one that torch takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from benchmarks.operators.draws import Chance
from benchmarks.opinfo.calls import Seen, call
from benchmarks.opinfo.judge import differences

MODES = ("inference", "training", "dynamic", "torch.compile")

# {a} and {b} are values, {i} is a place along the first dimension of {a}
VIEWS = (
    "{a}[{i}]", "{a}[{i}:]", "{a}[:{i}]", "{a}[..., {i}:]", "{a}[::2]", "{a}[None]", "{a}.t()", "{a}.mT",
    "{a}.view(-1)", "{a}.reshape(-1)", "{a}.flatten()", "{a}.ravel()", "{a}.unsqueeze(-1)",
    "{a}.transpose(0, -1)", "{a}.movedim(0, -1)", "{a}.chunk(2)[-1]", "{a}.unbind()[{i}]",
    "{a}.split(1)[{i}]", "{a}.diagonal()", "{a}.detach()", "{a}.squeeze()", "{a}.narrow(0, {i}, 1)",
    "{a}.view_as({a})", "{a}.unfold(0, 2, 1)", "{a}.expand(2, *{a}.shape)", "{a}.expand_as({b})",
    "torch.broadcast_tensors({a}, {b})[0]", "{a}.contiguous()", "{a}.to({a}.dtype)", "{a}.type_as({b})",
    "{a}.float()", "F.dropout({a}, 0.5, False)", "F.dropout({a}, 0.0, True)",
    "F.alpha_dropout({a}, 0.5, False)", "torch.atleast_1d({a})", "torch.positive({a})", "{a}.real",
    "{a}.reshape({a}.shape)", "{a}.select(-1, 0)",
    "torch.tensor_split({a}, 2)[0]", "{a}.swapaxes(0, -1)", "{a}.view(*{a}.shape, 1)", "{a}.data",
)  # fmt: skip
FRESH = (
    "{a} * 2", "{a} + {b}", "{a} * {b}", "{a}.sin()", "{a}.clone()", "torch.relu({a})",
    "{a}.sum(0, keepdim=True)", "{a}.sum()", "torch.cat([{a}.reshape(-1), {b}.reshape(-1)])",
    "torch.stack([{a}, {a}])", "torch.zeros_like({a})", "{a}[[0, 0]]", "torch.tensor([1.0, -2.0])",
    "torch.ones(2, 2)", "torch.where({a} > 0, {a}, 0.5)", "{a}.repeat(2, *[1] * {a}.dim())",
    "{a}.new_zeros({a}.shape)", "F.pad({a}, (1, 0))", "{a}.cumsum(0)", "{a}.amax(-1)", "F.softmax({a}, -1)",
    "{a}.roll(1, 0)",
)  # fmt: skip
CHANGES = (
    "{a}.add_({b})", "{a}.mul_(2)", "{a}.sub_(1)", "{a}.relu_()", "{a}.zero_()", "{a}.fill_(3)",
    "{a}.copy_({b})", "{a}.neg_()", "{a}.clamp_(-1, 1)", "{a}.masked_fill_({a} > 0, 2.0)",
    "F.relu({a}, inplace=True)", "{a}.t_()", "{a}.squeeze_()", "{a}.unsqueeze_(0)",
    "{a}.addcmul_({b}, {b})", "{a}.fill_({b}.sum())", "torch.add({a}, {b}, out={c})", "{a}.tanh_()",
    "torch.mul({a}, 2, out={c})", "torch.exp({a}, out={c})", "torch.sum({a}, 0, out={c})",
    "torch.clamp({a}, -1, 1, out={c})", "{a}.index_fill_(0, torch.tensor([0]), 4.0)",
    "{a}.detach().mul_(2)", "{a}.set_({b})",
)  # fmt: skip
STORES = (
    "{a}[{i}] = {b}", "{a}[{i}:] += 1", "{a}[:] = {b}", "{a} *= {b}", "{a}[..., {i}] = 2.0",
    "{a}[{a} < 0] = 0.0", "{a}.data.mul_(2)", "self.buffer.add_({a}.sum())", "self.buffer[0] = {a}.sum()",
    "self.count += 1", "self.plain.mul_(0.5)", "{a}.diagonal().add_(1)",
    "self.weight.data.mul_(0.9)",
)  # fmt: skip
STATE = ("self.buffer", "self.weight", "self.plain", "self.buffer[1:]", "self.weight.t()", "self.weight[0]")


@dataclass(frozen=True, kw_only=True)
class AliasProgram:
    """A program of one number.

    Attributes:
        lines: of its forward.
        shapes: of its arguments.
        same: for each argument the first one that is the same tensor in the first call; in the second call
            all are different.
        mode: how it is compiled and called.
    """

    seed: int
    lines: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    same: tuple[int, ...]
    mode: str

    def module(self) -> nn.Module:
        """The program as a module with a parameter, a buffer and a plain tensor."""
        return AliasModule(self)

    def inputs(self, number: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        """Arguments of the first call (0) or a later one."""
        generator = torch.Generator().manual_seed(self.seed * 2 + number)
        found = [torch.randn(shape, generator=generator).to(dtype) for shape in self.shapes]
        found = [x.requires_grad_(self.mode == "training") for x in found]
        return [found[place] for place in self.same] if number == 0 else found

    def __str__(self) -> str:
        return "; ".join([f"{self.mode} {list(self.shapes)} {list(self.same)}", *self.lines])


class AliasModule(nn.Module):
    """A program that runs."""

    def __init__(self, program: AliasProgram) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[0.5, -1.0], [2.0, 1.5]]))
        self.register_buffer("buffer", torch.tensor([1.0, -2.0, 3.0]))
        self.register_buffer("count", torch.tensor(0))
        self.plain = torch.tensor([[1.0, 2.0], [-3.0, 4.0]])
        names = ", ".join(f"x{place}" for place in range(len(program.shapes)))
        text = "\n    ".join([f"def forward(self, {names}):", *program.lines])
        space: dict[str, Any] = {"torch": torch, "F": functional}
        exec(text, space)
        self.function: Callable[..., Any] = space["forward"]

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def draw(seed: int) -> AliasProgram:
    """The program of a number."""
    chance = Chance(seed)
    mode = MODES[chance.between(0, 9) % 4 if chance.between(0, 2) else 0]
    shapes = [(chance.between(2, 3), chance.between(2, 3)) for _ in range(chance.between(1, 3))]
    same = [place if chance.between(0, 2) else shapes.index(shapes[place]) for place in range(len(shapes))]
    empty = AliasProgram(seed=seed, lines=("pass",), shapes=tuple(shapes), same=tuple(same), mode=mode)
    module = AliasModule(empty)
    values: dict[str, Any] = {"self": module, "torch": torch, "F": functional}
    names = [f"x{place}" for place in range(len(shapes))]
    values |= dict(zip(names, empty.inputs(), strict=True))
    lines: list[str] = []
    for _ in range(40):
        if len(lines) >= chance.between(3, 7):
            break
        line, name = _line(chance, names)
        try:
            with torch.set_grad_enabled(mode == "training"):
                exec(line, values)
        except Exception:
            continue
        lines.append(line)
        if name and isinstance(values[name], torch.Tensor):
            names.append(name)
    results = [chance.of(names[-4:] if chance.between(0, 1) else names) for _ in range(chance.between(1, 4))]
    lines.append(f"return {', '.join(results)}" if chance.between(0, 4) else f"return [{results[-1]}]")
    return AliasProgram(seed=seed, lines=tuple(lines), shapes=tuple(shapes), same=tuple(same), mode=mode)


def _line(chance: Chance, names: list[str]) -> tuple[str, str]:
    a, b, c = (chance.of(names[-3:] if chance.between(0, 1) else names) for _ in range(3))
    given = {"a": a, "b": b, "c": c, "i": chance.between(0, 1)}
    name = f"v{len(names)}"
    kind = chance.between(0, 19)
    if kind < 7:
        return f"{name} = {chance.of(VIEWS).format(**given)}", name
    if kind < 11:
        return f"{name} = {chance.of(FRESH).format(**given)}", name
    if kind < 15:
        return f"{name} = {chance.of(CHANGES).format(**given)}", name
    if kind < 17:
        return chance.of(STORES).format(**given), ""
    if kind < 19:
        return f"{name} = {chance.of(STATE)}", name
    return f"with torch.no_grad(): {name} = {chance.of((*VIEWS, *CHANGES)).format(**given)}", name


def verdict_of(number: int) -> list[str]:
    """Compile one program, call it twice, and compare all that a caller can tell."""
    import daceml
    from daceml.errors import BuildError, DacemlError

    program = draw(number)
    gradients = program.mode == "training"
    eager, exact, ours = program.module(), program.module().double(), program.module()
    exact.plain = exact.plain.double()
    if program.mode == "torch.compile":
        torch.compiler.reset()
        compiled: Any = torch.compile(ours, backend="daceml")
    else:
        compiled = daceml.compile(
            ours, backward=gradients, dynamic=program.mode == "dynamic", fullgraph=False
        )
    for turn in range(2):
        theirs = _seen(eager, eager, program, turn, torch.float32, gradients)
        precise = _seen(exact, exact, program, turn, torch.float64, gradients)
        try:
            found = _seen(compiled, ours, program, turn, torch.float32, gradients)
        except Exception as error:
            return ["foreign exception", f"{type(error).__name__}: {error}"[:300]]
        if (
            isinstance(found.error, DacemlError)
            and not isinstance(found.error, BuildError)
            and theirs.error is None
        ):
            return ["refused", f"{found.error}".partition("\n")[0]]
        told = differences(found, theirs, precise, elementwise=False, values=True, random=False)
        if told:
            return ["wrong", f"call {turn}: {'; '.join(told)}"[:300]]
        if theirs.error is not None:
            return ["eager raises", f"{type(theirs.error).__name__}"]
        for seen in (theirs, precise, found):
            _write_to(seen)
    if program.mode != "torch.compile":
        cuts = compiled.session.partial.cuts if compiled.session.partial else []
        if any(cut.internal for cut in cuts):
            return ["foreign exception", "; ".join(map(str, cuts))]
        if not compiled.session.variants:
            return ["eager", "; ".join(map(str, cuts))]
    return ["equal", ""]


def _seen(
    function: Any, module: nn.Module, program: AliasProgram, turn: int, dtype: torch.dtype, gradients: bool
) -> Seen:
    inputs = program.inputs(turn, dtype)
    # what the module holds counts as arguments: results may lie in it, and it may be changed
    state = [*module.parameters(), *module.buffers(), module.plain]
    state = [tensor for tensor in state if isinstance(tensor, torch.Tensor)]
    return call(
        lambda *given: function(*given[: len(inputs)]), [*inputs, *state], gradients=gradients, seed=turn
    )


def _write_to(seen: Seen) -> None:
    """What the caller does with results reaches what they share memory with."""
    with torch.no_grad():
        for leaf in pytree.tree_leaves(seen.results):
            if isinstance(leaf, torch.Tensor) and all(
                s or n == 1 for s, n in zip(leaf.stride(), leaf.shape, strict=True)
            ):
                leaf.data.add_(1)  # some views that eager returns can neither be written to nor detached
