"""How clean gradients are before anything is fused: python -m benchmarks.gradients --check.

Counts write-conflict edges, zero-fills and kernels of the backward passes; nothing is compiled or run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.models import MODELS, ModelSpec
from benchmarks.programs import optimised
from daceml.autodiff.gradient_report import GradientReport, gradient_report

# (network, what is counted, at most)
LIMITS = (("bert", "conflict_edges", 2), ("resnet50", "zero_fills", 0))
QUICK = ("bert", "resnet50")


def count(spec: ModelSpec) -> tuple[GradientReport, GradientReport]:
    """What forward and backward pass of a network do where every operator stays by itself."""
    parts = optimised(spec, "training", levels=False)
    return gradient_report(parts["forward"].network.sdfg), gradient_report(parts["backward"].network.sdfg)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Count write conflicts, zero-fills and kernels of backward passes.")
    parser.add_argument(
        "--models", nargs="*", choices=tuple(MODELS), help="networks; all where none is named"
    )
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    seen: dict[str, GradientReport] = {}
    for name in options.models or (QUICK if options.quick else tuple(MODELS)):
        forward, backward = count(MODELS[name])
        seen[name] = backward
        rows.append(
            {
                "case": name,
                "forward": {**asdict(forward), "kernels": forward.kernels},
                "backward": {**asdict(backward), "kernels": backward.kernels},
            }
        )
        print(
            f"{name:<15} backward: {backward.kernels} kernels before fusion ({backward.maps} loops,"
            f" {backward.calls} calls), {backward.conflict_edges} write-conflict edges,"
            f" {backward.zero_fills} zero-fills; forward: {forward.kernels} kernels",
            flush=True,
        )
    bars = [
        Bar(
            name=f"{model}: {what.replace('_', ' ')} of the backward pass",
            figure=float(getattr(seen[model], what)) if model in seen else None,
            limit=float(limit),
        )
        for model, what, limit in LIMITS
    ]
    return command.finish("gradients", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
