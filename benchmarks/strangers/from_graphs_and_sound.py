"""Models of torch_geometric and torchaudio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from benchmarks.strangers.stranger import Stranger


def _graph(batch: int) -> Mapping[str, Any]:
    nodes = 10 * batch
    return {"0": torch.randn(nodes, 8), "1": torch.randint(0, nodes, (2, 3 * nodes))}


def _geometric(name: str, **options: Any) -> Stranger:
    def make() -> nn.Module:
        models = import_module("torch_geometric.nn.models")

        return getattr(models, name)(8, 16, 2, 4, **options)

    return Stranger(name=f"torch_geometric {name}", make=make, inputs=_graph)


def _audio(
    name: str, make: Callable[[Any], nn.Module], inputs: Callable[[int], Mapping[str, Any]]
) -> Stranger:
    def made() -> nn.Module:
        models = import_module("torchaudio.models")

        return make(models)

    return Stranger(name=f"torchaudio {name}", make=made, inputs=inputs)


def _frames(batch: int) -> Mapping[str, Any]:
    return {"0": torch.randn(batch, 20, 16), "1": torch.tensor([20, *range(12, 11 + batch)])}


MODELS = [
    _geometric("GCN"),
    _geometric("GAT"),
    _geometric("GraphSAGE"),
    _geometric("GIN"),
    _geometric("EdgeCNN"),
    _audio("Conformer", lambda models: models.Conformer(16, 4, 32, 2, 7), _frames),
    _audio("Emformer", lambda models: models.Emformer(16, 4, 32, 2, 4, right_context_length=2),
           lambda batch: {"0": torch.randn(batch, 22, 16), "1": torch.full((batch,), 20)}),
    _audio("ConvTasNet",
           lambda models: models.ConvTasNet(2, enc_num_feats=16, msk_num_feats=8, msk_num_layers=2),
           lambda batch: {"0": torch.randn(batch, 1, 400)}),
    _audio("DeepSpeech", lambda models: models.DeepSpeech(16, n_hidden=32, n_class=10),
           lambda batch: {"0": torch.randn(batch, 1, 20, 16)}),
    _audio("Wav2Letter", lambda models: models.Wav2Letter(num_classes=10),
           lambda batch: {"0": torch.randn(batch, 1, 6400)}),
]  # fmt: skip
