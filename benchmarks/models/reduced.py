"""Small replicas of the networks: the same layer types and wiring, few layers and channels, small inputs.

Each compiles in seconds, so that a test can compile them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from benchmarks.models import MODELS, dlrm, shapes, wavenet
from benchmarks.models.bert import bert_layer
from benchmarks.models.fcn8s import FCN8s
from benchmarks.models.fcn8s import fill as fill_fcn8s
from benchmarks.models.mbconv import MBConv1
from benchmarks.models.mlp_mixer import mlp_mixer
from benchmarks.models.spec import Inputs, ModelSpec, he_normal_leaky, with_weights
from benchmarks.models.wide_resnet50 import wide_resnet
from benchmarks.models.yolov4 import YOLOv4


def resnet() -> nn.Module:
    """Two stages, the second one with a unit that keeps its shape."""
    from pytorchcv.models.resnet import ResNet

    return ResNet(
        channels=[[16], [32, 32]], init_block_channels=8, bottleneck=True, conv1_stride=True, num_classes=10
    )


def mobilenetv2() -> nn.Module:
    """Three stages; the last has a unit with a skip."""
    from pytorchcv.models.mobilenetv2 import MobileNetV2

    return MobileNetV2(
        channels=[[8], [12], [12, 12]],
        init_block_channels=8,
        final_block_channels=32,
        remove_exp_conv=False,
        num_classes=10,
    )


def efficientnet() -> nn.Module:
    """Blocks without and with expansion, of both kernel sizes, with stride, and with a skip."""
    from efficientnet_pytorch import EfficientNet
    from efficientnet_pytorch.utils import BlockArgs, GlobalParams

    block = BlockArgs(
        num_repeat=1, kernel_size=3, stride=[1], expand_ratio=1, input_filters=8, output_filters=8,
        se_ratio=0.25, id_skip=True,
    )  # fmt: skip
    wider = block._replace(num_repeat=2, kernel_size=5, stride=[2], expand_ratio=6, output_filters=16)
    settings = GlobalParams(
        width_coefficient=0.25, depth_coefficient=1.0, image_size=32, dropout_rate=0.2, num_classes=10,
        batch_norm_momentum=0.99, batch_norm_epsilon=1e-3, drop_connect_rate=0.2, depth_divisor=8,
        min_depth=None,
        include_top=True,
    )  # fmt: skip
    return EfficientNet([block, wider], settings)


def _reduced(name: str, build: Callable[[], nn.Module], inputs: Inputs) -> ModelSpec:
    # the full network's depth: a replica's errors are smaller, and its floor not much lower
    return replace(MODELS[name], build=build, inputs=inputs)


_SMALL_BERT = shapes.normal(2, 8, 32)

REDUCED: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _reduced("mish", MODELS["mish"].build, shapes.normal(2, 3, 5, 5)),
        _reduced("mbconv", lambda: MBConv1(8, 4), shapes.normal(2, 8, 12, 12)),
        _reduced("resnet50", resnet, shapes.normal(2, 3, 56, 56)),
        _reduced(
            "wide_resnet50",
            lambda: wide_resnet([[16], [32, 32]], first_channels=8, classes=10),
            shapes.normal(2, 3, 56, 56),
        ),
        _reduced("mobilenetv2", mobilenetv2, shapes.normal(2, 3, 56, 56)),
        _reduced("efficientnet_b0", efficientnet, shapes.normal(2, 3, 32, 32)),
        _reduced(
            "mlp_mixer",
            lambda: mlp_mixer(image=32, patch=8, width=16, depth=2, classes=10),
            shapes.normal(2, 3, 32, 32),
        ),
        _reduced("bert", lambda: bert_layer(hidden=32, heads=4), _SMALL_BERT),
        _reduced("bert_autocast", lambda: bert_layer(hidden=32, heads=4), _SMALL_BERT),
        _reduced(
            "fcn8s",
            with_weights(
                lambda: FCN8s(groups=((4, 4), (6, 6), (8, 8, 8), (8, 8, 8), (8, 8, 8)), hidden=16, classes=5),
                fill_fcn8s,
            ),
            shapes.normal(2, 3, 16, 24),
        ),
        _reduced(
            "wavenet",
            lambda: wavenet.WaveNet(layers=2, residual=4, dilated=6, skip=8, end=8, levels=16),
            shapes.classes(16, 2, 40),
        ),
        _reduced(
            "dlrm",
            with_weights(lambda: dlrm.DLRM(tables=3, rows=50, bottom=(5, 16, 8), top=(16, 1)), dlrm.fill),
            dlrm.click_inputs(tables=3, rows=50, dense=5, batch=9),
        ),
        _reduced(
            "yolov4",
            with_weights(lambda: YOLOv4(width=4, blocks=(1, 2, 1), head_channels=6), he_normal_leaky),
            shapes.normal(1, 3, 32, 48),
        ),
    )
}
