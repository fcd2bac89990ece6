"""The encoder of BERT-large from transformers: one layer, or as many as asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec

OPERATORS_PER_LAYER = 16


def bert_layer(layer_index: int = 0, *, hidden: int = 1024, heads: int = 16) -> nn.Module:
    """One transformers BertLayer: hidden states [N, S, hidden] -> [N, S, hidden], no mask."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    options: dict[str, Any] = {"attn_implementation": "sdpa"}  # taken by name, but not declared
    config = BertConfig(
        hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden, **options
    )
    layer = BertLayer(config, layer_idx=layer_index)
    randomise_layer_norms(layer)
    return layer


class BertEncoder(nn.Module):
    """BERT layers one after the other; the same weights in none of them."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layer = nn.ModuleList(bert_layer(index) for index in range(layers))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        for layer in self.layer:
            hidden_states = cast("torch.Tensor", layer(hidden_states))
        return hidden_states


def randomise_layer_norms(module: nn.Module) -> None:
    """Give layer norms in `module`, in place, weights and biases that are not 1 and 0."""
    with torch.no_grad():
        for child in module.modules():
            if isinstance(child, nn.LayerNorm):
                child.weight.uniform_(0.5, 1.5)
                child.bias.normal_(0.0, 0.1)


def bert_encoder(layers: int) -> ModelSpec:
    """`layers` layers of BERT-large at batch 2, sequence 128; 24 of them are the whole encoder."""
    return ModelSpec(
        name=f"bert_encoder_{layers}",
        build=lambda: BertEncoder(layers),
        inputs=shapes.normal(*shapes.BERT),
        depth=OPERATORS_PER_LAYER * layers,
        source="Devlin et al., BERT (NAACL 2019), section 3, BERT-large; transformers",
    )


BERT = ModelSpec(
    name="bert",
    build=bert_layer,
    inputs=shapes.normal(*shapes.BERT),
    depth=OPERATORS_PER_LAYER,
    source="Devlin et al., BERT (NAACL 2019), section 3, BERT-large; transformers",
)

BERT_AUTOCAST = replace(BERT, name="bert_autocast", autocast=torch.bfloat16)
