"""Which kernel of a convolution or a linear layer is faster, and from which size on: python -m
benchmarks.crossover --check.

The rules of `channels_last.py`, `packed_weights.py`, `convolution_columns.py` (daceml/transformations) and of
`daceml/onnx_ops/aten/convolution.py` quote these rows. Packed weights are for frozen modules; activations
inside a kernel are measured, not used: see there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import command, interleave
from benchmarks.bars import Bar
from benchmarks.interleave import Step, Variant
from benchmarks.rounds import Measurement

if TYPE_CHECKING:
    from daceml.onnx_ops.registry import Kind

# What a rule prefers may be this much slower: less is not resolved between two runs.
MARGIN = 1.1
CONVOLUTIONS = ("torch", "channels_last", "packed", "fused", "program", "columns", "native", "native_columns")
# What a program of one convolution may choose from, and whether it is a product of matrices.
PROGRAMS: dict[str, tuple[tuple[Kind, ...], bool]] = {
    "program": (("alias", "aten", "native"), False),
    "columns": (("alias", "aten", "native"), True),
    "native": (("alias", "native"), False),
    "native_columns": (("alias", "native"), True),
}
LINEARS = ("torch", "mkl", "packed", "fused")


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A square two-dimensional convolution, padded so that stride 1 keeps the size.

    Attributes:
        channels: of input and output.
        quick: whether a first look measures it too.
        prefers: what the rules choose, over what they choose it.
    """

    name: str
    batch: int
    channels: tuple[int, int]
    side: int
    kernel: int
    stride: int = 1
    group: int = 1
    quick: bool = False
    prefers: tuple[str, str] | None = ("channels_last", "torch")

    @property
    def products(self) -> int:
        """Multiplications."""
        side = (self.side + self.stride - 1) // self.stride
        outputs = side**2 * self.batch * self.channels[1]
        return outputs * self.channels[0] // self.group * self.kernel**2


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A matrix of rows x inputs times a weight of outputs x inputs."""

    name: str
    rows: int
    inputs: int
    outputs: int
    quick: bool = False


CASES: tuple[Convolution | Linear, ...] = (
    Convolution(name="resnet50 stem", batch=2, channels=(3, 64), side=224, kernel=7, stride=2),
    Convolution(name="resnet50 1x1 at 56", batch=2, channels=(64, 256), side=56, kernel=1, quick=True),
    Convolution(name="resnet50 3x3 at 56", batch=2, channels=(64, 64), side=56, kernel=3),
    Convolution(name="resnet50 3x3 at 14", batch=2, channels=(256, 256), side=14, kernel=3),
    Convolution(name="resnet50 1x1 at 14", batch=2, channels=(1024, 256), side=14, kernel=1),
    Convolution(name="resnet50 3x3 at 7", batch=2, channels=(512, 512), side=7, kernel=3),
    Convolution(name="resnet50 1x1 at 7", batch=2, channels=(2048, 512), side=7, kernel=1),
    Convolution(
        name="depthwise at 112", batch=2, channels=(32, 32), side=112, kernel=3, group=32, quick=True
    ),
    Convolution(
        name="depthwise stride 2 at 112", batch=2, channels=(96, 96), side=112, kernel=3, stride=2, group=96
    ),
    Convolution(name="depthwise at 14", batch=2, channels=(384, 384), side=14, kernel=3, group=384),
    Convolution(name="depthwise at 7", batch=2, channels=(960, 960), side=7, kernel=3, group=960),
    Convolution(name="mobilenetv2 1x1 at 112", batch=2, channels=(16, 96), side=112, kernel=1),
    Convolution(name="mobilenetv2 1x1 at 7", batch=2, channels=(960, 160), side=7, kernel=1),
    Convolution(name="four groups at 28", batch=2, channels=(64, 64), side=28, kernel=3, group=4),
    Convolution(name="small 3x3 at 32", batch=1, channels=(32, 32), side=32, kernel=3),
    Convolution(
        name="small groups at 16",
        batch=1,
        channels=(16, 16),
        side=16,
        kernel=3,
        group=4,
        prefers=("program", "columns"),
    ),
    Convolution(
        name="native 3x3 at 28",
        batch=1,
        channels=(64, 64),
        side=28,
        kernel=3,
        prefers=("native_columns", "native"),
    ),
    Convolution(
        name="small depthwise at 8",
        batch=1,
        channels=(32, 32),
        side=8,
        kernel=3,
        group=32,
        prefers=("native", "torch"),
    ),
    Convolution(
        name="tiny 3x3 at 16", batch=1, channels=(16, 16), side=16, kernel=3, prefers=("columns", "program")
    ),
    Convolution(
        name="tiny 1x1 at 8", batch=1, channels=(32, 32), side=8, kernel=1, prefers=("columns", "program")
    ),
    Convolution(
        name="tiny 3x3 at 8",
        batch=1,
        channels=(8, 8),
        side=8,
        kernel=3,
        quick=True,
        prefers=("columns", "program"),
    ),
    Linear(name="bert large up", rows=128, inputs=1024, outputs=4096),
    Linear(name="bert large down", rows=128, inputs=4096, outputs=1024, quick=True),
    Linear(name="bert large own", rows=128, inputs=1024, outputs=1024),
    Linear(name="eight rows", rows=8, inputs=1024, outputs=1024),
    Linear(name="one row", rows=1, inputs=1024, outputs=1024),
    Linear(name="tiny", rows=8, inputs=64, outputs=64),
)


def convolution_step(case: Convolution, how: str) -> Step:
    """One call of a kernel: torch's on row-major operands, on channels last, with the weight in oneDNN's own
    order, with an activation inside as well; or a program of daceml's, see `PROGRAMS`.
    """
    torch.manual_seed(0)
    x = torch.randn(case.batch, case.channels[0], case.side, case.side)
    w = torch.randn(case.channels[1], case.channels[0] // case.group, case.kernel, case.kernel)
    pads, strides, ones = [case.kernel // 2] * 2, [case.stride] * 2, [1, 1]
    if how in PROGRAMS:
        return partial(compiled_convolution(case, how), (x, w))
    if how != "torch":
        x = x.to(memory_format=torch.channels_last)
    if how in ("torch", "channels_last"):
        return lambda: torch.convolution(x, w, None, strides, pads, ones, False, [0, 0], case.group)
    packed = torch.ops.mkldnn._reorder_convolution_weight(w, pads, strides, ones, case.group, list(x.shape))
    call = torch.ops.mkldnn._convolution_pointwise
    activation = "none" if how == "packed" else "hardswish"
    return lambda: call(x, packed, None, pads, strides, ones, case.group, activation, [], "")


def compiled_convolution(case: Convolution, how: str) -> Callable[[tuple[torch.Tensor, ...]], object]:
    """A program of the convolution alone."""
    import tempfile
    from pathlib import Path

    import onnx.parser

    from daceml.compiler.stages.lowered_network import Optimised
    from daceml.compiler.stages.program_folder import build
    from daceml.compiler.stages.stage_timer import Stages
    from daceml.config import config
    from daceml.frontend.onnx_import.importer import import_model
    from daceml.onnx_ops.lowering import lower
    from daceml.runtime.program import Program
    from daceml.runtime.stored_program import StoredProgram
    from daceml.toolchain.cache import Cache
    from daceml.transformations.coarse.convolution_columns import use_columns
    from daceml.transformations.hardware.cpu_schedule import schedule_maps

    (ci, co), k, g, p = case.channels, case.kernel, case.group, case.kernel // 2
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float[{case.batch}, {ci}, {case.side}, {case.side}] X, float[{co}, {ci // g}, {k}, {k}] W) "
        f"=> (float[n, c, h, w] Y) {{ Y = Conv <group = {g}, strides = [{case.stride}, {case.stride}], "
        f"pads = [{p}, {p}, {p}, {p}]> (X, W) }}"
    )
    network = import_model(onnx.parser.parse_model(text), name="network")
    allowed, product = PROGRAMS[how]
    if product:
        use_columns(network, allowed=allowed, always=True)
    lowering = lower(network, allowed=allowed)
    schedule_maps(network)
    optimised = Optimised(network=network, lowering=lowering, unfused={})
    folder = Path(tempfile.mkdtemp(prefix="daceml-crossover-"))
    build(optimised, Cache(config().cache_folder), folder, Stages())
    return Program(StoredProgram(folder), {})


def linear_step(case: Linear, how: str) -> Step:
    """One call: torch's product; the weight in MKL's or oneDNN's order; an activation inside as well."""
    torch.manual_seed(0)
    x, w, b = torch.randn(case.rows, case.inputs), torch.randn(case.outputs, case.inputs), torch.zeros(1)
    b = b.expand(case.outputs).contiguous()
    if how == "torch":
        return lambda: torch.addmm(b, x, w.t())
    if how == "mkl":
        ordered = torch.ops.mkl._mkl_reorder_linear_weight(w, case.rows)
        return lambda: torch.ops.mkl._mkl_linear(x, ordered, w, b, case.rows)
    packed = torch.ops.mkldnn._reorder_linear_weight(w, case.rows)
    activation = "none" if how == "packed" else "gelu"
    call = torch.ops.mkldnn._linear_pointwise
    return lambda: call(x, packed, b, activation, [], "none")


def step(case: Convolution | Linear, how: str) -> Step:
    """What one variant's process runs."""
    torch.set_grad_enabled(False)
    return convolution_step(case, how) if isinstance(case, Convolution) else linear_step(case, how)


def rule_bar(case: Convolution, measurement: Measurement) -> Bar | None:
    """Whether what the rules choose is not slower than what they leave; None where either will do."""
    if case.prefers is None:
        return None
    chosen, other = case.prefers
    ratio = measurement.ratio(chosen, other)
    return Bar(
        name=f"{case.name}, {chosen} over {other}",
        figure=ratio.value if measurement.measured else None,
        limit=MARGIN,
        note=f"{ratio}{'' if measurement.measured else ', too few quiet rounds'}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Measure which kernel of a convolution or a linear layer is faster.")
    parser.add_argument("--case", action="append", metavar="NAME", help="only cases with this in their name")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for case in CASES:
        if (options.quick and not case.quick) or (
            options.case and not any(part in case.name for part in options.case)
        ):
            continue
        ways = CONVOLUTIONS if isinstance(case, Convolution) else LINEARS
        variants = [Variant(name=how, build=partial(step, case, how)) for how in ways]
        seen = interleave.measure(variants, rounds=6 if options.quick else 10, slice_s=0.05)
        products = case.products if isinstance(case, Convolution) else case.rows * case.inputs * case.outputs
        rows.append({"case": case.name, "products": products, **seen.row("torch")})
        bar = rule_bar(case, seen) if isinstance(case, Convolution) else None
        bars += [] if bar is None else [bar]
        ratios = ", ".join(f"{name} {seen.ratio(name, 'torch').value:.2f}" for name in ways[1:])
        print(
            f"{case.name:<26} {seen.duration_us('torch').value:9.1f} us; times that: {ratios}"
            f" ({rows[-1]['rounds_kept']} of {rows[-1]['rounds']} rounds)",
            flush=True,
        )
    return command.finish("crossover", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
