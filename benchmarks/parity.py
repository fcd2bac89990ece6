"""Whether compiled networks give PyTorch's numbers: python -m benchmarks.parity --check.

`--dynamic` also compiles each network once with an open batch size; `--mode export` checks the ONNX models
of the networks in training mode, `--mode training` a training step.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.models import MODELS
from benchmarks.models.further import FURTHER
from benchmarks.parity_dynamic import CompileDynamic, CountVariants, dynamic, reason_of
from benchmarks.parity_export import ExportFunction, export
from benchmarks.parity_static import CompileFunction, CountFunction, inference
from benchmarks.parity_training import Programs, ProgramsFunction, training
from daceml.report.explanation.explanation import explain_program

if TYPE_CHECKING:
    import onnx
    import torch

NETWORKS = {**MODELS, **FURTHER}
SEEDS = (0, 1, 2)
# for training steps of all networks on a small machine
TRAINING_MINUTES = 50
# Every column of progress starts after the longest name.
_WIDTH = max(map(len, NETWORKS))


class Seen(Protocol):
    """What one case of one network came to."""

    def bars(self) -> list[Bar]: ...
    def row(self) -> dict[str, Any]: ...
    def line(self) -> str: ...


def compile_with_daceml(module: nn.Module) -> Callable[..., Any]:
    import daceml

    return daceml.compile(module, backward=False)


def count_with_daceml(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> int:

    assert isinstance(compiled, nn.Module)
    return explain_program(compiled, *inputs).counts["onnxruntime"]


def compile_dynamic_with_daceml(module: nn.Module, dynamic_shapes: Any) -> Callable[..., Any]:
    import daceml

    return daceml.compile(module, backward=False, dynamic_shapes=dynamic_shapes)


def count_variants_with_daceml(compiled: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> int:
    import daceml

    assert isinstance(compiled, daceml.DaceModule)
    # kept until they are counted: ids are of living objects only
    reached = [compiled.session.variant(inputs, {})[0] for inputs in calls]
    return len(set(map(id, reached)))


def export_with_daceml(
    module: nn.Module, inputs: tuple[Any, ...], autocast: torch.dtype | None
) -> onnx.ModelProto:
    import onnx_ir

    from daceml.frontend.capture.arguments import Arguments
    from daceml.frontend.capture.capture import capture
    from daceml.frontend.onnx_export.export import to_onnx

    captured = capture(module, Arguments(inputs, {}), autocast=(autocast, None))
    return onnx_ir.to_proto(to_onnx(captured.program))


def compile_for_training_with_daceml(module: nn.Module) -> Callable[..., Any]:
    import daceml

    return daceml.compile(module)


def programs_of_daceml(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> Programs:
    """What a call like the last one runs.

    Raises:
        CallError: the module, or its gradients, are left to PyTorch.
    """
    import daceml
    from daceml.errors import CallError

    assert isinstance(compiled, daceml.DaceModule)
    if not compiled.session.variants:  # the call before has compiled it, or given up on it
        raise CallError("the network runs eagerly", why="its log says why (DACEML_LOG=warning)", fix="")
    variant, _ = compiled.session.variant(inputs, {})
    if variant.backward is None:
        raise CallError("the network has no backward program", why="nothing requires a gradient", fix="")
    forward, backward = (
        Counter(step.kind for step in program.manifest.steps)
        for program in (variant.program, variant.backward.program)
    )
    return Programs(forward=dict(forward), backward=dict(backward))


def main(
    arguments: Sequence[str] | None = None,
    *,
    compile_module: CompileFunction = compile_with_daceml,
    count_onnxruntime: CountFunction = count_with_daceml,
    compile_dynamic: CompileDynamic = compile_dynamic_with_daceml,
    count_variants: CountVariants = count_variants_with_daceml,
    export_module: ExportFunction = export_with_daceml,
    compile_training: CompileFunction = compile_for_training_with_daceml,
    programs_of: ProgramsFunction = programs_of_daceml,
) -> int:
    options = parse(arguments)
    seeds = SEEDS[:1] if options.quick else SEEDS

    def cases(name: str) -> Iterator[tuple[str, Callable[[], Seen]]]:
        spec = NETWORKS[name]
        if options.mode == "export":
            yield name, lambda: export(spec, export_module)
            return
        if options.mode == "training":
            yield name, lambda: training(spec, compile_training, programs_of, seeds=seeds)
            return
        yield name, lambda: inference(spec, compile_module, count_onnxruntime, seeds=seeds)
        if options.dynamic:
            yield f"{name}, open batch", lambda: dynamic(spec, compile_dynamic, count_variants)

    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for name in options.models.split(","):
        for case, run in cases(name):
            row, found = observed(name, case, run)
            rows.append(row)
            bars.extend(found)
            gc.collect()  # a network's float64 copy may be held by a cycle, and the next one needs its memory
    if options.mode == "training":
        minutes = sum(row["seconds"] for row in rows) / 60
        bars.append(Bar(name="training steps, all", figure=minutes, limit=TRAINING_MINUTES, unit="min"))
    return command.finish("parity", options, rows, bars)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, with names of networks checked."""
    parser = command.parser("Compare compiled networks with eager PyTorch in float32 and float64.")
    parser.add_argument("--mode", choices=("inference", "export", "training"), default="inference")
    parser.add_argument("--dynamic", action="store_true", help="inference with an open batch size, too")
    parser.add_argument(
        "--models",
        help=f"some of {', '.join(NETWORKS)}, with commas between; without it, {', '.join(MODELS)}",
    )
    parser.add_argument("--further", action="store_true", help=f"instead of these, {', '.join(FURTHER)}")
    options = parser.parse_args(arguments)
    options.models = options.models or ",".join(FURTHER if options.further else MODELS)
    if unknown := [name for name in options.models.split(",") if name not in NETWORKS]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    if options.dynamic and options.mode != "inference":
        parser.error("--dynamic is a part of --mode inference")
    return options


def observed(name: str, case: str, run: Callable[[], Seen]) -> tuple[dict[str, Any], list[Bar]]:
    """Row and bars of one case, with a line of progress; a case that fails is a bar that is missed."""
    start = time.perf_counter()
    try:
        seen = run()
        row, bars, line = seen.row(), seen.bars(), seen.line()
    except Exception as error:
        line = f"failed: {reason_of(error)}"
        row = {"model": name, "failure": reason_of(error)}
        bars = [Bar(name=f"{case}: failures", figure=1, limit=0, note=reason_of(error))]
    seconds = time.perf_counter() - start
    label = case if case == name else "  open batch"
    print(f"{label:<{_WIDTH}} {seconds:6.1f} s  {line}", flush=True)
    return {**row, "seconds": seconds}, bars


if __name__ == "__main__":
    sys.exit(main())
