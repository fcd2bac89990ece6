"""One cold or warm start in a process of its own; prints a line of JSON. Started by benchmarks.startup."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from benchmarks.models.named import spec_named
from benchmarks.peers import compiled_by, training_step


def start_daceml(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    import daceml

    compiled = daceml.compile(module, backward=False)
    seconds = timed(lambda: compiled(*inputs))
    call_seconds = min(timed(lambda: compiled(*inputs)) for _ in range(3))
    from daceml.report.explanation.explanation import explain_program  # not part of what is timed

    explanation = explain_program(compiled, *inputs)
    return {
        "seconds": seconds,
        "compile_seconds": seconds - call_seconds,
        "stages_s": dict(getattr(explanation, "compile_seconds", {})),
        "kernels": explanation.counts.get("distinct_kernels"),
        "operators": len(cast(Any, compiled).onnx_model.graph.node),
    }


def start_inductor(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    return {"seconds": timed(lambda: torch.compile(module)(*inputs))}


def start_training(way: str, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    with torch.enable_grad():
        step = training_step(compiled_by(way, module.train(), training=True), module, inputs)
        seconds = timed(step)
        return {"seconds": seconds, "compile_seconds": seconds - min(timed(step) for _ in range(3))}


def start_export(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    return {"seconds": timed(lambda: torch.export.export(module, inputs))}


STARTS: dict[str, Callable[[nn.Module, tuple[torch.Tensor, ...]], dict[str, Any]]] = {
    "daceml": start_daceml,
    "inductor": start_inductor,
    "export": start_export,
    "daceml_training": partial(start_training, "daceml"),
    "inductor_training": partial(start_training, "inductor"),
}


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=tuple(STARTS))
    parser.add_argument("model", help="a model's name, reduced:NAME, resnet152 or bert_encoder:LAYERS")
    options = parser.parse_args(arguments)
    spec = spec_named(options.model)
    module, inputs = spec.module(), spec.example()
    with torch.no_grad(), spec.casting():
        # Importing torch and building the network are the user's either way; everything that the compiler
        # itself imports is part of its start.
        print(json.dumps(STARTS[options.how](module, inputs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
