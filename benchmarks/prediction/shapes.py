"""Steps that nobody had run, from shapes and data sheets, beside what NeuSight measured end to end.

Transformers in float32 on V100, T4, L4 and A100. Of GPUs only the entries of the catalogue are used, and for
boards of little power what rows of *other* such boards reach. Training is forward and backward, without an
optimizer, as the set has it. On the L4 some models were also run after their loops had been fused.
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
from benchmarks.prediction.small_boards import shares, without_its_own
from daceml.prediction.model_step import ModelStep
from daceml.prediction.model_steps.fused_step import fused
from daceml.prediction.model_steps.predict_step import captured
from daceml.prediction.model_steps.step_prediction import predict_captured

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
MEAN_ERROR, LARGEST_ERROR = 0.09, 0.20
POINTS = 0.10
# Switch transformers; nothing is promised of them
NOT_PREDICTED = "which expert takes a token follows from data, and shapes do not say it"
_NAME = re.compile(
    r"(?P<model>[a-z0-9_]+)-(?P<mode>inf|train)-(?P<tokens>\d+)-(?P<batch>\d+)(?P<fused>-fusion)?\.json\.gz"
)


def measured(folder: Path) -> tuple[list[dict[str, Any]], list[Bar]]:
    """A row for each label of the models."""
    rows = list(_rows(folder))
    return rows, bars(rows)


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Errors of what was run as it is, whether limits hold, and what fusing brings."""
    rows = [row for row in rows if row["predicted_us"] is not None]
    plain = [row for row in rows if not row["fused"]]
    errors = [abs(row["predicted_us"] / row["measured_us"] - 1) for row in plain]
    outside = [not row["low_us"] <= row["measured_us"] <= row["high_us"] for row in plain]
    gains = list(_gains(rows))
    reason = "" if plain else "transformers is not installed, or no labels"
    by_device = {row["device"]: [] for row in plain}
    for row, error in zip(plain, errors, strict=True):
        by_device[row["device"]].append(error)
    note = ", ".join(f"{name} {np.mean(each):.3f}" for name, each in sorted(by_device.items()))
    wrong = [(told > 1) != (seen > 1) for told, seen in gains]
    apart = [abs(told - seen) for told, seen in gains]
    compared = f"{len(gains)} pairs" if gains else reason
    what = "end to end, no row of the GPU"
    return [
        Bar(name=f"{what}: mean error", figure=_mean(errors), limit=MEAN_ERROR, note=note or reason),
        Bar(
            name=f"{what}: largest error", figure=max(errors, default=None), limit=LARGEST_ERROR, note=reason
        ),
        Bar(name=f"{what}: labels beyond their limits", figure=_mean(outside), limit=OUTSIDE, note=reason),
        Bar(name="fused on L4: wrong winners", figure=sum(wrong) if gains else None, limit=0, note=compared),
        Bar(
            name="fused on L4: speed-up off by", figure=max(apart, default=None), limit=POINTS, note=compared
        ),
    ]


def _gains(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[float, float]]:
    """Speed-ups by fusing, predicted and measured."""
    key = ("device", "model", "mode", "tokens", "batch")
    plain = {tuple(row[name] for name in key): row for row in rows if not row["fused"]}
    for row in rows:
        other = plain.get(tuple(row[name] for name in key))
        if row["fused"] and other is not None:
            yield (
                other["predicted_us"] / row["predicted_us"],
                other["measured_us"] / row["measured_us"],
            )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    from daceml.devices.catalogue import find_device

    models = _models()
    steps: dict[tuple[str, bool, int, int], ModelStep] = {}
    boards = shares(folder) if models else {}
    for file in sorted((folder / LABELS).glob("*/*.json.gz")):
        told = _NAME.fullmatch(file.name)
        if told is None or file.parent.name not in DEVICES:
            continue
        label = json.loads(gzip.decompress(file.read_bytes()))
        if told["model"] not in models:
            yield {
                "device": DEVICES[file.parent.name],
                "model": told["model"],
                "measured_us": label["e2e_latency"] * 1e3,
                "predicted_us": None,
                "why": NOT_PREDICTED if models else "transformers is not installed",
            }
            continue
        key = (told["model"], told["mode"] == "train", int(told["tokens"]), int(told["batch"]))
        if key not in steps:
            steps[key] = _captured(models[told["model"]](), *key[1:])
        step = fused(steps[key]) if told["fused"] else steps[key]
        target = without_its_own(find_device(DEVICES[file.parent.name]), boards)
        seen = predict_captured(step, target)
        yield {
            "device": DEVICES[file.parent.name],
            "model": told["model"],
            "mode": told["mode"],
            "tokens": key[2],
            "batch": key[3],
            "fused": bool(told["fused"]),
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
    # sizes as in the set's own tables of operators
    gpt3: dict[str, Any] = {"n_positions": 2048, "use_cache": False, **how}
    gpt3_xl = t.GPT2Config(n_embd=3072, n_layer=24, n_head=24, **gpt3)
    gpt3_27 = t.GPT2Config(n_embd=2560, n_layer=32, n_head=32, **gpt3)
    opt = t.OPTConfig(
        hidden_size=2048, ffn_dim=8192, num_hidden_layers=24, num_attention_heads=32, use_cache=False, **how
    )
    return {
        "bert_large": made(t.BertForSequenceClassification, bert),
        "gpt2_large": made(t.GPT2LMHeadModel, gpt2),
        "gpt3_xl": made(t.GPT2LMHeadModel, gpt3_xl),
        "gpt3_27": made(t.GPT2LMHeadModel, gpt3_27),
        "opt_13": made(t.OPTForCausalLM, opt),
    }
