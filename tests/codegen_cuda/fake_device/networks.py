"""Networks that run on the fake device, and one step of each: results and gradients by name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu.precisions import PRECISIONS, compare
from benchmarks.models.bert import bert_layer
from benchmarks.models.mish import Mish
from tests.codegen_cuda.networks import ScaledMaskedSoftmax, without_dropout

Values = dict[str, torch.Tensor]


class Attention(nn.Module):
    """Self-attention through torch's fused operator."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.project(x).chunk(3, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(-2))


class Words(nn.Module):
    """A table of rows, some of them looked up several times."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(13, 24), nn.Linear(24, 5)
        self.register_buffer("rows", torch.tensor([[0, 3, 3, 12, 7], [5, 3, 0, 1, 1]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.table(self.get_buffer("rows")) + x))


class Bags(nn.Module):
    """Sums of rows of a table, one of them of no rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(13, 24, mode="sum")
        self.register_buffer("rows", torch.tensor([0, 3, 3, 12, 7, 5, 3]))
        self.register_buffer("starts", torch.tensor([0, 4, 4]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.table(self.get_buffer("rows"), self.get_buffer("starts")) + x)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A module and the shape of its input.

    Attributes:
        depth: operators on its longest path, from which the limit of errors follows.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    depth: int


NETWORKS: dict[str, Network] = {
    "mish": Network(build=Mish, shape=(3, 5, 137), depth=3),
    "layer norm": Network(build=lambda: nn.LayerNorm(70), shape=(53, 70), depth=1),
    "softmax": Network(build=lambda: ScaledMaskedSoftmax(67), shape=(2, 3, 67, 67), depth=3),
    "mlp": Network(
        build=lambda: nn.Sequential(nn.Linear(20, 37), nn.GELU(), nn.LayerNorm(37), nn.Linear(37, 7)),
        shape=(19, 20),
        depth=4,
    ),
    "convolution": Network(
        build=lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(8, 4, 3)
        ),
        shape=(4, 3, 13, 11),
        depth=5,
    ),
    "attention": Network(build=lambda: Attention(32, 2), shape=(3, 19, 32), depth=6),
    "bert": Network(
        build=lambda: without_dropout(bert_layer(hidden=48, heads=3)), shape=(2, 21, 48), depth=20
    ),
    "words": Network(build=Words, shape=(2, 5, 24), depth=4),
    "bags": Network(build=Bags, shape=(3, 24), depth=3),
}


def inputs_of(network: Network, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An input, and what the loss multiplies the result with, on the processor."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(network.shape, generator=generator)
    return x, torch.randn(network.build()(x).shape, generator=generator)


def step(
    call: Callable[[torch.Tensor], torch.Tensor], module: nn.Module, x: torch.Tensor, cotangent: torch.Tensor
) -> Values:
    """The result of a call, the gradients of its input and of all parameters, and the buffers after it."""
    given = x.detach().requires_grad_()
    parameters = dict(module.named_parameters())
    y = call(given)
    found = torch.autograd.grad(y, (given, *parameters.values()), cotangent)
    gradients = dict(zip(("input", *parameters), found, strict=True))
    buffers = {
        f"buffer {name}": one.clone() for name, one in module.named_buffers() if one.is_floating_point()
    }
    return {"result": y.detach(), **{f"gradient {name}": one for name, one in gradients.items()}, **buffers}


def forward(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Values:
    """The result of a call without gradients."""
    with torch.no_grad():
        return {"result": call(x)}


class Peers:
    """Eager PyTorch and float64 on the processor, which go through the steps that a compiled module does."""

    def __init__(self, network: Network, module: nn.Module) -> None:
        self.network = network
        self.eager, self.exact = copy.deepcopy(module), copy.deepcopy(module).double()

    @property
    def all(self) -> Sequence[nn.Module]:
        """Both modules, for changes of weights."""
        return self.eager, self.exact

    def check(self, found: Values, x: torch.Tensor, cotangent: torch.Tensor | None) -> float:
        """The largest error of a step over its limit.

        Raises:
            AssertionError: a value is outside the limit of the parity benchmark.
        """
        if cotangent is None:
            eager, exact = forward(self.eager, x), forward(self.exact, x.double())
        else:
            eager = step(self.eager, self.eager, x, cotangent)
            exact = step(self.exact, self.exact, x.double(), cotangent.double())
        seen = compare(
            {name: value.cpu() for name, value in found.items()},
            eager,
            exact,
            precision=PRECISIONS["fp32"],
            depth=2 * self.network.depth,
        )
        assert not seen.failures, [(one.name, one.error, one.limit, one.reason) for one in seen.failures]
        return max((one.error / one.limit for one in seen.tensors if one.limit > 0), default=0.0)
