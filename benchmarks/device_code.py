"""Device code of networks through nvcc: python -m benchmarks.device_code --check.

Every kernel of a training step has to compile, and those of the blocks have to do with the registers there
are. How often a step launches something is printed beside what the paper of DaCeML says. Nothing runs, and
no device is needed. Where there is no CUDA compiler, that is said, and all bars are missed; without --check,
only what was compiled and is wrong fails. With --journal, what is known is kept on disk, and a run that was
stopped, or whose budget was used up, goes on where it was.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.bars import Bar, report
from benchmarks.blocks.definitions import BLOCKS
from benchmarks.children import Tell, run_cases
from benchmarks.journal import Journal
from benchmarks.models import MODELS
from benchmarks.models.spec import ModelSpec
from daceml.devices.occupancy import LIMITS, occupancy
from daceml.errors import BuildError, DacemlError

if TYPE_CHECKING:
    from daceml.codegen_cuda.kernel_facts import KernelFacts
    from daceml.codegen_cuda.kernel_unit import KernelUnit
    from daceml.codegen_cuda.toolchain import CudaToolchain
    from daceml.runtime.plan import Plan

ARCHITECTURES = (80, 90, 100)
NETWORKS_FOR = (90,)
_LIMIT_S = 1800.0  # of one network
_MEMORY_BYTES = 32 << 30
# of one run of nvcc, whose own start takes as long as several kernels
_KERNELS_OF_A_UNIT = 24


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, and what its kernels are compiled for.

    Attributes:
        is_block: its kernels have to do without spills.
    """

    name: str
    spec: ModelSpec
    architectures: tuple[int, ...]
    is_block: bool = False


# (case, pass) -> how often it may launch something besides contractions.
LAUNCHES = {
    ("block mish", "forward"): 1,
    ("block mish", "backward"): 1,
    ("block layer_norm", "forward"): 1,
    ("block layer_norm", "backward"): 2,
    ("block softmax", "forward"): 1,
    ("block softmax", "backward"): 1,
    ("bert", "forward"): 10,
}
# What the paper of DaCeML says in words; its figures have further numbers in brackets.
_IN_THE_PAPER = {("block mish", "forward"): "in the paper, 6.1: 1, and 3 of PyTorch"}


@dataclass(frozen=True, kw_only=True)
class GeneratedKernel:
    """A kernel of a step, and in which pass it was seen first."""

    part: str
    unit: KernelUnit


@dataclass(frozen=True, kw_only=True)
class Launches:
    """What one pass launches on a device.

    Attributes:
        kernels: generated ones, each as often as it is called.
        contractions: calls of products, convolutions and attention.
        others: further calls, and copies.
    """

    kernels: int
    contractions: int
    others: int


def cases(*, quick: bool) -> list[Case]:
    """The blocks; in full, the networks, too."""
    blocks = [
        Case(name=f"block {name}", spec=block.spec, architectures=ARCHITECTURES, is_block=True)
        for name, block in BLOCKS.items()
    ]
    networks = [Case(name=name, spec=spec, architectures=NETWORKS_FOR) for name, spec in MODELS.items()]
    return blocks if quick else blocks + networks


def generated(spec: ModelSpec) -> tuple[list[GeneratedKernel], dict[str, Launches]]:
    """Device code of a training step, each distinct kernel once; and what each pass launches."""
    from benchmarks.programs import optimised
    from daceml.codegen_cuda.kernel_unit import kernel_unit
    from daceml.onnx_ops.external import external_call
    from daceml.runtime.plan import make_plan

    found: dict[str, GeneratedKernel] = {}
    launches: dict[str, Launches] = {}
    parts = optimised(spec, "training", device="cuda", architecture=NETWORKS_FOR[0])
    for part, made in parts.items():
        plan = make_plan(made.network, external_call, given=())
        launches[part] = launches_of(plan)
        for kernel in plan.kernels:
            if kernel.name not in found:
                found[kernel.name] = GeneratedKernel(part=part, unit=kernel_unit(kernel))
    return list(found.values()), launches


def launches_of(plan: Plan) -> Launches:
    """What a program launches."""
    from daceml.sdfg.external import AtenCall
    from daceml.sdfg.outline import KernelCall

    actions = [step.action for step in plan.steps]
    kernels = sum(isinstance(action, KernelCall) for action in actions)
    contractions = sum(isinstance(action, AtenCall) and action.flops != 0 for action in actions)
    return Launches(kernels=kernels, contractions=contractions, others=len(actions) - kernels - contractions)


def compiled(
    kernels: Sequence[GeneratedKernel], tools: CudaToolchain, folder: Path
) -> list[tuple[GeneratedKernel, KernelFacts | str, float]]:
    """Facts of each kernel, or why the compiler refused it; and its share of the seconds of its unit."""
    found: list[tuple[GeneratedKernel, KernelFacts | str, float]] = []
    for begin in range(0, len(kernels), _KERNELS_OF_A_UNIT):
        found += _unit(kernels[begin : begin + _KERNELS_OF_A_UNIT], tools, folder)
    return found


def _unit(
    kernels: Sequence[GeneratedKernel], tools: CudaToolchain, folder: Path
) -> Iterable[tuple[GeneratedKernel, KernelFacts | str, float]]:
    from daceml.codegen_cuda.kernel_facts import CompiledFacts
    from daceml.runtime.toolchain import include_folder

    start = time.monotonic()
    try:
        text = "\n".join(kernel.unit.text for kernel in kernels)
        said = tools.compile(text, folder, includes=(include_folder(),))
    except BuildError as error:
        if len(kernels) > 1:  # which of them
            return [one for kernel in kernels for one in _unit([kernel], tools, folder)]
        return [(kernels[0], error.why, time.monotonic() - start)]
    facts = CompiledFacts(architecture=tools.architecture, kernels=said)
    share_s = (time.monotonic() - start) / len(kernels)
    return [
        _in_shape(kernel, facts.of(kernel.unit.launched.function), share_s, tools, folder)
        for kernel in kernels
    ]


def _in_shape(
    kernel: GeneratedKernel, facts: KernelFacts | None, seconds: float, tools: CudaToolchain, folder: Path
) -> tuple[GeneratedKernel, KernelFacts | str, float]:
    """The kernel in the blocks that programs launch it in."""
    from daceml.runtime.device_objects import compiled_in_shape

    if facts is None:
        return kernel, "the assembler says nothing of it", seconds
    start = time.monotonic()
    chosen = compiled_in_shape(kernel.unit.text, facts, folder, tools)
    seconds += time.monotonic() - start
    if chosen is None:
        return kernel, facts, seconds
    launched = kernel.unit.launched.with_threads(chosen.shape.threads)
    return replace(kernel, unit=replace(kernel.unit, launched=launched)), chosen.facts, seconds


def rows_of(case: Case, tools: CudaToolchain) -> list[dict[str, Any]]:
    """A row for each kernel and architecture."""
    start = time.monotonic()
    kernels, launches = generated(case.spec)
    generated_s = time.monotonic() - start
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="daceml-device-code-") as folder:
        for architecture in case.architectures:
            aimed = replace(tools, architecture=architecture)
            for kernel, facts, seconds in compiled(kernels, aimed, Path(folder)):
                rows.append(row(case, kernel, architecture, facts) | {"seconds": round(seconds, 3)})
    share_s = round(generated_s / max(len(kernels), 1), 3)
    return [one | {"generated_s": share_s, "launches": asdict(launches[one["part"]])} for one in rows]


def row(case: Case, kernel: GeneratedKernel, architecture: int, facts: KernelFacts | str) -> dict[str, Any]:
    """What is known of a kernel: `failure` alone where the compiler refused it."""
    launched = kernel.unit.launched
    known: dict[str, Any] = {
        "case": case.name, "part": kernel.part, "architecture": architecture, "kernel": launched.function,
        "grid": list(map(str, launched.grid)), "block": list(map(str, launched.block)),
    }  # fmt: skip
    if isinstance(facts, str):
        return known | {"failure": facts}
    known |= asdict(facts)
    if architecture in LIMITS:
        threads = 1
        for extent in launched.block:
            threads *= int(extent)
        shared = facts.shared_bytes + launched.shared_bytes
        share = occupancy(architecture, threads=threads, registers=facts.registers, shared_bytes=shared).share
        known["occupancy"] = share
    return known


def bars_of(case: Case, rows: Sequence[Mapping[str, Any]], failure: str = "") -> list[Bar]:
    """Every kernel compiles; those of a block spill nothing. Without rows, `failure` says why."""
    found: list[Bar] = []
    for architecture in case.architectures:
        seen = [one for one in rows if one["architecture"] == architecture]
        refused = [one for one in seen if "failure" in one]
        name = f"{case.name}, sm_{architecture}"
        reasons = "; ".join(f"{one['kernel']}: {one['failure'].splitlines()[0]}" for one in refused)
        found.append(
            Bar(
                name=f"{name}: kernels that do not compile",
                figure=len(refused) if seen else None,
                limit=0,
                note=reasons or (f"of {len(seen)}" if seen else failure),
            )
        )
        if case.is_block:
            spilled = [one["spill_bytes"] for one in seen if "failure" not in one]
            found.append(
                Bar(
                    name=f"{name}: spilled by a thread",
                    figure=max(spilled) if spilled else None,
                    limit=0,
                    unit="bytes",
                    note="" if spilled else failure,
                )
            )
    return found


def launch_bars(case: Case, rows: Sequence[Mapping[str, Any]], failure: str = "") -> list[Bar]:
    """How often passes launch something, where that is limited."""
    return [_launch_bar(case.name, part, rows, failure) for name, part in LAUNCHES if name == case.name]


def _launch_bar(case: str, part: str, rows: Sequence[Mapping[str, Any]], failure: str) -> Bar:
    paper = _IN_THE_PAPER.get((case, part), "no number in the paper's text")
    found = (one["launches"] for one in rows if one.get("part") == part and "launches" in one)
    seen = next((Launches(**launches) for launches in found), None)
    return Bar(
        name=f"{case}, {part}: launches besides contractions",
        figure=None if seen is None else seen.kernels + seen.others,
        limit=LAUNCHES[case, part],
        note=failure if seen is None else f"and {seen.contractions} contractions; {paper}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--only", metavar="CASE", action="append", help="of all, unless some are given")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="go on from FILE, and keep rows there")
    parser.add_argument("--budget-s", type=float, help="seconds after which no further case is begun")
    options = parser.parse_args(arguments)
    known = {case.name: case for case in cases(quick=options.quick)}
    chosen = [known[name] for name in options.only or known]
    tools, why = _tools()
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    launches: list[Bar] = []
    if tools is None:
        print(f"not compiled: {why}")
        bars = [bar for case in chosen for bar in bars_of(case, (), why)]
        launches = [bar for case in chosen for bar in launch_bars(case, (), why)]
    else:
        journal = None if options.journal is None else Journal(options.journal, lambda row: row["case"])
        for case, seen, failure in _outcomes(chosen, tools, journal, options.budget_s):
            print(_line(case, seen, failure), flush=True)
            rows += seen
            bars += bars_of(case, seen, failure)
            launches += launch_bars(case, seen, failure)
    code = command.finish("device_code", options, rows, [*bars, *launches])
    if options.check:
        return code
    report([*bars, *launches])
    return int(any(bar.figure is not None and not bar.met for bar in bars))


def _tools() -> tuple[CudaToolchain | None, str]:
    """The CUDA compiler, or why it cannot be used."""
    from daceml.codegen_cuda.toolchain import architectures, cuda_toolchain

    try:
        tools = cuda_toolchain()
    except DacemlError as error:
        return None, f"{error.what}: {error.why}"
    absent = sorted(set(ARCHITECTURES) - set(architectures(tools.nvcc)))
    if absent:
        release = ".".join(map(str, tools.release))
        return (
            None,
            f"{tools.nvcc}, CUDA {release}, makes no code for {', '.join(map('sm_{}'.format, absent))}",
        )
    return tools, ""


def _outcomes(
    chosen: Sequence[Case], tools: CudaToolchain, journal: Journal[str] | None, budget_s: float | None
) -> Iterable[tuple[Case, list[dict[str, Any]], str]]:
    """Rows of each case, or why there are none; one that hangs or crashes takes no other with it."""
    done = {} if journal is None else dict(journal.rows)
    for case in chosen:
        if case.name in done:
            yield case, done[case.name]["rows"], ""
    left = [case for case in chosen if case.name not in done]
    begin = time.monotonic()
    while left and (budget_s is None or time.monotonic() - begin < budget_s):
        case = left.pop(0)
        rows, failure = _outcome(case, tools)
        if journal is not None and rows:
            journal.add({"case": case.name, "rows": rows})
        yield case, rows, failure
    for case in left:
        yield case, [], f"not begun: the budget of {budget_s:g} s was used up"


def _outcome(case: Case, tools: CudaToolchain) -> tuple[list[dict[str, Any]], str]:
    """Rows of a case in a process of its own, or why there are none."""

    def work(_: int, tell: Tell) -> None:
        try:
            tell({"rows": rows_of(case, tools)})
        except Exception as error:
            tell({"failure": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})

    (outcome,) = run_cases(work, [0], processes=1, limit_s=_LIMIT_S, memory_bytes=_MEMORY_BYTES)
    return outcome.told.get("rows", []), outcome.told.get("failure", outcome.end)


def _line(case: Case, rows: Sequence[Mapping[str, Any]], failure: str) -> str:
    if not rows:
        return f"{case.name}: not compiled: {failure}"
    kernels = {one["kernel"] for one in rows}
    registers = max((one.get("registers", 0) for one in rows), default=0)
    spilled = max((one.get("spill_bytes", 0) for one in rows), default=0)
    seconds = sum(one["seconds"] for one in rows)
    return (
        f"{case.name:<24} {len(kernels):>4} kernels for {', '.join(map(str, case.architectures))}:"
        f" {registers} registers and {spilled} bytes spilled at most, {seconds:.1f} s of nvcc"
    )


if __name__ == "__main__":
    sys.exit(main())
