"""Dropout, attention with dropout, and random tensors: the same distributions, in few nodes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from tests.support.eager_twin import unlike_eager
from tests.support.exported_models import (
    Lambda,
    agrees,
    follows,
    onnx_of,
    operators,
    run,
    seeded,
    tensor,
)
from tests.support.sampling import sampled

N = torch.export.Dim("N", min=2)

# --- dropout ---

TOLERANCE_OF_RATES = 0.02
"""Four standard deviations of a rate among 10,000 draws: sqrt(0.25 / 10000) = 0.005."""


def drawn(module: nn.Module, *args: torch.Tensor, seed: int = 1, **options: Any) -> list[np.ndarray]:
    """Outputs of the model with fixed seeds."""
    return run(seeded(onnx_of(module.train(), *args, **options), seed), *args)


def test_dropout_drops_at_its_rate_scales_the_rest_and_draws_anew():
    x = torch.ones(100, 100)
    (y,) = drawn(nn.Dropout(0.3), x)
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((y == 0).mean() - 0.3) < TOLERANCE_OF_RATES
    model = onnx_of(nn.Dropout(0.3).train(), x)
    assert (run(seeded(model, 1), x)[0] != run(seeded(model, 2), x)[0]).any()


def test_two_dropouts_are_independent():
    first, second = drawn(
        Lambda(lambda x: (functional.dropout(x, 0.5), functional.dropout(x, 0.5))), torch.ones(100, 100)
    )
    assert abs(((first == 0) & (second == 0)).mean() - 0.25) < TOLERANCE_OF_RATES


def test_the_mask_of_a_dropout_is_an_output_of_its_node():
    y, mask = drawn(Lambda(lambda x: torch.native_dropout(x, 0.3, True)), torch.ones(10, 10))
    assert mask.dtype == np.bool_ and ((y != 0) == mask).all()


@pytest.mark.parametrize("layer", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout])
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_nothing_and_of_everything(layer: type[nn.Module], p: float):
    model = agrees(layer(p).train(), tensor(3, 4, 5, 5))
    assert operators(model) == ({"Identity": 1} if p == 0 else {"Mul": 1})


def test_dropout_in_place():
    (y,) = drawn(Lambda(lambda x: functional.dropout(x * 1, 0.3, inplace=True) + 1), torch.ones(100, 100))
    assert abs((y == 1).mean() - 0.3) < TOLERANCE_OF_RATES


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Dropout1d, (50, 200, 3)), (nn.Dropout2d, (50, 200, 2, 2)), (nn.Dropout3d, (50, 200, 1, 2, 1))],
)
def test_dropout_of_channels(layer: type[nn.Module], shape: tuple[int, ...], symbolic: bool):
    (y,) = drawn(layer(0.3), torch.ones(*shape), dynamic_shapes={"input": {0: N}} if symbolic else None)
    rows = y.reshape(shape[0] * shape[1], -1)
    assert (rows == rows[:, :1]).all()
    assert abs((rows[:, 0] == 0).mean() - 0.3) < TOLERANCE_OF_RATES
    np.testing.assert_allclose(rows.max(), 1 / 0.7, rtol=1e-6)


def test_alpha_dropout_keeps_mean_and_variance():
    x = torch.randn(200, 200, generator=torch.Generator().manual_seed(0))
    (y,) = drawn(nn.AlphaDropout(0.3), x)
    values, counts = np.unique(y, return_counts=True)
    instead = values[counts.argmax()]
    dropped = y == instead
    assert abs(dropped.mean() - 0.3) < TOLERANCE_OF_RATES
    assert abs(y.mean()) < 0.03 and abs(y.std() - 1) < 0.03
    torch.manual_seed(0)
    eager = nn.AlphaDropout(0.3).train()(x).numpy()
    both = ~dropped & ~np.isclose(eager, instead, rtol=1e-5)
    assert abs(both.mean() - 0.7 * 0.7) < TOLERANCE_OF_RATES
    np.testing.assert_allclose(y[both], eager[both], rtol=1e-5, atol=1e-6)


def test_alpha_dropout_of_channels():
    (y,) = drawn(nn.FeatureAlphaDropout(0.3), torch.ones(50, 200, 3), dynamic_shapes={"input": {0: N}})
    rows = y.reshape(-1, 3)
    assert (rows == rows[:, :1]).all() and abs((rows[:, 0] == rows.min()).mean() - 0.3) < TOLERANCE_OF_RATES


def test_nodes_of_dropout():
    assert operators(onnx_of(nn.AlphaDropout(0.3).train(), tensor(3, 4))) == {
        "Dropout": 1,
        "Mul": 1,
        "Add": 1,
        "Where": 1,
    }
    assert operators(onnx_of(nn.Dropout2d(0.3).train(), tensor(3, 4, 2, 2))) == {
        "Expand": 1,
        "Dropout": 1,
        "Mul": 1,
    }


# --- attention ---


def attention(**options: Any) -> nn.Module:
    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *mask: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, *mask, **options)

    return Lambda(forward)


QKV = (tensor(2, 4, 3, 6), tensor(2, 4, 5, 6), tensor(2, 4, 5, 7))
GROUPED = (tensor(2, 4, 3, 6), tensor(2, 2, 5, 6), tensor(2, 2, 5, 7))
NOTHING_LEFT = torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
ATTENTIONS: dict[str, tuple[tuple[torch.Tensor, ...], dict[str, Any]]] = {
    "plain": (QKV, {}),
    "of one's own scale": (QKV, {"scale": 0.3}),
    "causal": (QKV, {"is_causal": True}),
    "grouped heads": (GROUPED, {"enable_gqa": True}),
    "a mask that leaves nothing of a row": ((*QKV, NOTHING_LEFT), {}),
    "a bias that leaves nothing of a row": ((*QKV, tensor(3, 5).masked_fill(~NOTHING_LEFT, -torch.inf)), {}),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_with_dropout(name: str):
    args, options = ATTENTIONS[name]
    model = onnx_of(attention(dropout_p=0.2, **options), *args)
    found = operators(model)
    assert (found["MatMul"], found["Softmax"], found["Dropout"]) == (2, 1, 1)
    follows(model, attention(**options), [args], 1e-5)


def test_causal_attention_with_dropout_over_symbolic_lengths():
    lengths = [
        {2: torch.export.Dim("L", min=2)},
        {2: torch.export.Dim("S", min=2)},
        {2: torch.export.Dim("S", min=2)},
    ]
    model = onnx_of(attention(dropout_p=0.2, is_causal=True), *QKV, dynamic_shapes=lengths)
    longer = (tensor(2, 4, 6, 6), tensor(2, 4, 4, 6), tensor(2, 4, 4, 7))
    follows(model, attention(is_causal=True), [QKV, longer], 1e-5)


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of one tensor."""

    def __init__(self, dropout: float, weights: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True)
        self.weights = weights

    def forward(self, x: torch.Tensor) -> Any:
        y, weights = self.attention(x, x, x, need_weights=self.weights)
        return (y, weights) if self.weights else y


def encoder(dropout: float, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True, **options)


# name: (build, how many dropouts)
TRANSFORMERS: dict[str, tuple[Callable[[float], nn.Module], int]] = {
    "attention": (lambda p: SelfAttention(p, False), 1),
    "attention with weights": (lambda p: SelfAttention(p, True), 1),
    "encoder layer": (encoder, 4),
    "encoder layer, norm first": (lambda p: encoder(p, norm_first=True, activation="gelu"), 4),
}


@pytest.mark.parametrize(
    ("name", "symbolic"),
    sampled(
        product(TRANSFORMERS, [False, True]),
        *product(TRANSFORMERS, [False]),
        ("encoder layer, norm first", True),
    ),
)
def test_transformer_layers_with_dropout(name: str, symbolic: bool):
    build, dropouts = TRANSFORMERS[name]
    x = tensor(3, 4, 8)
    model = onnx_of(build(0.2).train(), x, dynamic_shapes=[{0: N}] if symbolic else None)
    assert operators(model)["Dropout"] == dropouts
    assert not operators(model).keys() & {"Shape", "Concat", "Cast", "Expand", "Identity"}
    # with p = 0 every kept value is scaled by 1, as in a Dropout that is off
    calls = [(x,), (tensor(5, 4, 8),)] if symbolic else [(x,)]
    follows(model, build(0.0).train(), calls, 1e-5)


# --- random tensors ---


def drop_connect(x: torch.Tensor, p: float = 0.3) -> torch.Tensor:
    """As in efficientnet_pytorch."""
    keep = 1 - p
    kept = torch.floor(keep + torch.rand([x.shape[0], 1, 1, 1], dtype=x.dtype, device=x.device))
    return x / keep * kept


def stochastic_depth(x: torch.Tensor, p: float = 0.3) -> torch.Tensor:
    """As in torchvision and timm."""
    noise = x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(1 - p)
    return x * noise.div_(1 - p)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("drop", "operator"), [(drop_connect, "Floor"), (stochastic_depth, "BernoulliLike")])
def test_dropped_samples(drop: Any, operator: str, symbolic: bool):
    (y,) = drawn(Lambda(drop), torch.ones(10000, 2, 1, 1), dynamic_shapes=[{0: N}] if symbolic else None)
    rows = y.reshape(-1, 2)
    assert (rows == rows[:, :1]).all() and abs((rows[:, 0] == 0).mean() - 0.3) < TOLERANCE_OF_RATES
    model = onnx_of(Lambda(drop), tensor(4, 2, 3, 3))
    assert operators(model)[operator] == 1 and not operators(model).keys() & {
        "Shape",
        "Cast",
        "CastLike",
        "Concat",
    }


LARGE = torch.zeros(100, 100)
RANDOM: dict[str, tuple[Any, float, float, float, float]] = {
    # name: (function of a large tensor of zeros, mean, standard deviation, least, greatest)
    "rand_like": (torch.rand_like, 0.5, 12**-0.5, 0, 1),
    "randn_like": (torch.randn_like, 0, 1, -9, 9),
    "rand": (lambda x: x + torch.rand(100, 100), 0.5, 12**-0.5, 0, 1),
    "randn": (lambda x: x + torch.randn(x.shape), 0, 1, -9, 9),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(1, 3), 2, 3**-0.5, 1, 3),
    "normal_": (lambda x: x.new_empty((100, 100)).normal_(1, 2), 1, 2, -17, 19),
    "normal around means": (lambda x: torch.normal(x + 3, 2.0), 3, 2, -15, 21),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5, 0, 9),
    "randint": (lambda x: torch.randint(-2, 4, (100, 100)), 0.5, (35 / 12) ** 0.5, -2, 3),
    "randint_like": (lambda x: torch.randint_like(x, 5), 2, 2**0.5, 0, 4),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.2), 0.2, 0.4, 0, 1),
    "bernoulli with one probability": (lambda x: torch.bernoulli(x, 0.2), 0.2, 0.4, 0, 1),
    "bernoulli_ of booleans": (
        lambda x: torch.empty(100, 100, dtype=torch.bool).bernoulli_(0.2),
        0.2,
        0.4,
        0,
        1,
    ),
    "rrelu": (lambda x: functional.rrelu(x - 1, 0.1, 0.3, training=True), -0.2, 0.2 / 12**0.5, -0.3, -0.1),
    "gumbel": (lambda x: -torch.empty_like(x).exponential_().log(), 0.5772, np.pi / 6**0.5, -4, 18),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_tensors(name: str):
    function, mean, deviation, least, greatest = RANDOM[name]
    module = Lambda(function)
    (y,) = drawn(module, LARGE)
    eager = module(LARGE)
    assert (y.shape, str(y.dtype)) == (tuple(eager.shape), str(eager.dtype).removeprefix("torch."))
    numbers = y.astype(np.float64)
    # four standard errors of a mean over 10,000
    assert abs(numbers.mean() - mean) < 4 * deviation / 100
    assert abs(numbers.std() / deviation - 1) < 0.08
    assert least <= numbers.min() and numbers.max() <= greatest


def test_gumbel_softmax_chooses_by_probability():
    logits = torch.tensor([0.0, 0.0, np.log(2.0)]).expand(3000, 3)
    y, hard = drawn(
        Lambda(lambda x: (functional.gumbel_softmax(x), functional.gumbel_softmax(x, hard=True))), logits
    )
    np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(hard.mean(0), [0.25, 0.25, 0.5], atol=0.04)


def test_rrelu_outside_of_training_is_a_leaky_relu():
    assert operators(agrees(nn.RReLU().eval(), tensor(3, 4))) == {"LeakyRelu": 1}


def test_rrelu_outside_of_training_has_a_slope_of_its_type():
    x = torch.tensor([-3.0, 2.0], dtype=torch.float64)  # the slope of ONNX's operator is float32
    assert unlike_eager(nn.RReLU().eval(), x, gradients=True) == []


def test_random_numbers_in_bfloat16():
    x = tensor(4, 3).bfloat16()
    for function in (
        torch.rand_like,
        torch.randn_like,
        lambda x: torch.bernoulli(x, 0.3),
        lambda x: x.exponential_(),
    ):
        model = onnx_of(Lambda(lambda x, f=function: f(x * 1)), x)
        assert model.graph.outputs[0].dtype == ir.DataType.BFLOAT16
    assert ml_dtypes.bfloat16(1 - 2**-24) == 1  # why the exponential is drawn in float32


class DrawsForLayouts(nn.Module):
    """Draws for tensors that do not lie in memory in the order of their indices."""

    def forward(self, x):
        drop = torch.nn.functional.dropout
        y = (x * 2).transpose(0, 2) + 1
        return (
            drop(x.t() if x.dim() == 2 else y, 0.5),
            torch.rand_like(y),
            drop(y.contiguous(), 0.5),
            drop(x, 0.5),
        )


@torch.no_grad()
def test_draws_are_in_the_order_of_memory():
    eager = DrawsForLayouts()
    compiled = daceml.compile(eager, backward=False)
    image = torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for x in (torch.ones(3, 4, 5), image, torch.ones(7, 3, 6).permute(2, 0, 1)):
        torch.manual_seed(3)
        theirs = eager(x)
        torch.manual_seed(3)
        for a, b in zip(compiled(x), theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


class DrawsDoubles(nn.Module):
    """Bounds, means and rates that float32 does not hold."""

    def forward(self, x):
        like = torch.empty_like(x)
        return (
            torch.normal(0.0, 1.0, (x.shape[0],), dtype=x.dtype),
            torch.normal(0.1, 0.3, (40,), dtype=x.dtype),
            like.uniform_(0.1, 0.7),
            like.clone().normal_(0.1, 0.3),
            like.clone().exponential_(0.3),
            torch.normal(0.1, 0.3, (5,)),
        )


@torch.no_grad()
@pytest.mark.parametrize("size", [6, 32])
def test_doubles_are_drawn_as_doubles(size: int):
    x = torch.linspace(-1, 1, size, dtype=torch.float64)
    compiled = daceml.compile(DrawsDoubles(), backward=False)
    torch.manual_seed(3)
    theirs = DrawsDoubles()(x)
    torch.manual_seed(3)
    for a, b in zip(compiled(x), theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-15 if b.dtype == torch.float64 else 1e-7)
