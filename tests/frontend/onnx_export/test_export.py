"""nn.Module -> ONNX: the model says what the module does, in few nodes, in training and in evaluation."""

from __future__ import annotations

import json
import logging
import warnings

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn import functional

from daceml.errors import ExportError
from daceml.frontend.onnx_export.export import export_program, to_onnx
from daceml.frontend.onnx_export.functionalize import functionalize
from tests.support.exported_models import FLOAT32_TOLERANCE, Lambda, agrees, onnx_of, operators, run, tensor
from tests.support.golden import golden, raises

# --- networks ---


class SmallResNet(nn.Module):
    """Convolution, batch norm, in-place relu, residual, pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x) + x))
        return self.fc(x.mean((2, 3)))


def test_a_convolutional_network_keeps_one_node_for_each_layer():
    model = agrees(SmallResNet().eval(), tensor(2, 3, 8, 8))
    assert operators(model) == {
        "Conv": 2,
        "BatchNormalization": 1,
        "Relu": 2,
        "Add": 1,
        "MaxPool": 1,
        "ReduceMean": 1,
        "Gemm": 1,
    }
    conv = next(node for node in model.graph if node.op_type == "Conv")
    assert len(conv.inputs) == 2 and conv.inputs[1].name == "conv1.weight"
    assert conv.metadata_props["daceml.module"] == "conv1"
    assert conv.metadata_props["daceml.source"].startswith("test_export.py:")
    assert json.loads(model.metadata_props["daceml.buffers"])[0] == "bn.running_mean"
    assert "fc.bias" in json.loads(model.metadata_props["daceml.parameters"])
    assert model.opset_imports[""] == 23


def test_every_value_of_a_common_network_has_type_and_shape():
    model = onnx_of(SmallResNet().train(), tensor(2, 3, 8, 8))
    assert [v.name for node in model.graph for v in node.outputs if v.dtype is None or v.shape is None] == []


def test_training_returns_the_new_buffers_that_eager_writes():
    torch.manual_seed(0)
    module, x = SmallResNet().train(), tensor(4, 3, 6, 6)
    model = onnx_of(module, x)
    outputs = dict(zip([value.name for value in model.graph.outputs], run(model, x), strict=True))
    expected = module(x)
    mutations = json.loads(model.metadata_props["daceml.buffer_mutations"])
    assert mutations == {
        f"bn.{name}::next": f"bn.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    np.testing.assert_allclose(
        outputs.pop(model.graph.outputs[0].name), expected.detach(), atol=FLOAT32_TOLERANCE
    )
    for name, value in outputs.items():
        np.testing.assert_allclose(value, module.state_dict()[mutations[name]], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("batch", [None, "N"])
def test_a_batch_norm_called_twice_updates_its_statistics_twice(batch: str | None):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn = nn.BatchNorm1d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bn(self.bn(x) * 2 + 1)

    module, x = Twice(), tensor(5, 3)
    shapes = None if batch is None else {"x": {0: torch.export.Dim(batch, min=2)}}
    model = onnx_of(module, x, dynamic_shapes=shapes)
    _, mean, variance, count = run(model, x)
    module(x)
    np.testing.assert_allclose(mean, module.bn.running_mean, rtol=1e-5)
    np.testing.assert_allclose(variance, module.bn.running_var, rtol=1e-5)
    assert count == 2


def test_a_mutation_through_a_view_of_a_buffer_is_an_output_too(caplog: pytest.LogCaptureFixture):
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(3, 2), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache[1] = x
            return self.cache.sum()

    with caplog.at_level(logging.INFO, logger="daceml"):
        model = onnx_of(Cache(), torch.tensor([1.0, 2.0]))
    (message,) = caplog.messages
    assert "cache" in message and message == golden()
    total, cache = run(model, torch.tensor([1.0, 2.0]))
    assert total == 3 and cache.tolist() == [[0, 0], [1, 2], [0, 0]]
    assert [value.name for value in model.graph.outputs][1:] == ["cache::next"]


def test_common_training_needs_no_second_trace(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="daceml"):
        to_onnx(export_program(SmallResNet().train(), (tensor(2, 3, 8, 8),)))
    assert caplog.text == ""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_constants_follow_the_type_of_the_module(dtype: torch.dtype):
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3), nn.Hardtanh()).to(
        dtype
    )
    agrees(
        Lambda(lambda x: module(x) * 0.3 + x.sum() / 7),
        tensor(4, 6, dtype=dtype),
        tolerance={torch.float64: 1e-6, torch.float32: FLOAT32_TOLERANCE, torch.float16: 5e-3}[dtype],
    )


def test_a_double_constant_is_not_rounded_to_single():
    x = tensor(4, dtype=torch.float64)
    (y,) = run(onnx_of(Lambda(lambda x: functional.hardtanh(x, -0.1, 0.1) * 0.3), x), x)
    np.testing.assert_allclose(y, x.clamp(-0.1, 0.1).numpy() * 0.3, rtol=1e-15)


def test_bfloat16_stays_bfloat16():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU6(), nn.LayerNorm(4, elementwise_affine=False)).bfloat16()
    model = onnx_of(module, tensor(2, 4, dtype=torch.bfloat16))
    assert {v.dtype for node in model.graph for v in node.outputs} == {ir.DataType.BFLOAT16}


def bert(attention: str) -> nn.Module:
    modeling = pytest.importorskip(
        "transformers.models.bert.modeling_bert", exc_type=(ImportError, RuntimeError)
    )
    torch.manual_seed(0)
    config = modeling.BertConfig(
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=1,
        _attn_implementation=attention,
    )
    return modeling.BertLayer(config)


def test_a_bert_layer_is_attention_and_gemms():
    model = agrees(bert("sdpa").eval(), tensor(2, 5, 16))
    found = operators(model)
    assert (found["Attention"], found["Gemm"], found["LayerNormalization"], found["Gelu"]) == (1, 6, 2, 1)
    assert not found.keys() & {
        "Shape",
        "Concat",
        "Cast",
        "CastLike",
        "Expand",
        "Identity",
        "Dropout",
        "MatMul",
    }


def test_eager_attention_of_a_bert_layer_stays_spelled_out():
    found = operators(agrees(bert("eager").eval(), tensor(2, 5, 16)))
    assert (found["MatMul"], found["Softmax"], found["Gemm"]) == (2, 1, 6)


def test_batch_and_length_of_a_bert_layer_may_both_be_symbolic():
    dims = {0: torch.export.Dim("N", min=2), 1: torch.export.Dim("L", min=2)}
    module = bert("sdpa").eval()
    model = onnx_of(module, tensor(2, 5, 16), dynamic_shapes=[dims])
    assert [str(dim) for dim in model.graph.inputs[0].shape] == ["N", "L", "16"]
    assert not operators(model).keys() & {"Shape", "Concat", "Gather"}
    x = tensor(3, 7, 16)
    np.testing.assert_allclose(run(model, x)[0], module(x).detach(), atol=FLOAT32_TOLERANCE)


def test_attention_with_dropout_shows_its_dropout():
    found = operators(onnx_of(bert("sdpa").train(), tensor(2, 5, 16)))
    assert (found["Dropout"], found["MatMul"], found["Softmax"], found["Attention"]) == (3, 2, 1, 0)


class MobileBlock(nn.Module):
    """Expansion, depthwise convolution, squeeze and excitation, projection, with swish."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(
            nn.Conv2d(4, 12, 1, bias=False), nn.BatchNorm2d(12), nn.SiLU(inplace=True)
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), nn.BatchNorm2d(12), nn.SiLU(inplace=True)
        )
        self.squeeze, self.excite = nn.Conv2d(12, 3, 1), nn.Conv2d(3, 12, 1)
        self.project = nn.Sequential(nn.Conv2d(12, 4, 1, bias=False), nn.BatchNorm2d(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        gate = self.excite(functional.silu(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))).sigmoid()
        return x + self.project(y * gate)


def test_a_mobile_block_with_swish_and_squeeze():
    found = operators(agrees(MobileBlock().eval(), tensor(2, 4, 6, 6)))
    assert found == {
        "Conv": 5,
        "BatchNormalization": 3,
        "Sigmoid": 4,
        "Mul": 4,
        "GlobalAveragePool": 1,
        "Add": 1,
    }


def test_tied_weights_are_one_initializer():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    model = agrees(Tied(), tensor(2, 4))
    assert json.loads(model.metadata_props["daceml.tied"]) == {"b.weight": "a.weight"}
    assert set(model.graph.initializers) == {"a.weight", "a.bias", "b.bias"}


def test_names_of_the_user_win_over_names_of_values():
    class Collides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.add = nn.Parameter(tensor(3)), nn.Parameter(tensor(3))
            self.register_buffer("offset", tensor(3), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.x + self.add * torch.tensor([1.0, 2.0, 3.0]) + self.offset

    model = agrees(Collides(), tensor(3))
    assert {"x", "add", "offset"} < set(model.graph.initializers)
    assert json.loads(model.metadata_props["daceml.buffers"]) == ["offset"]
    assert len(model.graph.initializers) == 4  # and the constant


def test_inputs_constants_and_repeats_may_be_outputs():
    model = agrees(Lambda(lambda x: (x, x + 1, x, [x * 2])), tensor(2))
    assert operators(model) == {"Identity": 2, "Add": 1, "Mul": 1}


def test_a_symbolic_batch_costs_no_nodes():
    dims = {"input": {0: torch.export.Dim("batch", min=2)}}
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    model = onnx_of(module, tensor(2, 3, 4, 4), dynamic_shapes=dims)
    assert operators(model) == {"Conv": 1, "Reshape": 1, "Gemm": 1}
    assert str(model.graph.outputs[0].shape[0]) == "batch"
    x = tensor(5, 3, 4, 4)
    np.testing.assert_allclose(run(model, x)[0], module(x).detach(), atol=FLOAT32_TOLERANCE)


def test_dropout_is_a_node_in_training_and_nothing_in_evaluation():
    module = nn.Sequential(nn.Dropout(0.25), nn.ReLU(), nn.Dropout2d(0.5))
    training = onnx_of(module.train(), tensor(2, 3, 4, 4))
    assert operators(training) == {"Dropout": 2, "Relu": 1, "Expand": 1, "Mul": 1}
    dropout = next(node for node in training.graph if node.op_type == "Dropout")
    ratio, training_mode = (ir.convenience.get_const_tensor(value).numpy() for value in dropout.inputs[1:])
    assert ratio == np.float32(0.25) and training_mode
    assert "seed" not in dropout.attributes and len(dropout.outputs) == 1
    assert operators(onnx_of(module.eval(), tensor(2, 3, 4, 4))) == {"Relu": 1}


# --- refusals ---


def test_a_branch_on_values_is_refused_at_the_users_line():
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    with raises(ExportError, "value of a tensor", "Lambda", "data-dependent", exact=False) as refusal:
        export_program(Lambda(forward), (tensor(3),))
    text = str(refusal.value)
    assert refusal.value.where == f"test_export.py:{forward.__code__.co_firstlineno + 1}"
    assert "site-packages" not in text and 'File "' not in text
    assert "torch.where" in refusal.value.fix
    assert [refusal.value.what, refusal.value.fix] == [golden(), golden()]


def test_an_operator_without_translation_is_named_with_the_users_line(no_fallback: None):
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x)[0]

    with raises(ExportError, "aten.linalg_qr.default", exact=False) as refusal:
        to_onnx(export_program(Lambda(forward), (tensor(3, 3),)))
    assert refusal.value.where == f"test_export.py:{forward.__code__.co_firstlineno + 1}"
    assert '@translates("aten.linalg_qr.default")' in refusal.value.fix
    assert [refusal.value.what, refusal.value.why, refusal.value.fix] == [golden(), golden(), golden()]


def test_a_translation_that_refuses_gives_its_reason(no_fallback: None):
    def forward(x: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(x, 2, ceil_mode=True, divisor_override=3)

    with raises(ExportError, "aten.avg_pool2d.default", "divisor", exact=False) as refusal:
        to_onnx(export_program(Lambda(forward), (tensor(1, 1, 4, 4),)))
    assert refusal.value.where.startswith(f"test_export.py:{forward.__code__.co_firstlineno + 1}")
    assert [refusal.value.what, refusal.value.why, refusal.value.fix] == [golden(), golden(), golden()]


def test_new_values_of_changed_inputs_are_the_last_outputs():
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1

    model = onnx_of(Lambda(forward), torch.tensor([1.0, 2.0]))
    (name,) = json.loads(model.metadata_props["daceml.other_mutations"])
    assert [value.name for value in model.graph.outputs][1:] == [name]
    y, x = run(model, torch.tensor([1.0, 2.0]))
    assert y.tolist() == [3, 5] and x.tolist() == [2, 4]


# --- manners ---


def test_the_program_is_not_changed():
    program = export_program(SmallResNet().train(), (tensor(2, 3, 8, 8),))
    before, signature = str(program.graph), str(program.graph_signature)
    to_onnx(program)
    assert str(functionalize(program).graph) != before
    assert (str(program.graph), str(program.graph_signature)) == (before, signature)


def test_nothing_is_printed_and_nothing_stays_changed(capfd: pytest.CaptureFixture[str]):
    module, x = SmallResNet().train(), tensor(2, 3, 8, 8)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    levels = {name: logging.getLogger(name).level for name in ("torch", "torch.onnx", "onnxscript")}
    random_state, filters = torch.get_rng_state(), list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_onnx(export_program(module, (x,)))
    assert capfd.readouterr() == ("", "")
    assert levels == {name: logging.getLogger(name).level for name in levels}
    assert torch.equal(torch.get_rng_state(), random_state) and warnings.filters == filters
    assert module.training and all(
        torch.equal(value, state[name]) for name, value in module.state_dict().items()
    )
