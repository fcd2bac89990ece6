"""Ten networks beside the measured ones, at small sizes: operators and wiring that those do not have.

They are here for values and for what is left to other runtimes, not for times:
`python -m benchmarks.parity --further`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.models import shapes
from benchmarks.models.bert import randomise_layer_norms
from benchmarks.models.spec import ModelSpec

IMAGE = (2, 3, 64, 64)
TOKENS = (2, 24)
WORDS = 200
_SDPA: dict[str, Any] = {"attn_implementation": "sdpa"}  # taken by name, but not declared


class Taken(nn.Module):
    """A network of transformers, and what is taken of its result; attention by torch's function, no cache.

    Args:
        module: the network.
        result: name of the tensor that is taken; None where the network gives one.
        settings: further keyword arguments of each call.
    """

    def __init__(self, module: nn.Module, result: str | None, **settings: Any) -> None:
        super().__init__()
        self.module, self.result, self.settings = module, result, settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: Any = self.module(x, **self.settings)
        return found if self.result is None else getattr(found, self.result)


def convnext() -> nn.Module:
    """Four stages of depthwise 7 x 7 convolutions, layer norms over channels, and scales of branches."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(depths=[1, 1, 2, 1], hidden_sizes=[16, 24, 32, 48], layer_scale_init_value=0.5)
    return Taken(ConvNextForImageClassification(config), "logits")


def swin() -> nn.Module:
    """Attention in shifted windows, with a table of relative positions, and merging of patches."""
    from transformers import SwinConfig, SwinForImageClassification

    options: dict[str, Any] = {"image_size": 64, "patch_size": 4, "window_size": 4}
    config = SwinConfig(embed_dim=24, depths=[2, 2], num_heads=[2, 4], drop_path_rate=0.0, **options)
    module = SwinForImageClassification(config)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("relative_position_bias_table"):
                parameter.normal_()  # they begin as zeros
    return Taken(module, "logits")


def gpt2() -> nn.Module:
    """Two layers, and the logits of the next word."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=48, n_layer=2, n_head=4, **_SDPA)
    return Taken(GPT2LMHeadModel(config), "logits", use_cache=False)


def t5_encoder() -> nn.Module:
    """Two layers with RMS norms, relative positions in buckets, and gated GELU."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=WORDS,
        d_model=48,
        d_kv=12,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
    )
    return Taken(T5EncoderModel(config), "last_hidden_state")


def llama() -> nn.Module:
    """Two layers: rotary positions, grouped heads, RMS norms, gated SiLU."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        **_SDPA,
    )
    return Taken(LlamaModel(config), "last_hidden_state", use_cache=False)


def whisper_encoder() -> nn.Module:
    """Two convolutions along time, and two layers."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        num_mel_bins=16,
        d_model=48,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=96,
        max_source_positions=24,
        **_SDPA,
    )
    return Taken(WhisperEncoder(config), "last_hidden_state")


def ghostnet() -> nn.Module:
    """Cheap maps of maps, and squeeze-and-excitation; two stages of pytorchcv's network."""
    from pytorchcv.models.ghostnet import GhostNet

    return GhostNet(
        channels=[[8], [12, 12], [16, 16]],
        init_block_channels=8,
        final_block_channels=32,
        classifier_mid_channels=32,
        kernels3=[[1], [1, 0], [0, 1]],
        exp_factors=[[1], [3, 3], [3, 6]],
        use_se=[[0], [0, 1], [1, 0]],
        first_stride=False,
        num_classes=10,
    )


def shufflenet() -> nn.Module:
    """Grouped pointwise convolutions with shuffled channels."""
    from pytorchcv.models.shufflenet import ShuffleNet

    return ShuffleNet(channels=[[24, 24], [48, 48]], init_block_channels=12, groups=3, num_classes=10)


def inception_v3() -> nn.Module:
    """Branches of unlike kernels, concatenated: a unit or two of each stage of pytorchcv's network."""
    from pytorchcv.models.inceptionv3 import InceptionV3

    return InceptionV3(
        channels=[[256, 288], [768, 768], [1280, 2048]],
        init_block_channels=192,
        b_mid_channels=[128],
        num_classes=10,
    )


def dpn() -> nn.Module:
    """Residual and dense paths side by side."""
    from pytorchcv.models.dpn import DPN

    return DPN(
        channels=[[56, 64], [112, 128]],
        init_block_channels=12,
        init_block_kernel_size=3,
        init_block_padding=1,
        rs=[16, 32],
        bws=[32, 64],
        incs=[8, 16],
        groups=4,
        b_case=False,
        for_training=True,
        test_time_pool=False,
        num_classes=10,
    )


@dataclass(frozen=True)
class _Row:
    build: Callable[[], nn.Module]
    inputs: Any
    depth: int
    source: str


_ROWS = {
    "convnext": _Row(convnext, shapes.normal(*IMAGE), 60, "Liu et al., A ConvNet for the 2020s (CVPR 2022)"),
    "ghostnet": _Row(ghostnet, shapes.normal(*IMAGE), 60, "Han et al., GhostNet (CVPR 2020)"),
    "shufflenet": _Row(shufflenet, shapes.normal(2, 3, 112, 112), 50, "Zhang et al., ShuffleNet (CVPR 2018)"),
    "inception_v3": _Row(
        inception_v3, shapes.normal(1, 3, 299, 299), 100, "Szegedy et al., Inception-v3 (2016)"
    ),
    "dpn": _Row(dpn, shapes.normal(*IMAGE), 60, "Chen et al., Dual Path Networks (NeurIPS 2017)"),
    "gpt2": _Row(gpt2, shapes.classes(WORDS, *TOKENS), 40, "Radford et al., GPT-2 (2019)"),
    "t5_encoder": _Row(t5_encoder, shapes.classes(WORDS, *TOKENS), 40, "Raffel et al., T5 (JMLR 2020)"),
    "swin": _Row(swin, shapes.normal(*IMAGE), 80, "Liu et al., Swin Transformer (ICCV 2021)"),
    "llama": _Row(llama, shapes.classes(WORDS, *TOKENS), 40, "Touvron et al., LLaMA (2023)"),
    "whisper_encoder": _Row(
        whisper_encoder, shapes.normal(2, 16, 48), 40, "Radford et al., Whisper (ICML 2023)"
    ),
}


def _built(build: Callable[[], nn.Module]) -> nn.Module:
    module = build()
    randomise_layer_norms(module)
    return module


FURTHER: dict[str, ModelSpec] = {
    name: ModelSpec(
        name=name, build=partial(_built, row.build), inputs=row.inputs, depth=row.depth, source=row.source
    )
    for name, row in _ROWS.items()
}
