"""Random networks over images: convolutions of every kind with what stands around them.

They are what layouts, packed and folded weights, and vendor kernels are chosen for, and most of that is for
inference: so a network is run for its values alone, with weights that may change or may not, or for its
gradients, too. What is wrong there is wrong by much: an array that is read in another order than it was
written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from benchmarks.operators.draws import Chance

MODES = ("inference", "frozen", "training")
CHANNELS = (3, 8, 12, 16, 24, 33)
SIZES = (1, 5, 7, 8, 17, 28, 32)
LARGE_SIZES = (28, 32, 35, 40)
_MOST_ELEMENTS = 150_000
_LEAST_LAYERS, _MOST_LAYERS = 3, 9

Shape = tuple[int, int, int]  # channels, rows, columns

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "relu6": functional.relu6,
    "silu": functional.silu,
    "hardswish": functional.hardswish,
    "leaky": lambda x: functional.leaky_relu(x, 0.1),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "mish": functional.mish,
}
MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "first channels": lambda x: x[:, : (x.shape[1] + 1) // 2],
    "last channels": lambda x: x[:, x.shape[1] // 2 :],
    "inner image": lambda x: x[:, :, x.shape[2] // 4 :, : x.shape[3] - x.shape[3] // 4],
    "max pool": lambda x: functional.max_pool2d(x, 3, stride=2, padding=1),
    "average pool": lambda x: functional.avg_pool2d(x, 3, stride=1, padding=1),
    "nearest": lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"),
    "nearest exact": lambda x: functional.interpolate(x, size=(x.shape[2] + 2, 5), mode="nearest-exact"),
    "bilinear": lambda x: functional.interpolate(x, size=(9, x.shape[3] + 1), mode="bilinear"),
    "over channels": lambda x: functional.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2]).permute(0, 3, 1, 2),
    "other way round": lambda x: x.transpose(2, 3),
    "mean": lambda x: x - x.mean((2, 3), keepdim=True),
    "pad": lambda x: functional.pad(x, (1, 0, 0, 2)),
}
_TWO = ("add", "mul", "cat")
CONVOLUTIONS = ("convolution", "pointwise", "depthwise", "depthwise", "grouped")
_GATE = "gate"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One value: a function of earlier ones.

    Attributes:
        kind: a convolution, "gate", one of ACTIVATIONS or MOVES, or a function of two.
        operands: numbers of values; the network's input is 0.
        channels: of a convolution's result.
        window, stride, padding, dilation, groups, bias: of a convolution.
        norm, activation: whether a batch norm is behind it, and what is behind that; "" is nothing.
    """

    kind: str
    operands: tuple[int, ...]
    channels: int = 0
    window: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True
    norm: bool = False
    activation: str = ""

    def __str__(self) -> str:
        operands = ", ".join(f"v{o}" for o in self.operands)
        if not self.channels:
            return f"{self.kind}({operands})"
        numbers = (
            f"{self.window}x{self.window} /{self.stride} +{self.padding} x{self.dilation} g{self.groups}"
        )
        more = "".join(
            f" {word}" for word in (self.bias * "bias", self.norm * "norm", self.activation) if word
        )
        return f"{self.kind}({operands} -> {self.channels}: {numbers}{more})"


@dataclass(frozen=True, kw_only=True)
class ImageGraph:
    """A network of one seed.

    Attributes:
        shape: of its input, without the batch.
        results: values that are returned.
        mode: how it is run.
        channels_last: whether the input's channels are innermost in memory.
    """

    seed: int
    batch: int
    shape: Shape
    layers: tuple[Layer, ...]
    results: tuple[int, ...]
    mode: str
    channels_last: bool

    open_batch = False

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and input: gradients in float32 may jump where a relu's operand is rounded to 0."""
        return torch.float64 if self.mode == "training" else torch.float32

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """A normal tensor."""
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(self.batch, *self.shape, generator=generator)
        x = x.contiguous(memory_format=torch.channels_last) if self.channels_last else x
        return (x.to(self.dtype),)

    def module(self) -> nn.Module:
        """The network, with the weights of its seed; in eval mode but for training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return ImageModule(self).to(self.dtype).train(self.mode == "training")

    def __str__(self) -> str:
        order = ", channels last" if self.channels_last else ""
        lines = [f"v0 = input {[self.batch, *self.shape]}{order}"]
        lines += [f"v{n} = {layer}" for n, layer in enumerate(self.layers, 1)]
        return "; ".join([*lines, f"return {', '.join(f'v{r}' for r in self.results)}", self.mode])


class ImageModule(nn.Module):
    """A network that runs."""

    def __init__(self, graph: ImageGraph) -> None:
        super().__init__()
        self.graph = graph
        shapes: list[Shape] = [graph.shape]
        parts = nn.ModuleDict()
        for number, layer in enumerate(graph.layers, 1):
            first = shapes[layer.operands[0]]
            if layer.channels or layer.kind == _GATE:
                parts[str(number)] = _part(layer, first[0])
            shapes.append(shape_of(layer, [shapes[o] for o in layer.operands]))
        self.parts = parts

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x]
        for number, layer in enumerate(self.graph.layers, 1):
            first, *more = (values[o] for o in layer.operands)
            if layer.channels:
                found = self.parts[str(number)](first)
                values.append(ACTIVATIONS[layer.activation](found) if layer.activation else found)
            elif layer.kind == _GATE:
                values.append(
                    first * torch.sigmoid(self.parts[str(number)](first.mean((2, 3), keepdim=True)))
                )
            elif layer.kind == "cat":
                values.append(torch.cat([first, *more], 1))
            elif layer.kind in _TWO:
                values.append(first + more[0] if layer.kind == "add" else torch.tanh(first) * more[0])
            else:
                values.append((ACTIVATIONS | MOVES)[layer.kind](first))
        return tuple(values[r] for r in self.graph.results)


def _part(layer: Layer, channels: int) -> nn.Module:
    if layer.kind == _GATE:
        return nn.Conv2d(channels, channels, 1)
    convolution = nn.Conv2d(
        channels,
        layer.channels,
        layer.window,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=layer.bias,
    )
    if not layer.norm:
        return convolution
    norm = nn.BatchNorm2d(layer.channels)
    with torch.no_grad():
        for values in (norm.weight, norm.bias, norm.running_mean):
            assert values is not None
            values.normal_()
        assert norm.running_var is not None
        norm.running_var.uniform_(0.5, 2)
    return nn.Sequential(convolution, norm)


def shape_of(layer: Layer, operands: list[Shape]) -> Shape:
    """Of a layer's value."""
    c, h, w = operands[0]
    if layer.channels:
        reach = layer.dilation * (layer.window - 1)
        rows, columns = ((n + 2 * layer.padding - reach - 1) // layer.stride + 1 for n in (h, w))
        return layer.channels, rows, columns
    if layer.kind == "cat":
        return sum(shape[0] for shape in operands), h, w
    if layer.kind in MOVES:
        _, *found = MOVES[layer.kind](torch.empty(1, c, h, w)).shape
        return found[0], found[1], found[2]
    return operands[0]


def draw(seed: int) -> ImageGraph:
    """The network of a number."""
    chance = Chance(seed)
    mode, batch = chance.of(MODES), chance.of((1, 2, 3))
    # of some, all layers are convolutions of what libraries and loops of our own take
    sizes, plain = (LARGE_SIZES, True) if chance.one_in(2) else (SIZES, False)
    shapes: list[Shape] = [(chance.of(CHANNELS), chance.of(sizes), chance.of(sizes))]
    layers: list[Layer] = []
    wanted = chance.between(_LEAST_LAYERS, _MOST_LAYERS)
    while len(layers) < wanted:
        layer = _drawn(chance, shapes, plain=plain)
        shape = shape_of(layer, [shapes[o] for o in layer.operands])
        if min(shape) > 0 and batch * torch.Size(shape).numel() <= _MOST_ELEMENTS:
            # statistics of one element are refused by torch
            single = mode == "training" and batch * shape[1] * shape[2] == 1
            layers.append(replace(layer, norm=layer.norm and not single))
            shapes.append(shape)
    results = sorted({len(layers), *(chance.between(1, len(layers)) for _ in range(chance.between(0, 2)))})
    return ImageGraph(
        seed=seed,
        batch=batch,
        shape=shapes[0],
        layers=tuple(layers),
        results=tuple(results),
        mode=mode,
        channels_last=chance.one_in(5),
    )


def _drawn(chance: Chance, shapes: list[Shape], *, plain: bool) -> Layer:
    latest = len(shapes) - 1
    near = max(0, latest - (chance.between(1, 2) if chance.one_in(3) else 0))
    kind = 0 if plain and not chance.one_in(6) else chance.between(0, 9)
    if kind < 5:
        return _convolution(chance, near, shapes[near])
    if kind < 6:
        return Layer(kind=chance.of(list(ACTIVATIONS)), operands=(near,))
    if kind < 7:
        return Layer(kind=_GATE, operands=(near,))
    if kind < 8:
        return Layer(kind=chance.of(list(MOVES)), operands=(near,))
    function = chance.of(_TWO)
    part = slice(1 if function == "cat" else 0, None)
    others = [n for n, shape in enumerate(shapes) if shape[part] == shapes[near][part]]
    return Layer(kind=function, operands=(near, chance.of(others)))


def _convolution(chance: Chance, operand: int, shape: Shape) -> Layer:
    kind, inner = chance.of(CONVOLUTIONS), shape[0]
    window = 1 if kind == "pointwise" else chance.of((2, 3, 3, 3, 5))
    groups = {"depthwise": inner, "grouped": next(g for g in (4, 3, 2, 1) if inner % g == 0)}.get(kind, 1)
    outer = (
        inner * chance.of((1, 1, 2)) if kind == "depthwise" else groups * -(-chance.of(CHANNELS) // groups)
    )
    dilation = 1 if window == 1 or not chance.one_in(6) else 2
    return Layer(
        kind=kind,
        operands=(operand,),
        channels=outer,
        window=window,
        stride=2 if chance.one_in(4) else 1,
        padding=chance.of((0, dilation * (window // 2), dilation * (window // 2))),
        dilation=dilation,
        groups=groups,
        bias=not chance.one_in(3),
        norm=chance.one_in(2),
        activation="" if chance.one_in(2) else chance.of(list(ACTIVATIONS)),
    )
