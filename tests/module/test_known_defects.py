"""Forward passes that earlier compilers of this kind got wrong, silently or with a crash.

Each test compiles one module of several such computations; a failure names the computation.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

import daceml
from daceml.module.onnx_model import ONNXModel
from tests.support.computations import Several
from tests.support.exported_models import tensor

# test_known_backward_defects compares the results of the same computations, in training
repeated = pytest.mark.slow


def compiles(module: nn.Module, *inputs: tuple[torch.Tensor, ...], tolerance: float = 1e-5) -> None:
    """Call the compiled module with each of the inputs; all results are those of eager PyTorch."""
    compiled = daceml.compile(module, backward=False)
    for call in inputs:
        with torch.no_grad():
            expected = module(*call)
        actual = compiled(*call)
        assert list(actual) == list(expected)
        for name, want in expected.items():
            assert (actual[name].shape, actual[name].dtype) == (want.shape, want.dtype), name
            torch.testing.assert_close(
                actual[name],
                want,
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, name=name: f"{name}: {text}",
            )


@pytest.fixture(autouse=True)
def _compiled(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A module that would rather run eagerly shows nothing."""
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING, logger="daceml"):
        yield
    assert not [record for record in caplog.get_records("call") if record.name == "daceml.module.session"]


@repeated
def test_convolutions_of_images_that_are_not_square():
    module = Several(
        padded=nn.Conv2d(3, 4, 3, padding=1),
        dilated=nn.Conv2d(3, 4, 3, dilation=2, padding=(2, 1)),
        strided=nn.Conv2d(3, 6, (3, 2), stride=(2, 1), groups=3, bias=False),
        same=nn.Conv2d(3, 4, (5, 3), padding="same"),
    )
    compiles(module.eval(), (tensor(2, 3, 6, 10),))


@repeated
def test_convolutions_of_sequences():
    module = Several(
        plain=nn.Conv1d(3, 4, 3),
        dilated=nn.Conv1d(3, 4, 2, dilation=3, padding=2),
        transposed=nn.ConvTranspose1d(3, 2, 3, stride=2),
    )
    compiles(module.eval(), (tensor(2, 3, 9),))


def test_transposed_convolution_of_images():
    module = Several(transposed=nn.ConvTranspose2d(3, 4, (3, 2), stride=2, padding=1, output_padding=(1, 0)))
    compiles(module.eval(), (tensor(2, 3, 4, 5),))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [(nn.BatchNorm1d(3), (5, 3)), (nn.BatchNorm1d(3), (5, 3, 4)), (nn.BatchNorm2d(3), (2, 3, 4, 5))],
)
def test_batch_norm_in_training_keeps_statistics(norm: nn.Module, shape: tuple[int, ...]):
    eager = Several(norm=copy.deepcopy(norm)).train()
    compiled = daceml.compile(copy.deepcopy(eager), backward=False)
    for call in range(3):
        x = tensor(*shape) * (call + 1) + call
        with torch.no_grad():
            torch.testing.assert_close(compiled(x)["norm"], eager(x)["norm"], rtol=1e-5, atol=1e-5)
        for name, want in eager.state_dict().items():
            torch.testing.assert_close(compiled.state_dict()[name], want, rtol=1e-5, atol=1e-6, msg=name)


def test_powers_that_are_not_whole():
    module = Several(
        root=lambda x: x.abs() ** 0.5,
        three_halves=lambda x: x.abs() ** 1.5,
        square=lambda x: x**2,
        cube=lambda x: x**3,
        inverse=lambda x: (x.abs() + 1) ** -1,
        of_a_number=lambda x: 2.5**x,
    )
    compiles(module, (tensor(3, 5),))


@repeated
def test_softmax_over_inner_dimensions():
    module = Several(
        channels=lambda x: x.softmax(1),
        rows=lambda x: x.softmax(2),
        logarithm=lambda x: functional.log_softmax(x, 1),
    )
    compiles(module, (tensor(2, 3, 4, 5) * 5,))


def test_activations_of_large_numbers():
    module = Several(
        softplus=functional.softplus,
        mish=functional.mish,
        spelled_out=lambda x: x * torch.tanh(functional.softplus(x)),
        log_sigmoid=functional.logsigmoid,
        sigmoid=torch.sigmoid,
        tanh=torch.tanh,
        silu=functional.silu,
        logsumexp=lambda x: x.logsumexp(0),
    )
    compiles(module, (torch.tensor([-1e4, -100.0, -1.0, 0.0, 1.0, 30.0, 100.0, 1e4]),))


def test_activations_with_parameters():
    module = Several(
        gelu=functional.gelu,
        gelu_of_tanh=lambda x: functional.gelu(x, approximate="tanh"),
        elu=lambda x: functional.elu(x, 0.7),
        at_least=lambda x: x.clamp(min=-0.3),
        at_most=lambda x: x.clamp(max=0.3),
        between=lambda x: x.clamp(-0.3, 0.3),
        chosen=lambda x: torch.where(x > 0, x, x * 0.1),
    )
    compiles(module, (tensor(3, 7) * 3,))


def test_positions_from_the_end():
    module = Several(
        last=lambda x, i: x[:, -1],
        chosen=lambda x, i: x[i],
        constant=lambda x, i: x[:, torch.tensor([-1, 0, -2])],
        strided=lambda x, i: x[:, 1:-1, ::2],
        cut=lambda x, i: x[..., -3:],
        beyond=lambda x, i: x[:, -100:100],
    )
    compiles(module, (tensor(4, 5, 7), torch.tensor([-1, 0, -4, 3])))


@repeated
def test_joined_and_spread_shapes():
    module = Several(
        expanded=lambda x, y: x.expand(2, 3, 4, 5),
        outer=lambda x, y: x + y,
        rows=lambda x, y: y.expand(-1, -1, 4, -1) * x,
        padded=lambda x, y: functional.pad(x, (1, 2, 0, 1), value=0.5),
        cut_off=lambda x, y: functional.pad(x, (0, 0, -1, 0)),
        reflected=lambda x, y: functional.pad(x, (0, 0, 1, 2), mode="reflect"),
    )
    compiles(module, (tensor(3, 4, 1), tensor(2, 1, 1, 5)))


def test_extremes():
    module = Several(
        amax=lambda x: x.amax((0, 2)),
        amin=lambda x: x.amin(1, keepdim=True),
        argmax=lambda x: x.argmax(1),
        argmax_of_equals=lambda x: (x * 0).argmax(2),
        maximum=lambda x: x.max(),
    )
    compiles(module, (tensor(3, 4, 5),))


@repeated
def test_group_norm():
    compiles(
        Several(groups=nn.GroupNorm(2, 4), one=nn.GroupNorm(1, 4, affine=False)).eval(), (tensor(2, 4, 3, 5),)
    )


@repeated
def test_pools_with_padding():
    module = Several(
        most=lambda x: functional.max_pool2d(x, 3, 2, padding=1),
        of_negative_numbers=lambda x: functional.max_pool2d(-x.abs() - 1, 3, 2, padding=1),
        mean=lambda x: functional.avg_pool2d(x, 3, 2, padding=1),
        mean_of_what_is_there=lambda x: functional.avg_pool2d(
            x, (3, 2), 2, padding=1, count_include_pad=False
        ),
        ceiling=lambda x: functional.max_pool2d(x, 2, 2, ceil_mode=True),
        whole=lambda x: functional.adaptive_avg_pool2d(x, 1),
    )
    compiles(module, (tensor(2, 3, 7, 9),))


@repeated
def test_interpolation():
    module = Several(
        bilinear=lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        of_corners=lambda x: functional.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True),
        nearest=lambda x: functional.interpolate(x, scale_factor=2),
    )
    compiles(module, (tensor(2, 3, 4, 5),))


def test_other_batches_than_that_of_the_first_call():
    module = Several(
        perceptron=nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), flat=lambda x: x.sum(1)
    )
    compiles(module.eval(), (tensor(3, 4),), (tensor(1, 4),), (tensor(0, 4),))


def test_products_and_activations_in_bfloat16():
    """Eager rounds after each operator, to 2^-9; so many roundings lie between its results and exact ones."""
    module = Several(
        perceptron=nn.Sequential(nn.Linear(8, 8), nn.GELU()),
        product=lambda x: torch.relu(x @ x.t()),
        scaled=lambda x: x * 0.3 + 1,
    ).bfloat16()
    compiles(module.eval(), (tensor(4, 8).bfloat16(),), tolerance=3 * 2**-8)


def test_constants_are_computed_not_lost():
    module = Several(
        sum=lambda x: x + (torch.arange(5.0) * 2 + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).exp().log(),
        matrix=lambda x: x @ (torch.eye(5) + torch.ones(5, 5)),
        shape=lambda x: x * (x.shape[0] + 1) / x.numel(),
    )
    compiles(module, (tensor(3, 5),))


# --- what only ONNX can say ---


def network(
    nodes: list[onnx.NodeProto], outputs: dict[str, tuple[int, Any]], **constants: np.ndarray
) -> ONNXModel:
    """A model of x: [2, 3, 4] and labels: [2, 4], both as named."""
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4]),
            helper.make_tensor_value_info("labels", TensorProto.INT64, [2, 4]),
        ],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return ONNXModel(model)


def test_parts_of_shapes_and_negative_indices():
    model = network(
        [
            helper.make_node("Shape", ["x"], ["inner"], start=1, end=-1),
            helper.make_node("Shape", ["x"], ["last"], start=-1),
            helper.make_node("Gather", ["x", "places"], ["gathered"], axis=1),
            helper.make_node("GatherElements", ["x", "elements"], ["chosen"], axis=2),
            # a node of constants that is no Shape
            helper.make_node("Add", ["places", "places"], ["folded"]),
            helper.make_node("Cast", ["labels"], ["used"], to=TensorProto.FLOAT),
        ],
        {
            "inner": (TensorProto.INT64, [1]),
            "last": (TensorProto.INT64, [1]),
            "gathered": (TensorProto.FLOAT, [2, 2, 4]),
            "chosen": (TensorProto.FLOAT, [2, 3, 1]),
            "folded": (TensorProto.INT64, [2]),
            "used": (TensorProto.FLOAT, [2, 4]),
        },
        places=np.array([-1, 0]),
        elements=np.full((2, 3, 1), -2),
    )
    x = tensor(2, 3, 4).numpy()
    inner, last, gathered, chosen, folded, _ = model(x, np.zeros((2, 4), np.int64))
    assert (inner.tolist(), last.tolist(), folded.tolist()) == ([3], [4], [-2, 0])
    np.testing.assert_array_equal(gathered, x[:, [-1, 0]])
    np.testing.assert_array_equal(chosen, x[:, :, -2:-1])


def test_cross_entropy_reduces_as_it_says():
    nodes: list[onnx.NodeProto] = []
    outputs: dict[str, tuple[int, Any]] = {}
    for r in ("none", "mean", "sum"):
        nodes += [
            helper.make_node(
                "SoftmaxCrossEntropyLoss", ["x", "labels"], [f"plain_{r}", f"logarithms_{r}"], reduction=r
            ),
            helper.make_node(
                "SoftmaxCrossEntropyLoss",
                ["x", "labels", "weights"],
                [f"weighted_{r}"],
                reduction=r,
                ignore_index=2,
            ),
        ]
        shape = [2, 4] if r == "none" else []
        outputs |= {
            f"plain_{r}": (TensorProto.FLOAT, shape),
            f"logarithms_{r}": (TensorProto.FLOAT, [2, 3, 4]),
            f"weighted_{r}": (TensorProto.FLOAT, shape),
        }
    model = network(nodes, outputs, weights=np.array([0.5, 2.0, 7.0], np.float32))
    x, labels = tensor(2, 3, 4), torch.tensor([[0, 1, 2, 1], [2, 0, 0, 1]])
    found = dict(zip(outputs, model(x.numpy(), labels.numpy()), strict=True))
    weights = torch.tensor([0.5, 2.0, 7.0])
    for r in ("none", "mean", "sum"):
        expected = functional.cross_entropy(x, labels, reduction=r)
        np.testing.assert_allclose(found[f"plain_{r}"], expected, rtol=1e-5, err_msg=r)
        np.testing.assert_allclose(
            found[f"logarithms_{r}"], x.log_softmax(1), rtol=1e-5, atol=1e-6, err_msg=r
        )
        kept = functional.cross_entropy(x, labels, weights, ignore_index=2, reduction=r)
        np.testing.assert_allclose(found[f"weighted_{r}"], kept, rtol=1e-5, err_msg=r)
