"""MLP-Mixer as mlp_mixer_pytorch defines it."""

from __future__ import annotations

from typing import cast

from torch import nn

from benchmarks.models import shapes
from benchmarks.models.bert import randomise_layer_norms
from benchmarks.models.spec import ModelSpec

DEPTH = 8


def mlp_mixer(
    *, image: int = 224, patch: int = 16, width: int = 512, depth: int = DEPTH, classes: int = 1000
) -> nn.Module:
    """Random weights; images [N, 3, image, image] -> [N, classes]."""
    from mlp_mixer_pytorch import MLPMixer

    mixer = MLPMixer(
        image_size=image, channels=3, patch_size=patch, dim=width, depth=depth, num_classes=classes
    )
    module = cast("nn.Module", mixer)
    randomise_layer_norms(module)
    return module


MLP_MIXER = ModelSpec(
    name="mlp_mixer",
    build=mlp_mixer,
    inputs=shapes.normal(*shapes.MLP_MIXER),
    depth=DEPTH * 12 + 5,
    source="Tolstikhin et al., MLP-Mixer (NeurIPS 2021), table 1, width and depth of S/16; mlp_mixer_pytorch",
)
