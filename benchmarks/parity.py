"""Whether compiled networks give PyTorch's numbers: python -m benchmarks.parity --check.

`--dynamic` also compiles each network once with an open batch size; `--mode export` checks the ONNX models
of the networks in training mode.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.models import MODELS
from benchmarks.parity_dynamic import CompileDynamic, CountVariants, dynamic, reason_of
from benchmarks.parity_export import ExportFunction, export
from benchmarks.parity_static import CompileFunction, CountFunction, inference

if TYPE_CHECKING:
    import onnx
    import torch

SEEDS = (0, 1, 2)
# Every column of progress starts after the longest name.
_WIDTH = max(map(len, MODELS))


class Seen(Protocol):
    """What one case of one network came to."""

    def bars(self) -> list[Bar]: ...
    def row(self) -> dict[str, Any]: ...
    def line(self) -> str: ...


def compile_with_daceml(module: nn.Module) -> Callable[..., Any]:
    import daceml

    return daceml.compile(module, backward=False)


def count_with_daceml(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> int:
    import daceml

    assert isinstance(compiled, nn.Module)
    return daceml.explain(compiled, *inputs).counts["onnxruntime"]


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

    from daceml.frontend.arguments import Arguments
    from daceml.frontend.capture import capture
    from daceml.frontend.export import to_onnx

    captured = capture(module, Arguments(inputs, {}), autocast=autocast)
    return onnx_ir.to_proto(to_onnx(captured.program))


def main(
    arguments: Sequence[str] | None = None,
    *,
    compile_module: CompileFunction = compile_with_daceml,
    count_onnxruntime: CountFunction = count_with_daceml,
    compile_dynamic: CompileDynamic = compile_dynamic_with_daceml,
    count_variants: CountVariants = count_variants_with_daceml,
    export_module: ExportFunction = export_with_daceml,
) -> int:
    options = parse(arguments)
    seeds = SEEDS[:1] if options.quick else SEEDS

    def cases(name: str) -> Iterator[tuple[str, Callable[[], Seen]]]:
        spec = MODELS[name]
        if options.mode == "export":
            yield name, lambda: export(spec, export_module)
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
    return command.finish("parity", options, rows, bars)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, with names of networks checked."""
    parser = command.parser("Compare compiled networks with eager PyTorch in float32 and float64.")
    parser.add_argument("--mode", choices=("inference", "export"), default="inference")
    parser.add_argument("--dynamic", action="store_true", help="inference with an open batch size, too")
    parser.add_argument(
        "--models", default=",".join(MODELS), help=f"some of {', '.join(MODELS)}, with commas between"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.models.split(",") if name not in MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(MODELS)}")
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
