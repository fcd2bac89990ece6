"""The networks that benchmarks and model tests run, by name."""

from __future__ import annotations

from benchmarks.models.bert import BERT, bert_encoder
from benchmarks.models.mbconv import MBCONV
from benchmarks.models.mish import MISH
from benchmarks.models.resnet50 import RESNET50
from benchmarks.models.spec import ModelSpec

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in (MISH, MBCONV, RESNET50, BERT)}

__all__ = ["MODELS", "ModelSpec", "bert_encoder"]
