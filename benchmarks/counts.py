"""What compiled networks consist of, beside what was committed: python -m benchmarks.counts --check.

Kernels, bytes moved, write-conflict edges and lines of generated C++ of small replicas of all networks, and
of the blocks. They depend on no clock and no machine, so that any difference is one of the compiler.
`--renew` writes what is seen to the baseline.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.blocks.definitions import BLOCKS
from benchmarks.models.reduced import REDUCED
from benchmarks.models.spec import ModelSpec
from benchmarks.peers import Mode
from benchmarks.programs import optimised
from daceml.autodiff.gradient_report import gradient_report

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.compiler.stages.lowered_network import Optimised

BASELINE = Path(__file__).parent / "baseline" / "counts.json"
RENEWAL = "make baseline"
QUICK = ("mish", "bert")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What one program consists of; less is better, of each.

    Attributes:
        kernels: steps of a call: generated kernels, vendor calls, copies.
        bytes_moved: every byte that a step reads or writes, once for the step.
        conflict_edges: edges by which writes to an array meet, accumulators in registers apart.
        generated_lines: of C++, in kernels and in the function that calls them; equal kernels once.
    """

    kernels: int
    bytes_moved: int
    conflict_edges: int
    generated_lines: int


# inference, forward or backward -> what it consists of
Parts = dict[str, Counts]


def cases() -> dict[str, tuple[ModelSpec, bool]]:
    """Name -> network, and whether its inference runs in train mode: replicas of networks, and blocks."""
    blocks = {f"block {name}": (block.spec, block.train_mode) for name, block in BLOCKS.items()}
    return {name: (spec, False) for name, spec in REDUCED.items()} | blocks


def counts_of(spec: ModelSpec, *, train_mode: bool = False) -> Parts:
    """Count inference, and the two programs of a training step."""
    return {
        name: counted(part)[0]
        for mode in get_args(Mode)
        for name, part in optimised(spec, mode, train_mode=train_mode).items()
    }


def counted(part: Optimised) -> tuple[Counts, str]:
    """Count one program; returns its C++, too."""
    from daceml.codegen.planning.plan import make_plan
    from daceml.compiler.stages.manifest_writer import make_manifest
    from daceml.onnx_ops.external import external_call

    plan = make_plan(part.network, external_call)
    manifest = make_manifest(plan, part.lowering, absorbed=part.absorbed, constants=(), fallbacks=())
    text = generated(plan)
    counts = Counts(
        kernels=len(manifest.steps),
        bytes_moved=sum(step.unique_bytes for step in manifest.steps),
        conflict_edges=gradient_report(part.network.sdfg).conflict_edges,
        generated_lines=len(text.splitlines()),
    )
    return counts, text


def generated(plan: Plan) -> str:
    """All C++ of a program: its kernels, equal ones once, and the function that calls them."""
    from daceml.codegen.driver import driver_text
    from daceml.codegen.kernel_source import kernel_source, signature

    sources = {kernel.name: kernel_source(kernel) for kernel in plan.kernels}
    driver = driver_text(plan, {name: signature(source) for name, source in sources.items()})
    return "\n".join([*sources.values(), driver])


def load(file: Path = BASELINE) -> dict[str, Parts]:
    """The committed counts by case.

    Raises:
        SystemExit: the file is no baseline; the message says how to write one.
    """
    try:
        rows: dict[str, dict[str, dict[str, int]]] = json.loads(file.read_text(encoding="utf-8"))
        return {case: {name: Counts(**row) for name, row in parts.items()} for case, parts in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SystemExit(f"{file} is no baseline: {error}\n  fix: {RENEWAL}") from error


def save(seen: Mapping[str, Parts], file: Path = BASELINE) -> None:
    """Write counts as a baseline: one line a program, so that a change of one is a line of a diff."""
    cases = ",\n".join(
        f"  {json.dumps(case)}: {{\n"
        + ",\n".join(f"    {json.dumps(name)}: {json.dumps(asdict(part))}" for name, part in parts.items())
        + "\n  }"
        for case, parts in seen.items()
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{{\n{cases}\n}}\n", encoding="utf-8")


def changes(before: Parts, now: Parts) -> Iterator[tuple[str, int, int]]:
    """(what, before, now) of every figure that is another one; what only one side has counts as 0."""
    for name in dict.fromkeys((*before, *now)):
        for field in fields(Counts):
            old, new = (getattr(side[name], field.name) if name in side else 0 for side in (before, now))
            if old != new:
                yield f"{name}: {field.name.replace('_', ' ')}", old, new


def verdict(case: str, committed: Parts | None, seen: Parts) -> str:
    """Why the counts of a case are not those of the baseline, for people; empty where they are."""
    renewal = f"{RENEWAL}, and commit what it changes in {BASELINE.parent.name}/{BASELINE.name}"
    if committed is None:
        return f"{case} has no baseline\n  fix: {renewal}"
    found = list(changes(committed, seen))
    if not found:
        return ""
    lines = [f"  {what} {'grew' if new > old else 'fell'} from {old} to {new}" for what, old, new in found]
    if any(new > old for _, old, new in found):
        head, fix = f"{case} is worse than its baseline", f"where it is meant, {renewal}"
    else:
        head, fix = f"{case} is better than its baseline, which is to stay true", renewal
    return "\n".join([head, *lines, f"  fix: {fix}"])


def difference_bar(case: str, committed: Parts | None, seen: Parts) -> Bar:
    """A bar on how many figures are unlike the baseline."""
    return Bar(
        name=f"{case}: figures unlike the baseline",
        figure=None if committed is None else len(list(changes(committed, seen))),
        limit=0,
        note="; ".join(line.strip() for line in verdict(case, committed, seen).splitlines()[1:]),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Count kernels, bytes, conflicts and lines; compare them with the baseline.")
    known = cases()
    parser.add_argument("--only", choices=tuple(known), action="append", help="of all, unless some are given")
    parser.add_argument("--renew", action="store_true", help="write what is seen to the baseline")
    options = parser.parse_args(arguments)
    if options.renew and (options.only or options.quick):
        parser.error("--renew writes the whole baseline: leave out --only and --quick")
    baseline = {} if options.renew else load()
    rows: list[dict[str, Any]] = []
    seen: dict[str, Parts] = {}
    bars: list[Bar] = []
    for case in options.only or (QUICK if options.quick else known):
        spec, train_mode = known[case]
        seen[case] = counts_of(spec, train_mode=train_mode)
        for name, part in seen[case].items():
            rows.append({"case": case, "part": name, **asdict(part)})
            print(
                f"{case:<24} {name:<9} {part.kernels:>4} kernels, {part.bytes_moved / 1e6:9.3f} MB,"
                f" {part.conflict_edges} conflict edges, {part.generated_lines} lines",
                flush=True,
            )
        if not options.renew:
            bars.append(difference_bar(case, baseline.get(case), seen[case]))
    if options.renew:
        save(seen)
        print(f"wrote {BASELINE}")
    return command.finish("counts", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
