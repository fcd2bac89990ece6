"""Device code of networks through nvcc: python -m benchmarks.device_code --check.

Compile every kernel of a training step and of inference, and hold it against the rules of
`benchmarks/device_code/rules.py`. NVIDIA's disassembler shows the machine code. The number of launches of a
pass stands next to what the paper of DaCeML says. Nothing runs, and no device is needed.

Without a CUDA compiler or a disassembler, a sentence says so, and bars that need it are missed. Without
--check, the run fails for cases that break, and for figures that were measured and miss their bar, unless the
miss is known (`benchmarks/device_code/known_misses.py`); not for what could not be measured. With --journal,
results are kept on disk, and a run that was stopped, or that used up its budget, continues from there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.bars import Bar, report
from benchmarks.children import Tell, run_cases
from benchmarks.device_code.cases import ARCHITECTURES, Case, cases
from benchmarks.device_code.device_bars import bars_of, launch_bars
from benchmarks.device_code.disassembler import Disassembler, find_disassembler
from benchmarks.device_code.rows import rows_of
from benchmarks.journal import Journal
from daceml.errors import DacemlError

if TYPE_CHECKING:
    from daceml.codegen_cuda.toolchain import CudaToolchain

_LIMIT_S = 1800.0  # of one network
_MEMORY_BYTES = 32 << 30
_NOT_BEGUN = "not begun"


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
    broken = False
    if tools is None:
        print(f"not compiled: {why}")
        bars = [bar for case in chosen for bar in bars_of(case, (), why)]
        launches = [bar for case in chosen for bar in launch_bars(case, (), why)]
    else:
        disassembler = find_disassembler()
        if isinstance(disassembler, str):
            print(f"machine code is not read: {disassembler}")
        journal = None if options.journal is None else Journal(options.journal, lambda row: row["case"])
        for case, seen, failure in _outcomes(chosen, tools, disassembler, journal, options.budget_s):
            print(_line(case, seen, failure), flush=True)
            broken |= bool(failure) and not failure.startswith(_NOT_BEGUN)
            rows += seen
            bars += bars_of(case, seen, failure)
            launches += launch_bars(case, seen, failure)
    code = command.finish("device_code", options, rows, [*bars, *launches])
    if options.check:
        return code
    report([*bars, *launches])
    judged = [bar for bar in (*bars, *launches) if bar.figure is not None and not bar.known]
    return int(broken or any(not bar.met for bar in judged))


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
    chosen: Sequence[Case],
    tools: CudaToolchain,
    disassembler: Disassembler | str,
    journal: Journal[str] | None,
    budget_s: float | None,
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
        rows, failure = _outcome(case, tools, disassembler)
        if journal is not None and rows:
            journal.add({"case": case.name, "rows": rows})
        yield case, rows, failure
    for case in left:
        yield case, [], f"{_NOT_BEGUN}: the budget of {budget_s:g} s was used up"


def _outcome(
    case: Case, tools: CudaToolchain, disassembler: Disassembler | str
) -> tuple[list[dict[str, Any]], str]:
    """Rows of a case in a process of its own, or why there are none."""

    def work(_: int, tell: Tell) -> None:
        try:
            tell({"rows": rows_of(case, tools, disassembler)})
        except Exception as error:
            tell({"failure": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})

    (outcome,) = run_cases(work, [0], processes=1, limit_s=_LIMIT_S, memory_bytes=_MEMORY_BYTES)
    return outcome.told.get("rows", []), outcome.told.get("failure", outcome.end)


def _line(case: Case, rows: Sequence[Mapping[str, Any]], failure: str) -> str:
    if not rows:
        return f"{case.name}: not compiled: {failure}"
    kernels = {one["kernel"] for one in rows}

    def most(key: str) -> int:
        return max((one.get(key, 0) for one in rows), default=0)

    seconds = sum(one["seconds"] for one in rows)
    least = min((one["occupancy"] for one in rows if "occupancy" in one), default=0.0)
    return (
        f"{case.name:<24} {len(kernels):>4} kernels for {', '.join(map(str, case.architectures))}:"
        f" at most {most('registers')} registers, {most('spill_bytes')} bytes spilled and"
        f" {most('stack_bytes')} of stack; at least {least:.0%} occupancy; {seconds:.1f} s of nvcc"
    )


if __name__ == "__main__":
    sys.exit(main())
