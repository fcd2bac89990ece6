"""`prefer_native=True`: gradients of the networks' blocks come from the lowered form, and are eager's."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from benchmarks.models import dlrm, shapes, wavenet, yolov4
from benchmarks.models.bert import bert_layer
from benchmarks.models.fcn8s import crop
from benchmarks.models.mbconv import MBConv1
from benchmarks.models.mlp_mixer import mlp_mixer
from daceml.errors import ConfigurationError
from daceml.report.explanation.gradients_text import gradients_text
from tests.support.golden import golden, raises
from tests.support.sampling import sampled

TOLERANCE = 1e-10
"""Relative to the largest element: some thousand roundings of float64."""


def bottleneck() -> nn.Module:
    """ResNet's first pooling, and a unit that halves the image."""
    from pytorchcv.models.resnet import ResUnit

    return nn.Sequential(nn.MaxPool2d(3, 2, 1), ResUnit(2, 4, stride=2, bottleneck=True))


def inverted_residual() -> nn.Module:
    """MobileNetV2's unit with a skip."""
    from pytorchcv.models.mobilenetv2 import LinearBottleneck

    return LinearBottleneck(
        3, 3, stride=1, expansion=True, remove_exp_conv=False, activation=lambda: nn.ReLU6(inplace=True)
    )


def mbconv_with_expansion() -> nn.Module:
    """EfficientNet's block with its own Swish, squeeze and excite, and a skip."""
    from efficientnet_pytorch.model import MBConvBlock
    from efficientnet_pytorch.utils import BlockArgs, GlobalParams

    block = BlockArgs(
        num_repeat=1, kernel_size=3, stride=1, expand_ratio=2, input_filters=4, output_filters=4,
        se_ratio=0.25, id_skip=True,
    )  # fmt: skip
    settings = GlobalParams(batch_norm_momentum=0.99, batch_norm_epsilon=1e-3, image_size=6)
    return MBConvBlock(block, settings, image_size=6)


def encoder_layer() -> nn.Module:
    """A layer of BERT, without dropout; the scale of heads of four elements is exact in float32."""
    layer = bert_layer(hidden=8, heads=2)
    for part in layer.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return layer


class WaveNetLayer(nn.Module):
    """An embedding, one gated layer, and what both of its results come to."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.layer = wavenet.Layer(residual=3, dilated=2, skip=4, dilation=2)

    def forward(self, levels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, skip = self.layer(self.embedding(levels).transpose(1, 2))
        return hidden, torch.relu(skip)


class ScoreHead(nn.Module):
    """FCN8s: scores of two depths, brought over one another by a transposed convolution and a crop."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.Dropout(), nn.Conv2d(3, 2, 1))
        self.pool = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.score = nn.Conv2d(2, 2, 1)
        self.up = nn.ConvTranspose2d(2, 2, 4, stride=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up(self.deep(self.pool(x)))
        return up + crop(self.score(x), 1, up)


class CrossStage(nn.Module):
    """YOLOv4: a cross-stage block with Mish, and the pyramid of poolings behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = yolov4.CrossStage(2, 1, first=True)
        self.pyramid = yolov4.PyramidPooling()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pyramid(self.stage(x))


BLOCKS: dict[str, tuple[Callable[[], nn.Module], Callable[..., tuple[Any, ...]]]] = {
    "mish": (nn.Mish, shapes.normal(3, 5)),
    "resnet50, wide_resnet50": (bottleneck, shapes.normal(2, 2, 7, 9)),
    "mobilenetv2": (inverted_residual, shapes.normal(2, 3, 4, 5)),
    "mbconv": (lambda: MBConv1(4, 3), shapes.normal(2, 4, 5, 4)),
    "efficientnet_b0": (mbconv_with_expansion, shapes.normal(2, 4, 6, 6)),
    "mlp_mixer": (
        lambda: mlp_mixer(image=4, patch=2, width=3, depth=1, classes=2), shapes.normal(2, 3, 4, 4),
    ),
    "wavenet": (WaveNetLayer, shapes.classes(7, 2, 6)),
    "bert": (encoder_layer, shapes.normal(2, 3, 8)),
    "dlrm": (
        lambda: dlrm.DLRM(tables=2, rows=6, bottom=(3, 4), top=(1,)),
        dlrm.click_inputs(tables=2, rows=6, dense=3, batch=4),
    ),
    "fcn8s": (ScoreHead, shapes.normal(1, 2, 9, 7)),
    "yolov4": (CrossStage, shapes.normal(2, 2, 6, 8)),
}  # fmt: skip


def step(module: nn.Module, inputs: tuple[Any, ...]) -> dict[str, torch.Tensor | None]:
    """One step's results, gradients and buffers by name."""

    def leaf(x: torch.Tensor) -> torch.Tensor:
        return x.clone().requires_grad_(x.is_floating_point())

    given = pytree.tree_map_only(torch.Tensor, leaf, inputs)
    torch.manual_seed(0)
    results = pytree.tree_leaves(module(*given))
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(y.shape, generator=generator, dtype=y.dtype) for y in results]
    torch.autograd.backward(results, weights)
    return {
        **{f"result {n}": y.detach() for n, y in enumerate(results)},
        **{f"input {n}": x.grad for n, x in enumerate(pytree.tree_leaves(given)) if x.requires_grad},
        **{f"gradient of {name}": p.grad for name, p in module.named_parameters()},
        **{name: buffer.clone() for name, buffer in module.named_buffers()},
    }


def same(
    ours: dict[str, torch.Tensor | None],
    theirs: dict[str, torch.Tensor | None],
    tolerance: float = TOLERANCE,
) -> None:
    assert ours.keys() == theirs.keys()
    # a gradient that is zero but for roundings has no size of its own
    largest = max(float(x.abs().max()) for x in theirs.values() if x is not None and x.is_floating_point())
    for name, want in theirs.items():
        got = ours[name]
        if want is None or got is None:
            assert got is want, name
            continue
        scale = max(float(want.abs().max()), 1e-3 * largest)
        torch.testing.assert_close(
            got, want, rtol=0, atol=tolerance * scale, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("name", sampled(BLOCKS, "mish", "mbconv", "bert"))
def test_blocks_of_the_networks(name: str, caplog: pytest.LogCaptureFixture) -> None:
    build, make_inputs = BLOCKS[name]
    torch.manual_seed(0)
    eager = build().double().train()
    inputs = make_inputs(torch.Generator().manual_seed(0), torch.float64)
    compiled = daceml.compile(copy.deepcopy(eager), prefer_native=True)
    with caplog.at_level(logging.WARNING, logger="daceml"):
        ours = step(compiled, inputs)
    assert not caplog.records, caplog.text
    same(ours, step(eager, inputs))
    (variant,) = compiled.session.variants
    assert variant.backward is not None
    assert not variant.backward.record.by_rule
    assert variant.backward.record.lowered
    steps = {record.kind for record in variant.backward.program.manifest.steps}
    assert steps <= {"kernel", "copy", "check"}


class Kinks(nn.Module):
    """Where torch says which side counts: at 0, at bounds, and for a row of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.ReLU(), nn.LeakyReLU(0.2), nn.PReLU(), nn.ReLU6(), nn.Hardtanh(-1, 3), nn.Hardsigmoid(),
                nn.Hardswish(), nn.Softshrink(1.0), nn.Hardshrink(1.0), nn.Threshold(3.0, 1.0), nn.ELU(),
                nn.SELU(), nn.CELU(0.5),
            ]
        )  # fmt: skip
        self.embedding = nn.Embedding(4, 2, padding_idx=1)

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        clamped = (x.clamp(-1, 3), x.clamp(min=0), x.clamp(max=6), x.abs(), x.amax(0), x.amin(0))
        return (*(layer(x) for layer in self.layers), *clamped, self.embedding(rows))


def test_kinks_and_what_a_lowered_form_does_not_say() -> None:
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.4, -7.0, 8.0], dtype=torch.float64)
    eager = Kinks().double()
    compiled: Any = daceml.compile(copy.deepcopy(eager), prefer_native=True)
    inputs = (torch.stack([edges, edges]), torch.tensor([0, 1, 3, 1]))
    # ONNX's attributes are float32, such as the slope 1/6; a wrong side differs by far more
    same(step(compiled, inputs), step(eager, inputs), tolerance=1e-6)
    record = compiled.session.variants[0].backward.record
    # the gradient of the padding's row is zero because somebody said so
    assert [title.partition(",")[0] for title in record.by_rule] == ["daceml Embedding-1"]


def test_the_option_says_where_gradients_come_from() -> None:
    torch.manual_seed(0)
    layer, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double(), torch.randn(4, 3, dtype=torch.float64)
    by_rule = daceml.explain(daceml.compile(copy.deepcopy(layer)), x)
    native = daceml.explain(daceml.compile(copy.deepcopy(layer), prefer_native=True), x)
    ((rule,), (lowered,)) = by_rule.by_rule, by_rule.lowered
    assert "Gemm" in rule and "Tanh" in lowered
    assert not native.by_rule and len(native.lowered) == 2
    for said in (by_rule, native):
        section = gradients_text(said.by_rule, said.lowered)
        assert section in str(said) and section == golden()


def test_values_that_mean_nothing() -> None:
    with raises(ConfigurationError, "'prefer_native'", "dace_module", "'yes'", "prefer_native=True"):
        daceml.compile(nn.Tanh(), prefer_native="yes")
    with raises(ConfigurationError, "'prefer_natives'", "'prefer_native'"):
        daceml.dace_module(prefer_natives=True)
