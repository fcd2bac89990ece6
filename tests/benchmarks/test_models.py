"""The benchmarked networks: shapes, seeds, and statistics that are not trivial."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks.models import MODELS, bert_encoder, shapes

SMALL = ("mish", "mbconv")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mish", shapes.MISH),
        ("mbconv", (8, 16, 112, 112)),
        ("resnet50", (2, 1000)),
        ("bert", shapes.BERT),
    ],
)
def test_a_network_runs_in_eval_mode(name: str, shape: tuple[int, ...]):
    spec = MODELS[name]
    module = spec.module()
    assert not any(child.training for child in module.modules())
    with torch.no_grad():
        output = module(*spec.example())
    assert output.shape == shape
    assert torch.isfinite(output).all()
    assert output.std() > 1e-3, "random weights should not end in a constant"


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_decides_weights_and_inputs(name: str):
    spec = MODELS[name]
    same, other = spec.module(3).state_dict(), spec.module(4).state_dict()
    for key, value in spec.module(3).state_dict().items():
        assert torch.equal(value, same[key])
    assert torch.equal(spec.example(3)[0], spec.example(3)[0])
    assert not torch.equal(spec.example(3)[0], spec.example(4)[0])
    assert name == "mish" or any(not torch.equal(same[key], other[key]) for key in same)


def test_building_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    MODELS["mbconv"].module(1)
    assert torch.equal(torch.rand(1), expected)


def test_float64_inputs_are_the_float32_numbers():
    spec = MODELS["mish"]
    assert torch.equal(spec.example(0, torch.float64)[0], spec.example(0)[0].double())


@pytest.mark.parametrize("name", ["mbconv", "resnet50"])
def test_batch_norms_have_statistics_that_matter(name: str):
    norms = [child for child in MODELS[name].module().modules() if isinstance(child, nn.BatchNorm2d)]
    assert norms
    for norm in norms:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            assert tensor.std() > 0.01


def test_mbconv_pads_to_the_same_size_by_a_layer_of_its_own():
    block = MODELS["mbconv"].module()
    padding = block.get_submodule("_depthwise_conv.static_padding")
    assert isinstance(padding, nn.ZeroPad2d)
    assert padding.padding == (1, 1, 1, 1)
    # Tan & Le, table 1, stage 2: 32 -> 16 channels; 288 + 2*32 + (256+8) + (256+32) + 512 + 2*16 parameters
    assert sum(parameter.numel() for parameter in block.parameters()) == 1448


def test_an_encoder_has_different_weights_in_each_layer():
    module = bert_encoder(2).module()
    first, second = (module.get_submodule(f"layer.{i}").state_dict() for i in range(2))
    assert first.keys() == second.keys()
    assert not torch.equal(first["attention.self.query.weight"], second["attention.self.query.weight"])
    assert first["output.LayerNorm.weight"].std() > 0.01
