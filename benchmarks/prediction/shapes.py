"""Steps that nobody had run, from shapes and data sheets alone, beside what NeuSight measured end to end.

BERT-large, GPT-2 large and OPT-1.3B in float32 on V100, T4, L4 and A100: no row of any GPU is used, only the
entries of the catalogue. Training is forward and backward, without an optimizer, as the set has it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bars import Bar
from daceml.prediction.predict_step import captured
from daceml.prediction.step import ModelStep
from daceml.prediction.step_prediction import predict_captured

if TYPE_CHECKING:
    from torch import nn

LABELS = "measurements/neusight/e2e"
OUTSIDE = 0.10  # of labels, at most, may lie outside of limits within which nine in ten are promised
DEVICES = {
    "NVIDIA_A100-PCIE-40GB": "A100-PCIE-40GB",
    "NVIDIA_L4": "L4",
    "Tesla_T4": "T4",
    "Tesla_V100-PCIE-32GB": "V100-PCIE-32GB",
}
_NAME = re.compile(r"(?P<model>[a-z0-9_]+)-(?P<mode>inf|train)-(?P<tokens>\d+)-(?P<batch>\d+)\.json\.gz")


def measured(folder: Path) -> tuple[list[dict[str, Any]], list[Bar]]:
    """A row for each label of the three models."""
    rows = list(_rows(folder / LABELS))
    return rows, bars(rows)


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """How many labels lie outside of their limits; the mean error stands beside it."""
    name = "end to end from shapes and data sheets alone: labels outside of their limits"
    if not rows:
        return [
            Bar(name=name, figure=None, limit=OUTSIDE, note="transformers is not installed, or no labels")
        ]
    errors = [abs(row["predicted_us"] / row["measured_us"] - 1) for row in rows]
    outside = [not row["low_us"] <= row["measured_us"] <= row["high_us"] for row in rows]
    note = f"{len(rows)} labels, mean error {np.mean(errors):.1%}, largest {max(errors):.1%}"
    return [Bar(name=name, figure=float(np.mean(outside)), limit=OUTSIDE, note=note)]


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    from daceml.devices.catalogue import find_device

    models = _models()
    steps: dict[tuple[str, bool, int, int], ModelStep] = {}
    for file in sorted(folder.glob("*/*.json.gz")):
        told = _NAME.fullmatch(file.name)
        if told is None or told["model"] not in models or file.parent.name not in DEVICES:
            continue
        key = (told["model"], told["mode"] == "train", int(told["tokens"]), int(told["batch"]))
        if key not in steps:
            steps[key] = _captured(models[told["model"]](), *key[1:])
        seen = predict_captured(steps[key], find_device(DEVICES[file.parent.name]))
        label = json.loads(gzip.decompress(file.read_bytes()))
        yield {
            "device": DEVICES[file.parent.name],
            "model": told["model"],
            "mode": told["mode"],
            "tokens": key[2],
            "batch": key[3],
            "measured_us": label["e2e_latency"] * 1e3,
            "predicted_us": seen.step_us,
            "low_us": seen.low_us,
            "high_us": seen.high_us,
        }


def _captured(model: nn.Module, train: bool, tokens: int, batch: int) -> ModelStep:
    import torch

    words = torch.zeros(batch, tokens, dtype=torch.int64, device="meta")
    return captured(model.train(train), {"input_ids": words}, train=train, optimizer=None)


def _models() -> dict[str, Callable[[], nn.Module]]:
    """The set's models, with attention as its version of transformers had it: step by step."""
    try:
        import torch
        import transformers as t
    except ImportError:
        return {}

    def made(kind: Any, config: Any) -> Callable[[], nn.Module]:
        def make() -> nn.Module:
            with torch.device("meta"):
                return kind(config)

        return make

    how: dict[str, Any] = {"attn_implementation": "eager"}
    bert = t.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, **how
    )
    gpt2 = t.GPT2Config(n_embd=1280, n_layer=36, n_head=20, use_cache=False, **how)
    opt = t.OPTConfig(
        hidden_size=2048, ffn_dim=8192, num_hidden_layers=24, num_attention_heads=32, use_cache=False, **how
    )
    return {
        "bert_large": made(t.BertForSequenceClassification, bert),
        "gpt2_large": made(t.GPT2LMHeadModel, gpt2),
        "opt_13": made(t.OPTForCausalLM, opt),
    }
