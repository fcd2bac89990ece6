"""The benchmarked networks are the published ones, run, are reproducible, and have non-trivial weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks.models import MODELS, bert_encoder, shapes
from benchmarks.models.dlrm import click_inputs, symbolic_lookups
from benchmarks.models.further import FURTHER
from benchmarks.models.reduced import REDUCED
from benchmarks.models.spec import as_float64, symbolic_batch
from tests.support.sampling import sampled

# Parameters and shapes of outputs.
PUBLISHED = {
    "mish": (0, [shapes.MISH]),
    # Tan & Le, table 1, stage 2: 32 -> 16 channels; 288 + 2*32 + (256+8) + (256+32) + 512 + 2*16 parameters
    "mbconv": (1_448, [(8, 16, 112, 112)]),
    "resnet50": (25_557_032, [(2, 1000)]),
    # Zagoruyko & Komodakis, table 8: 68.9 M
    "wide_resnet50": (68_883_240, [(2, 1000)]),
    # pytorchcv's own count; the paper has 3.4 M
    "mobilenetv2": (3_504_960, [(2, 1000)]),
    # Tan & Le, table 2: 5.3 M
    "efficientnet_b0": (5_288_548, [(2, 1000)]),
    # patches, last norm, classes; eight layers: two norms, 196 -> 2048 -> 196, 512 -> 256 -> 512
    "mlp_mixer": (
        768 * 512 + 512 + 1024 + 512 * 1000 + 1000 + 8 * (2048 + 196 * 4096 + 2244 + 512 * 512 + 768),
        [(4, 1000)],
    ),
    "bert": (12_596_224, [shapes.BERT]),
    "bert_autocast": (12_596_224, [shapes.BERT]),
    # VGG-16's convolutions, its two hidden layers, three scores, three upsamplings
    "fcn8s": (
        14_714_688 + 102_764_544 + 16_781_312 + 21 * (4097 + 513 + 257) + 21 * 21 * (16 + 16 + 256),
        [(2, 21, 224, 224)],
    ),
    # embedding, first convolution, twenty layers, two 1x1 convolutions
    "wavenet": (256 * 32 + 2080 + 20 * (2 * 2080 + 1056 + 8448) + 2 * 65_792, [(1, 256, 8000)]),
    # tables, three layers below, three above of 64 + 27*26/2 inputs
    "dlrm": (
        26 * 100_000 * 64 + 14 * 512 + 513 * 256 + 257 * 64 + 416 * 512 + 513 * 256 + 257,
        [(2048, 1)],
    ),
    # as counted for the release's yolov4.cfg: 64.36 M
    "yolov4": (64_363_101, [(1, 255, 52, 52), (1, 255, 26, 26), (1, 255, 13, 13)]),
}


def test_every_network_has_a_published_size_and_a_replica():
    assert PUBLISHED.keys() == MODELS.keys() == REDUCED.keys()


@pytest.mark.parametrize("name", MODELS)
def test_a_network_has_the_published_size(name: str):
    spec = MODELS[name]
    parameters, outputs = PUBLISHED[name]
    inputs = pytree.tree_map_only(torch.Tensor, lambda x: x.to("meta"), spec.example())
    # shapes only: the numbers of the large ones would take seconds and gigabytes
    with torch.device("meta"), torch.no_grad():
        module = spec.build().eval()
        result = module(*inputs)
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert [output.shape for output in pytree.tree_leaves(result)] == outputs


@pytest.mark.parametrize("name", REDUCED)
def test_values_keep_a_sensible_scale(name: str):
    spec = REDUCED[name]
    module = spec.module()
    assert not any(child.training for child in module.modules())
    with torch.no_grad(), spec.casting():
        outputs = pytree.tree_leaves(module(*spec.example()))
    for output in outputs:
        assert torch.isfinite(output).all()
        assert 0.05 < output.float().std() < 20, "random weights should neither vanish nor explode"


@pytest.mark.parametrize("name", REDUCED)
def test_the_seed_decides_weights_and_inputs(name: str):
    spec = REDUCED[name]
    same, other = spec.module(3).state_dict(), spec.module(4).state_dict()
    for key, value in spec.module(3).state_dict().items():
        assert torch.equal(value, same[key])
    first, again, changed = (pytree.tree_leaves(spec.example(seed)) for seed in (3, 3, 4))
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, changed))
    assert name == "mish" or any(not torch.equal(same[key], other[key]) for key in same)


def test_building_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    MODELS["mbconv"].module(1)
    assert torch.equal(torch.rand(1), expected)


def test_float64_inputs_are_the_float32_numbers_and_indices_stay():
    spec = REDUCED["dlrm"]
    given, double = spec.example(), as_float64(spec.example())
    assert torch.equal(double[0], given[0].double())
    assert torch.equal(spec.example(0, torch.float64)[0], double[0])
    assert [x.dtype for x in pytree.tree_leaves(double[1:])] == [torch.int64] * 6


@pytest.mark.parametrize("name", ["mbconv", "resnet50", "efficientnet_b0", "yolov4"])
def test_batch_norms_have_statistics_that_matter(name: str):
    norms = [child for child in REDUCED[name].module().modules() if isinstance(child, nn.BatchNorm2d)]
    assert norms
    for norm in norms:
        assert norm.running_mean is not None and norm.running_var is not None
        for tensor in (norm.running_mean, norm.weight, norm.bias):
            assert tensor.std() > 0.01
        assert norm.running_var.std() > 0.05 * norm.running_var.mean()
        assert not norm._forward_pre_hooks, "what set the statistics would stay in the compiled module"


def test_mbconv_pads_to_the_same_size_by_a_layer_of_its_own():
    padding = MODELS["mbconv"].module().get_submodule("_depthwise_conv.static_padding")
    assert isinstance(padding, nn.ZeroPad2d)
    assert padding.padding == (1, 1, 1, 1)


def test_an_encoder_has_different_weights_in_each_layer():
    module = bert_encoder(2).module()
    first, second = (module.get_submodule(f"layer.{i}").state_dict() for i in range(2))
    assert first.keys() == second.keys()
    assert not torch.equal(first["attention.self.query.weight"], second["attention.self.query.weight"])
    assert first["output.LayerNorm.weight"].std() > 0.01


def test_a_wavenet_sample_depends_on_the_past_only():
    spec = REDUCED["wavenet"]
    module, (levels,) = spec.module(), spec.example()
    later = levels.clone()
    later[:, 20] = (later[:, 20] + 1) % 16
    with torch.no_grad():
        before, after = module(levels), module(later)
    assert torch.equal(before[:, :, :20], after[:, :, :20])
    # two stacks of dilations 1 and 2, and the first convolution, see 2 * 3 + 1 samples back
    assert not torch.equal(before[:, :, 27], after[:, :, 27])
    assert torch.equal(before[:, :, 28:], after[:, :, 28:])


def test_dlrm_has_empty_bags_and_bags_of_several_lookups():
    _, indices, offsets = click_inputs(tables=2, rows=10, batch=40)(
        torch.Generator().manual_seed(0), torch.float32
    )
    for index, offset in zip(indices, offsets, strict=True):
        sizes = torch.diff(offset, append=torch.tensor([len(index)]))
        assert sizes.min() == 0 and sizes[0] == 0 and sizes.max() > 2
        assert index.max() < 10


def test_another_batch_leaves_the_other_sizes():
    assert REDUCED["bert"].example(batch=5)[0].shape == (5, 8, 32)
    assert REDUCED["wavenet"].example(batch=3)[0].shape == (3, 40)
    dense, _, offsets = REDUCED["dlrm"].example(batch=4)
    assert dense.shape == (4, 5) and [len(offset) for offset in offsets] == [4] * 3


def test_open_sizes_are_the_batch_and_for_each_table_its_lookups():
    (image,) = symbolic_batch(REDUCED["resnet50"].example())
    assert list(image) == [0] and image[0].__name__ == "batch"
    dense, indices, offsets = symbolic_lookups(REDUCED["dlrm"].example())
    assert [entry[0].__name__ for entry in indices] == ["lookups0", "lookups1", "lookups2"]
    assert {entry[0] for entry in offsets} == {dense[0]}


# The seconds of inception_v3 are torch's, for its weights
@pytest.mark.parametrize("name", sampled(FURTHER, *(name for name in FURTHER if name != "inception_v3")))
def test_further_networks_run_and_tell_inputs_apart(name: str):
    spec = FURTHER[name]
    module = spec.module()
    with torch.no_grad():
        first, second = (module(*spec.example(seed)) for seed in (0, 1))
    assert first.isfinite().all()
    assert (first - second).abs().max() > 1e-3
    assert all((p != p.flatten()[0]).any() for p in module.parameters() if p.dim() > 1)
