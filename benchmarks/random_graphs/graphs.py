"""Random graphs: elementwise functions, reductions, normalisations and moves of tensors that share sizes.

They are what fusion takes apart and puts together.

A graph is drawn from a number. Its values stay of order one: functions that grow are followed by tanh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from benchmarks.operators.draws import Chance

SIZES = (1, 2, 3, 5, 7, 16, 17, 31, 33, 40, 64, 70)
_MOST_ELEMENTS = 40_000

Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Along = Callable[[torch.Tensor, int], torch.Tensor]

UNARY: dict[str, Unary] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": lambda x: torch.exp(torch.tanh(x)),
    "square": lambda x: torch.tanh(x).square(),
    "root": lambda x: (x.abs() + 0.1).sqrt(),
    "softplus": functional.softplus,
    "mish": lambda x: x * torch.tanh(functional.softplus(x)),
    "silu": functional.silu,
    "gelu": functional.gelu,
    "scale": lambda x: x * 0.7 + 0.3,
    "clamp": lambda x: x.clamp(-0.9, 1.1),
    "sine": torch.sin,
}
BINARY: dict[str, Binary] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda x, y: torch.tanh(x) * y,
    "div": lambda x, y: x / (1 + y.abs()),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
# each keeps the shape: statistics are used where they come from
ALONG: dict[str, Along] = {
    "softmax": lambda x, d: torch.softmax(x, d),
    "log_softmax": lambda x, d: torch.log_softmax(x, d) * 0.1,
    "less mean": lambda x, d: x - x.mean(d, keepdim=True),
    "less largest": lambda x, d: x - x.amax(d, keepdim=True),
    "over sum": lambda x, d: x / (1 + x.abs().sum(d, keepdim=True)),
    "over norm": lambda x, d: x / (1 + x.norm(dim=d, keepdim=True)),
    "standardised": lambda x, d: (
        (x - x.mean(d, keepdim=True)) / (x.var(d, keepdim=True, correction=0) + 0.1).sqrt()
    ),
    "peaks": lambda x, d: torch.where(x == x.amax(d, keepdim=True), x, x * 0.5),
    "log sum": lambda x, d: x - torch.logsumexp(x, d, keepdim=True),
    "between": lambda x, d: (x - x.amin(d, keepdim=True)) / (2 + x.amax(d, keepdim=True)),
    "flip": lambda x, d: x.flip(d),
    "roll": lambda x, d: x.roll(1, d),
    "running sum": lambda x, d: torch.tanh(x.cumsum(d)),
    "halves": lambda x, d: _halves(x, d),
    "all less mean": lambda x, d: x - x.mean(tuple(k for k in range(x.dim()) if k != d), keepdim=True),
    "product": lambda x, d: torch.tanh(x.transpose(d, -1) @ _square(x.shape[d], x)).transpose(d, -1),
}


def _halves(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Parts of a tensor, put together again in the same size."""
    half = x.shape[dim] // 2
    return torch.cat([x.narrow(dim, 0, half), x.narrow(dim, 0, x.shape[dim] - half)], dim)


def _square(size: int, like: torch.Tensor) -> torch.Tensor:
    """A matrix of rotations by one, as a product has it that a library computes."""
    return torch.eye(size, dtype=like.dtype, device=like.device).roll(1, 0)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One value: a function of earlier ones."""

    function: str
    operands: tuple[int, ...]
    along: int = 0

    def __str__(self) -> str:
        where = f", {self.along}" if self.function in ALONG else ""
        return f"{self.function}({', '.join(f'v{o}' for o in self.operands)}{where})"


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph of one seed.

    Attributes:
        shapes: of its inputs; all of one rank, equal or 1 in each dimension.
        instructions: value i is input i, or instruction i less the number of inputs.
        results: values that are returned.
        dtype: of the inputs.
        open_batch: compiled for any first size.
    """

    seed: int
    shapes: tuple[tuple[int, ...], ...]
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]
    dtype: torch.dtype
    open_batch: bool

    mode = "training"

    def module(self) -> nn.Module:
        """The graph as a network."""
        return GraphModule(self)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Normal tensors."""
        generator = torch.Generator().manual_seed(self.seed)
        return tuple(torch.randn(shape, generator=generator).to(self.dtype) for shape in self.shapes)

    def __str__(self) -> str:
        lines = [f"v{n} = input {list(shape)}" for n, shape in enumerate(self.shapes)]
        lines += [f"v{len(lines) + n} = {instruction}" for n, instruction in enumerate(self.instructions)]
        kind = f"{self.dtype}{', open batch' if self.open_batch else ''}"
        return "; ".join([*lines, f"return {', '.join(f'v{r}' for r in self.results)}", kind])


class GraphModule(nn.Module):
    """A graph that runs."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for instruction in self.graph.instructions:
            first, *more = (values[o] for o in instruction.operands)
            if instruction.function in UNARY:
                values.append(UNARY[instruction.function](first))
            elif instruction.function in BINARY:
                values.append(BINARY[instruction.function](first, more[0]))
            else:
                values.append(ALONG[instruction.function](first, instruction.along))
        return tuple(values[r] for r in self.graph.results)


def draw(seed: int) -> Graph:
    """The graph of a number."""
    chance = Chance(seed)
    rank = chance.between(1, 4)
    while True:
        sizes = [chance.of(SIZES) for _ in range(rank)]
        if torch.Size(sizes).numel() <= _MOST_ELEMENTS:
            break
    open_batch = chance.between(0, 9) == 0
    shapes = [tuple(sizes)]
    for _ in range(chance.between(0, 2)):
        ones = [chance.between(0, 2) == 0 for _ in sizes]
        fixed = [open_batch and d == 0 for d in range(rank)]
        shapes.append(tuple(1 if one and not f else s for one, f, s in zip(ones, fixed, sizes, strict=True)))
    count = len(shapes)
    instructions: list[Instruction] = []
    for _ in range(chance.between(3, 12)):
        latest = count + len(instructions) - 1
        # mostly of the newest values, so that there are chains
        near = [max(0, latest - chance.between(0, 3)), chance.between(0, latest)]
        kind = chance.between(0, 9)
        if kind < 3:
            instructions.append(Instruction(function=chance.of(list(UNARY)), operands=(near[0],)))
        elif kind < 6:
            instructions.append(Instruction(function=chance.of(list(BINARY)), operands=tuple(near)))
        else:
            along = chance.between(0, rank - 1)
            function = chance.of(list(ALONG))
            instructions.append(Instruction(function=function, operands=(near[0],), along=along))
    last = count + len(instructions) - 1
    results = sorted({last, *(chance.between(count, last) for _ in range(chance.between(0, 2)))})
    return Graph(
        seed=seed,
        shapes=tuple(shapes),
        instructions=tuple(instructions),
        results=tuple(results),
        dtype=torch.float32 if chance.between(0, 4) == 0 else torch.float64,
        open_batch=open_batch,
    )
