"""Models of other libraries at sizes that people run on a processor, to be timed.

Half of them are drawn by a seed and kept apart: nothing is tuned on `KEPT_APART`, and results of both halves
are reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from benchmarks.strangers.stranger import Inputs, Stranger, images, tokens

_SEED = 40
_LENGTH = 128
_WIDTH, _LAYERS, _HEADS, _WORDS = 256, 4, 8, 8000

_SMALL = {
    "vocab_size": _WORDS, "hidden_size": _WIDTH, "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS,
}  # fmt: skip
_ENCODER = {**_SMALL, "intermediate_size": 4 * _WIDTH, "max_position_embeddings": 256}
_DECODER = {
    **_ENCODER, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "use_cache": False,
}  # fmt: skip
_IMAGES = {
    "hidden_size": _WIDTH, "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS,
    "intermediate_size": 4 * _WIDTH, "image_size": 160, "patch_size": 16,
}  # fmt: skip
_PAIR = {
    "vocab_size": _WORDS, "d_model": _WIDTH, "encoder_layers": 3, "decoder_layers": 3,
    "encoder_attention_heads": _HEADS, "decoder_attention_heads": _HEADS, "encoder_ffn_dim": 4 * _WIDTH,
    "decoder_ffn_dim": 4 * _WIDTH, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip


def _mask(batch: int) -> torch.Tensor:
    mask = torch.ones(batch, _LENGTH, dtype=torch.int64)
    mask[0, : _LENGTH // 3] = 0
    return mask


def _text(name: str, model: str, options: Mapping[str, Any], *, masked: bool = False) -> Stranger:
    words = tokens(_WORDS, _LENGTH, **({"attention_mask": _mask} if masked else {}))
    return _transformer(name, model, options, words)


def _transformer(
    name: str, model: str, options: Mapping[str, Any], inputs: Callable[[int], Inputs]
) -> Stranger:
    def make() -> nn.Module:
        made: Any = getattr(import_module("transformers"), model)
        return made(made.config_class(**options))

    return Stranger(name=f"transformers {name}", make=make, inputs=inputs, batches=(4, 5))


def _vision(library: str, name: str, size: int = 160, batch: int = 4, **options: Any) -> Stranger:
    def make() -> nn.Module:
        if library == "timm":
            return import_module("timm").create_model(name, pretrained=False, **options)
        return import_module("torchvision").models.get_model(name, weights=None, **options)

    return Stranger(name=f"{library} {name}", make=make, inputs=images(size), batches=(batch, batch + 1))


def _geometric(name: str) -> Stranger:
    def make() -> nn.Module:
        return getattr(import_module("torch_geometric.nn.models"), name)(64, 128, 3, 16)

    def inputs(batch: int) -> Inputs:
        nodes = 1000 * batch
        return {"0": torch.randn(nodes, 64), "1": torch.randint(0, nodes, (2, 8 * nodes))}

    return Stranger(name=f"torch_geometric {name}", make=make, inputs=inputs, batches=(4, 5))


def _sequences(batch: int) -> Inputs:
    source, target = (torch.randint(3, _WORDS, (batch, length)) for length in (_LENGTH, 64))
    return {"input_ids": source, "decoder_input_ids": target, "use_cache": False}


class _LanguageModel(nn.Module):
    def __init__(self, layer: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_WORDS, _WIDTH)
        self.layers = layer(_WIDTH, _WIDTH, 2, batch_first=True)
        self.head = nn.Linear(_WIDTH, _WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(words))[0])


def _mlp() -> nn.Module:
    layers = [
        part
        for width in (784, 512, 512)
        for part in (nn.Linear(width, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.1))
    ]
    return nn.Sequential(*layers, nn.Linear(512, 10))


def _encoder_of_torch() -> nn.Module:
    layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, 4 * _WIDTH, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)


def _words(batch: int) -> Inputs:
    return {"0": torch.randint(0, _WORDS, (batch, 64))}


MODELS: tuple[Stranger, ...] = (
    _text("bert", "BertModel", _ENCODER, masked=True),
    _text("distilbert", "DistilBertModel",
          {"vocab_size": _WORDS, "dim": _WIDTH, "n_layers": _LAYERS, "n_heads": _HEADS, "hidden_dim": 1024}),
    _text("albert", "AlbertModel", {**_ENCODER, "embedding_size": 128}, masked=True),
    _text("electra", "ElectraModel", {**_ENCODER, "embedding_size": 128}, masked=True),
    _text("deberta", "DebertaV2Model",
          {**_ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 64},
          masked=True),
    _text("mpnet", "MPNetModel", _ENCODER, masked=True),
    _text("squeezebert", "SqueezeBertModel", {**_ENCODER, "embedding_size": _WIDTH}, masked=True),
    _text("fnet", "FNetModel", {**_SMALL, "intermediate_size": 4 * _WIDTH}),
    _text("xlnet", "XLNetModel",
          {"vocab_size": _WORDS, "d_model": _WIDTH, "n_layer": _LAYERS, "n_head": _HEADS, "d_inner": 1024}),
    _text("gpt2", "GPT2LMHeadModel",
          {"vocab_size": _WORDS, "n_embd": _WIDTH, "n_layer": _LAYERS, "n_head": _HEADS, "n_positions": 256,
           "use_cache": False}, masked=True),
    _text("gpt_neo", "GPTNeoForCausalLM",
          {"vocab_size": _WORDS, "hidden_size": _WIDTH, "num_layers": _LAYERS, "num_heads": _HEADS,
           "use_cache": False, "attention_types": [[["global", "local"], 2]], "window_size": 32,
           "max_position_embeddings": 256}),
    _text("opt", "OPTForCausalLM",
          {**_SMALL, "ffn_dim": 1024, "word_embed_proj_dim": _WIDTH, "max_position_embeddings": 256,
           "use_cache": False}, masked=True),
    _text("bloom", "BloomForCausalLM",
          {"vocab_size": _WORDS, "hidden_size": _WIDTH, "n_layer": _LAYERS, "n_head": _HEADS,
           "use_cache": False}, masked=True),
    _text("llama", "LlamaForCausalLM", _DECODER, masked=True),
    _text("mistral", "MistralForCausalLM", {**_DECODER, "sliding_window": 32}, masked=True),
    _text("mixtral", "MixtralForCausalLM", {**_DECODER, "num_local_experts": 4}),
    _text("qwen2", "Qwen2ForCausalLM", _DECODER),
    _text("gemma", "GemmaForCausalLM", {**_DECODER, "head_dim": 32}, masked=True),
    _text("phi", "PhiForCausalLM", _DECODER),
    _transformer("t5", "T5ForConditionalGeneration",
                 {"vocab_size": _WORDS, "d_model": _WIDTH, "d_kv": 32, "d_ff": 1024, "num_layers": 3,
                  "num_heads": _HEADS}, _sequences),
    _transformer("bart", "BartForConditionalGeneration", _PAIR, _sequences),
    _transformer("whisper", "WhisperForConditionalGeneration",
                 {**_PAIR, "num_mel_bins": 80, "max_source_positions": 128, "max_target_positions": 64},
                 lambda batch: {"input_features": torch.randn(batch, 80, 256), "use_cache": False,
                                "decoder_input_ids": torch.randint(3, _WORDS, (batch, 32))}),
    _transformer("vit", "ViTModel", _IMAGES, images(160, name="pixel_values")),
    _transformer("segformer", "SegformerForSemanticSegmentation",
                 {"depths": [1, 1, 1, 1], "decoder_hidden_size": 128}, images(128, name="pixel_values")),
    _vision("torchvision", "resnet18"),
    _vision("torchvision", "squeezenet1_1"),
    _vision("torchvision", "shufflenet_v2_x1_0"),
    _vision("torchvision", "mobilenet_v3_small"),
    _vision("torchvision", "googlenet", init_weights=False, aux_logits=False),
    _vision("torchvision", "densenet121", batch=2),
    _vision("torchvision", "swin_t", batch=2),
    _vision("timm", "efficientnet_b0"),
    _vision("timm", "regnety_004"),
    _vision("timm", "convnext_atto"),
    _vision("timm", "ghostnet_100"),
    _vision("timm", "mixer_s32_224", 224),
    _vision("timm", "levit_128s", 224),
    _vision("timm", "poolformer_s12", batch=2),
    _vision("timm", "resnest14d", batch=2),
    _vision("timm", "coat_lite_tiny", 224, batch=2),
    _geometric("GCN"),
    _geometric("GAT"),
    _geometric("GIN"),
    Stranger(name="lstm", make=lambda: _LanguageModel(nn.LSTM), inputs=_words, batches=(16, 17)),
    Stranger(name="gru", make=lambda: _LanguageModel(nn.GRU), inputs=_words, batches=(16, 17)),
    Stranger(name="mlp", make=_mlp, inputs=lambda batch: {"0": torch.randn(batch, 784)}, batches=(256, 257)),
    Stranger(name="nn.TransformerEncoder", make=_encoder_of_torch, batches=(8, 9),
             inputs=lambda batch: {"0": torch.randn(batch, _LENGTH, _WIDTH)}),
)  # fmt: skip

KEPT_APART = frozenset(random.Random(_SEED).sample([model.name for model in MODELS], 20))
