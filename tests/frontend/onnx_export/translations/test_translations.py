"""Each translation gives the numbers, shape and type of eager PyTorch, in the nodes that are named."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from daceml.frontend.capture.gradients.custom_gradients import cotangent_of, with_gradient
from daceml.frontend.capture.gradients.gradient_stops import stop_gradient
from daceml.frontend.onnx_export.translations import table
from tests.support.exported_models import Lambda, agrees, onnx_of, operators, tensor, whole

OPERATORS: dict[str, tuple[Any, ...]] = {
    # name: (function, arguments, expected operators)
    "spelled-out mish": (
        lambda x: x * torch.tanh(functional.softplus(x)),
        [tensor(3, 4)],
        "Softplus Tanh Mul",
    ),
    "mish": (functional.mish, [tensor(3, 4)], "Mish"),
    "softplus with a bend": (
        lambda x: functional.softplus(x, 2.0, 3.0),
        [tensor(3, 4)],
        "Mul Softplus Div Greater Where",
    ),
    "relu6": (functional.relu6, [3 * tensor(3, 4)], "HardTanh"),
    "linear of a vector": (functional.linear, [tensor(4), tensor(5, 4)], "Reshape Gemm Reshape"),
    "linear of rank 4": (
        functional.linear,
        [tensor(2, 3, 2, 4), tensor(5, 4), tensor(5)],
        "Reshape Gemm Reshape",
    ),
    "even kernel, same padding": (
        lambda x, w: functional.conv1d(x, w, padding=[1], stride=2),
        [tensor(1, 2, 6), tensor(3, 2, 2)],
        "Conv",
    ),
    "transposed convolution": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        [tensor(1, 2, 4, 4), tensor(2, 3, 3, 3)],
        "ConvTranspose",
    ),
    "causal attention": (
        lambda q, k: functional.scaled_dot_product_attention(q, k, k, is_causal=True, scale=0.3),
        [tensor(1, 2, 3, 4), tensor(1, 2, 5, 4)],
        "Attention",
    ),
    "attention without heads": (
        lambda q, k, m: functional.scaled_dot_product_attention(q, k, k, m > 0),
        [tensor(2, 3, 4), tensor(2, 5, 4), 1 + tensor(2, 3, 5).abs()],
        "Greater Unsqueeze Unsqueeze Unsqueeze Unsqueeze Where Attention Squeeze",
    ),
    "grouped heads": (
        lambda q, k: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        [tensor(1, 4, 3, 4), tensor(1, 2, 3, 4)],
        "Attention",
    ),
    "layer norm without weights": (
        lambda x: functional.layer_norm(x, (4,)),
        [tensor(2, 4)],
        "LayerNormalization",
    ),
    "group norm": (lambda x: functional.group_norm(x, 2), [tensor(2, 4, 3)], "GroupNormalization"),
    "views": (
        lambda x: torch.cat([x.transpose(1, 2).reshape(2, -1)[:, 1:7:2], x.view(2, 12)[:, -3:]], 1).t(),
        [tensor(2, 3, 4)],
        "Transpose Reshape Slice Reshape Slice Concat Transpose",
    ),
    "parts": (lambda x: [*x.split([1, 4], 1), *x.chunk(3, 1)], [tensor(2, 5)], "Split Split"),
    "stack and expand": (
        lambda x: torch.stack([x, x[:, :1].expand(-1, 5)], -1),
        [tensor(2, 5)],
        "Slice Expand Unsqueeze Unsqueeze Concat",
    ),
    "ceiling pool": (
        lambda x: functional.max_pool2d(functional.avg_pool2d(x, 3, 2, 1), 2, ceil_mode=True),
        [tensor(1, 2, 11, 11)],
        "AveragePool MaxPool",
    ),
    "windows of several sizes": (
        lambda x: functional.adaptive_avg_pool2d(x, (3, 2)),
        [tensor(1, 2, 7, 5)],
        "MatMul MatMul",
    ),
    "whole numbers and fractions": (lambda a: a * 0.5 + 1, [whole(3, 4)], "Cast Mul Add"),
    "comparison with a fraction": (
        lambda a: (a > 1.5) & (a <= 3),
        [whole(3, 4)],
        "Cast Greater LessOrEqual And",
    ),
    "true division": (lambda a, b: a / (b + 1), [whole(3), whole(3)], "Add Cast Cast Div"),
    "mixed widths": (operator.mul, [tensor(3).half(), tensor(3)], "Cast Mul"),
    "mixed parts": (lambda a, b: torch.cat([a, b]), [tensor(3), whole(3)], "Cast Concat"),
    "chosen parts": (lambda a, b: torch.where(a > 0, b, a), [tensor(3), whole(3)], "Greater Cast Where"),
    "sum of a mask": (lambda a: (a > 1).sum(), [whole(5)], "Greater Cast ReduceSum"),
    "powers": (lambda a: a**2 + a.abs() ** 0.5, [tensor(3)], "Mul Abs Sqrt Add"),
    "variance": (lambda x: x.var(1), [tensor(4, 5)], "ReduceMean Sub Mul ReduceMean Mul"),
    "mean squared error": (functional.mse_loss, [tensor(4, 5), tensor(4, 5) + 1], "Sub Mul ReduceMean"),
    "embedding": (lambda w, i: functional.embedding(i, w), [tensor(6, 5), whole(2, 3)], "Gather"),
    "bags of embeddings": (
        lambda w, i: functional.embedding_bag(i, w, torch.tensor([0, 2, 2]), mode="mean"),
        [tensor(6, 5), whole(6)],
        "EmbeddingBagSum Shape Slice Concat Sub Max Unsqueeze Cast Div",
    ),
    "an average with a divisor of its own": (
        lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
        [tensor(1, 1, 4, 4)],
        "AveragePool Mul",
    ),
    "in place, with the old value read before": (
        lambda x: (y := x * 2) is not None and (torch.sigmoid(y), y.relu_())[0] + y,
        [tensor(3)],
        "Mul Sigmoid Relu Add",
    ),
    "in place through a view": (
        lambda x: (y := x * 2) is not None and (y.view(-1).add_(1), y)[1],
        [tensor(2, 3)],
        "Mul Reshape Add Reshape",
    ),
    "windows as columns": (
        lambda x: functional.unfold(x, (2, 1), dilation=(2, 1), padding=(1, 0), stride=(1, 2)),
        [tensor(2, 3, 6, 5)],
        "Pad Slice Unsqueeze Slice Unsqueeze Concat Reshape",
    ),
    "scattered means": (
        lambda x, s: torch.scatter_reduce(x, 0, torch.tensor([0, 2, 0, 0]), s, "mean"),
        [tensor(3), tensor(4)],
        "ScatterElements ScatterElements Div",
    ),
    "scattered means of what is scattered": (
        lambda x, s: torch.scatter_reduce(x, 0, torch.tensor([2, 2]), s, "mean", include_self=False),
        [tensor(3), tensor(4)],
        "Slice ScatterElements ScatterElements Equal Max Div Where",
    ),
    "degrees": (lambda x: torch.deg2rad(x) + torch.rad2deg(x), [tensor(3)], "Mul Mul Add"),
    "interpolation": (
        lambda x: functional.interpolate(x, size=(8, 6), mode="bilinear"),
        [tensor(1, 2, 4, 4)],
        "Resize",
    ),
    "left to torch's own table": (lambda x: x.tril(1), [tensor(3, 5)], "Trilu"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str):
    function, args, expected = OPERATORS[name]
    assert operators(agrees(Lambda(function).eval(), *args)) == Counter(expected.split())


def test_convolution_with_same_padding_puts_the_odd_element_last():
    model = onnx_of(nn.Conv2d(2, 3, (2, 3), padding="same"), tensor(1, 2, 5, 5))
    (conv,) = model.graph
    assert list(conv.attributes["pads"].as_ints()) == [0, 1, 1, 1]


def test_every_row_of_the_table_names_an_operator_of_this_torch():
    # these are registered where they are first used
    unknown, _ours = [], (stop_gradient(), cotangent_of(), with_gradient())
    for overload in table():
        if overload.startswith("_operator::"):
            if not hasattr(operator, overload.removeprefix("_operator::")):
                unknown.append(overload)
            continue
        namespace, packet, name = overload.split(".")
        if not hasattr(getattr(getattr(torch.ops, namespace), packet, None), name):
            unknown.append(overload)
    assert unknown == []
