"""Models of torchvision and timm."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from benchmarks.strangers.stranger import Stranger, images


def _torchvision(name: str, size: int = 64, **options: Any) -> Stranger:
    def make() -> nn.Module:
        torchvision = import_module("torchvision")

        return torchvision.models.get_model(name, weights=None, **options)

    return Stranger(name=f"torchvision {name}", make=make, inputs=images(size), batches=(4, 6))


def _timm(name: str, size: int = 64, **options: Any) -> Stranger:
    def make() -> nn.Module:
        timm = import_module("timm")

        return timm.create_model(name, pretrained=False, **options)

    return Stranger(name=f"timm {name}", make=make, inputs=images(size), batches=(4, 6))


def _video() -> Callable[[int], dict[str, torch.Tensor]]:
    return lambda batch: {"0": torch.randn(batch, 3, 4, 32, 32)}


def _r3d() -> nn.Module:
    torchvision = import_module("torchvision")

    return torchvision.models.video.r3d_18(weights=None)


MODELS = [
    _torchvision("resnet18"),
    _torchvision("squeezenet1_1"),
    _torchvision("shufflenet_v2_x0_5"),
    _torchvision("mobilenet_v3_small"),
    _torchvision("googlenet", init_weights=True, aux_logits=True),
    _torchvision("vit_b_32", image_size=64),
    _torchvision("swin_t"),
    _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None),
    Stranger(name="torchvision r3d_18", make=_r3d, inputs=_video()),
    _timm("efficientnet_b0"),
    _timm("regnety_002"),
    _timm("convnext_atto"),
    _timm("ghostnet_050"),
    _timm("vit_tiny_patch16_224", img_size=64),
    _timm("deit_tiny_patch16_224", img_size=64),
    _timm("mixer_s32_224", img_size=64),
    _timm("levit_128s", 224),
    _timm("poolformer_s12"),
    _timm("resnest14d"),
    _timm("coat_lite_tiny", img_size=64),
]
