"""The networks that benchmarks and model tests run, by name."""

from __future__ import annotations

from benchmarks.models.bert import BERT, BERT_AUTOCAST, bert_encoder
from benchmarks.models.dlrm import DLRM_SPEC
from benchmarks.models.efficientnet import EFFICIENTNET_B0
from benchmarks.models.fcn8s import FCN8S
from benchmarks.models.mbconv import MBCONV
from benchmarks.models.mish import MISH
from benchmarks.models.mlp_mixer import MLP_MIXER
from benchmarks.models.mobilenetv2 import MOBILENETV2
from benchmarks.models.resnet50 import RESNET50
from benchmarks.models.spec import ModelSpec
from benchmarks.models.wavenet import WAVENET
from benchmarks.models.wide_resnet50 import WIDE_RESNET50
from benchmarks.models.yolov4 import YOLOV4

MODELS: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        MISH,
        MBCONV,
        RESNET50,
        WIDE_RESNET50,
        MOBILENETV2,
        EFFICIENTNET_B0,
        MLP_MIXER,
        BERT,
        BERT_AUTOCAST,
        FCN8S,
        WAVENET,
        DLRM_SPEC,
        YOLOV4,
    )
}

__all__ = ["MODELS", "ModelSpec", "bert_encoder"]
