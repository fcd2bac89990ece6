"""What a search chooses, and how well its predictions rank candidates: python -m benchmarks.search.

Candidates are pruned by nothing but identity here, so that every prediction has a measurement beside it. Of
the two orders Spearman's rank correlation is printed: 1 where the prediction sorts candidates as the clock
does, 0 where it says nothing.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from scipy.stats import spearmanr
from torch import nn

import daceml
from benchmarks.quiet import claim_priority
from daceml.module.session import Session
from daceml.report.explanation.search_text import search_text
from daceml.tuning import decision_store as store
from daceml.tuning import greedy_search as greedy
from daceml.tuning import module_search as module_task
from daceml.tuning.decision import Decision, Trial
from examples.encoder_layer import EncoderLayer
from examples.mbconv import MBConv

Case = tuple[nn.Module, torch.Tensor]


def small_cnn() -> Case:
    """Two convolutions, pooling and a linear layer."""
    layers = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    return layers, torch.randn(8, 3, 32, 32)


CASES: dict[str, Callable[[], Case]] = {
    "encoder_layer": lambda: (EncoderLayer(), torch.randn(8, 64, 64)),
    "mbconv": lambda: (MBConv(), torch.randn(4, 24, 28, 28)),
    "small_cnn": small_cnn,
}


def search(case: Case, *, training: bool, budget_s: float, everything: bool) -> Decision:
    """Search for one call.

    Args:
        everything: measure what is predicted worse, too.
    """
    module, x = case
    compiled = daceml.compile(
        module.train(training), backward=training, auto_optimize="search", search_budget_s=budget_s
    )
    margin = float("inf") if everything else greedy.MARGIN
    fresh = mock.patch.object(store, "fingerprint", return_value=uuid.uuid4().hex)
    with mock.patch.object(module_task, "decide", partial(greedy.decide, margin=margin)), fresh:
        session: Session = compiled.session  # pyright: ignore
        variant, _ = session.variant((x,), {})
    assert variant.decision is not None
    return variant.decision


def rank_correlation(trials: Sequence[Trial]) -> tuple[float, int]:
    """Spearman's, of predicted and measured times over the standard recipe's, and of how many."""
    standard = trials[0].predicted_ms or 1.0
    pairs = [
        (trial.predicted_ms / standard, trial.measured.ratio)
        for trial in trials
        if trial.predicted_ms is not None and trial.measured is not None
    ]
    if len(pairs) < 3:
        return float("nan"), len(pairs)
    found: Any = spearmanr([p for p, _ in pairs], [m for _, m in pairs])
    return float(found.statistic), len(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for each search")
    parser.add_argument("--pruned", action="store_true", help="as a user's search, with pruning")
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    options = parser.parse_args()
    claim_priority()
    for name in options.cases:
        for training in (False, True):
            torch.manual_seed(0)
            decision = search(
                CASES[name](), training=training, budget_s=options.budget, everything=not options.pruned
            )
            correlation, count = rank_correlation(decision.trials)
            print(f"{name}, {'training' if training else 'inference'}")
            print(search_text(decision))
            said = f"rank correlation of predicted and measured: {correlation:.2f} ({count} programs)"
            print(f"{said}\n", flush=True)


if __name__ == "__main__":
    main()
