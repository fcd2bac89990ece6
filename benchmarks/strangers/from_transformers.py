"""Models of transformers, from configurations of a few layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.strangers.stranger import Stranger, images, tokens

_SMALL = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_ENCODER = {**_SMALL, "intermediate_size": 64, "max_position_embeddings": 64}
_DECODER = {**_ENCODER, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_IMAGES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


def _made(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**options))

    return make


def _text(name: str, model: str, config: str, options: dict[str, Any], **more: Any) -> Stranger:
    given = more.pop("inputs", tokens())
    return Stranger(name=f"transformers {name}", make=_made(model, config, **options), inputs=given, **more)


def _mask(batch: int) -> torch.Tensor:
    mask = torch.ones(batch, 16, dtype=torch.int64)
    mask[0, :5] = 0
    return mask


def _causal(name: str, config: str, **more: Any) -> Stranger:
    prefix = config.removesuffix("Config")
    options = {**_DECODER, "use_cache": False, **more}
    return _text(name, f"{prefix}ForCausalLM", config, options, inputs=tokens(attention_mask=_mask))


def _encoder(name: str, model: str, config: str, **more: Any) -> Stranger:
    return _text(name, model, config, {**_ENCODER, **more}, inputs=tokens(attention_mask=_mask))


def _sequences(batch: int) -> dict[str, Any]:
    numbers = torch.randint(3, 100, (batch, 16))
    return {"input_ids": numbers, "decoder_input_ids": torch.randint(3, 100, (batch, 12)), "use_cache": False}


_PAIR = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
_T5 = {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_SOUND = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (32, 32, 32), "conv_stride": (5, 4, 2), "conv_kernel": (10, 4, 3),
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
}  # fmt: skip

MODELS = [
    _encoder("bert", "BertModel", "BertConfig"),
    _encoder("roberta", "RobertaModel", "RobertaConfig"),
    _text("distilbert", "DistilBertModel", "DistilBertConfig",
          {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    _encoder("albert", "AlbertModel", "AlbertConfig", embedding_size=16),
    _encoder("electra", "ElectraModel", "ElectraConfig", embedding_size=16),
    _encoder("deberta", "DebertaV2Model", "DebertaV2Config", relative_attention=True,
             pos_att_type=["p2c", "c2p"], position_buckets=8),
    _encoder("mpnet", "MPNetModel", "MPNetConfig"),
    _encoder("longformer", "LongformerModel", "LongformerConfig", attention_window=8),
    _encoder("big_bird", "BigBirdModel", "BigBirdConfig", attention_type="original_full"),
    _encoder("squeezebert", "SqueezeBertModel", "SqueezeBertConfig", embedding_size=32),
    _text("nystromformer", "NystromformerModel", "NystromformerConfig",
          {**_ENCODER, "segment_means_seq_len": 16, "num_landmarks": 4}),
    _text("fnet", "FNetModel", "FNetConfig", {**_SMALL, "intermediate_size": 64}),
    _text("xlnet", "XLNetModel", "XLNetConfig",
          {"vocab_size": 100, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    _text("gpt2", "GPT2LMHeadModel", "GPT2Config",
          {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "use_cache": False},
          inputs=tokens(attention_mask=_mask)),
    _text("gpt_neo", "GPTNeoForCausalLM", "GPTNeoConfig",
          {"vocab_size": 100, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "use_cache": False,
           "attention_types": [[["global", "local"], 1]], "window_size": 8, "max_position_embeddings": 64}),
    _text("opt", "OPTForCausalLM", "OPTConfig",
          {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64,
           "use_cache": False}, inputs=tokens(attention_mask=_mask)),
    _text("bloom", "BloomForCausalLM", "BloomConfig",
          {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False},
          inputs=tokens(attention_mask=_mask)),
    _causal("llama", "LlamaConfig"),
    _causal("mistral", "MistralConfig", sliding_window=8),
    _causal("mixtral", "MixtralConfig", num_local_experts=4),
    _causal("qwen2", "Qwen2Config"),
    _causal("qwen2_moe", "Qwen2MoeConfig", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
            shared_expert_intermediate_size=32),
    _causal("gemma", "GemmaConfig", head_dim=8),
    _causal("phi", "PhiConfig"),
    _text("mamba", "MambaForCausalLM", "MambaConfig",
          {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8,
           "use_cache": False}),
    _text("t5", "T5ForConditionalGeneration", "T5Config", _T5, inputs=_sequences),
    _text("bart", "BartForConditionalGeneration", "BartConfig",
          {**_PAIR, "encoder_layerdrop": 0.2, "decoder_layerdrop": 0.2}, inputs=_sequences),
    _text("pegasus", "PegasusForConditionalGeneration", "PegasusConfig", _PAIR, inputs=_sequences),
    _text("whisper", "WhisperForConditionalGeneration", "WhisperConfig",
          {**_PAIR, "num_mel_bins": 16, "max_source_positions": 16, "max_target_positions": 32},
          inputs=lambda batch: {"input_features": torch.randn(batch, 16, 32), "use_cache": False,
                                "decoder_input_ids": torch.randint(3, 100, (batch, 12))}),
    _text("wav2vec2", "Wav2Vec2Model", "Wav2Vec2Config", _SOUND,
          inputs=lambda batch: {"input_values": torch.randn(batch, 1600)}),
    _text("hubert", "HubertModel", "HubertConfig", {**_SOUND, "layerdrop": 0.2},
          inputs=lambda batch: {"input_values": torch.randn(batch, 1600)}),
    _text("vit", "ViTModel", "ViTConfig", _IMAGES, inputs=images(32, name="pixel_values")),
    _text("beit", "BeitModel", "BeitConfig", {**_IMAGES, "use_mask_token": False},
          inputs=images(32, name="pixel_values")),
    _text("swin", "SwinModel", "SwinConfig",
          {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4],
           "window_size": 4}, inputs=images(32, name="pixel_values")),
    _text("convnext", "ConvNextModel", "ConvNextConfig",
          {"hidden_sizes": [16, 32], "depths": [1, 2], "num_stages": 2},
          inputs=images(32, name="pixel_values")),
    _text("segformer", "SegformerForSemanticSegmentation", "SegformerConfig",
          {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
           "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
           "decoder_hidden_size": 16}, inputs=images(name="pixel_values")),
    _text("clip", "CLIPModel", "CLIPConfig",
          {"text_config": {**_ENCODER, "eos_token_id": 2}, "vision_config": _IMAGES, "projection_dim": 16},
          inputs=lambda batch: {"input_ids": torch.randint(3, 100, (batch, 16)),
                                "pixel_values": torch.randn(batch, 3, 32, 32)}),
    _text("perceiver", "PerceiverModel", "PerceiverConfig",
          {"d_model": 16, "num_latents": 8, "d_latents": 32, "num_blocks": 1, "num_self_attends_per_block": 2,
           "num_self_attention_heads": 4, "num_cross_attention_heads": 4},
          inputs=lambda batch: {"inputs": torch.randn(batch, 16, 16)}),
]  # fmt: skip
