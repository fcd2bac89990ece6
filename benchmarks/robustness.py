"""What bad files and wrong calls do: python -m benchmarks.robustness --count 300 --calls 100 --check.

Each damaged file is compiled, and run where that succeeds, in a process of its own. It has to be refused by
an error of daceml's, or to give the numbers of onnxruntime, or of ONNX's reference, for the same file.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.robustness_calls import CASES, subject
from benchmarks.robustness_mutations import make_file

# What may happen, good and bad; the bad ones have bars.
GOOD = ("equal", "refused", "refused alone", "as eager", "no oracle")
BAD = ("foreign exception", "crash", "timeout", "wrong")
# Codes of errors that speak of the file; another one, of the C++ compiler say, is a failure of daceml's.
REFUSALS = ("DML101", "DML102", "DML103", "DML202", "DML204", "DML402", "DML403")
# Codes of errors that speak of the call
CALL_REFUSALS = ("DML101", "DML201", "DML203", "DML204", "DML301", "DML402")
LIMIT_S = 120.0
# Different orders of summation, on values of size one and networks of ten operators
_TOLERANCE = 2e-4
_SIZE = 3
_LARGEST = 1e18
# A reason names its file; the folder is another one in every run.
_FOLDERS = re.compile(rf"{re.escape(tempfile.gettempdir())}/\w+/")


def portable(reason: str) -> str:
    """A reason without the folders of this run: its temporary ones and the cache."""
    from daceml.config import config

    return _FOLDERS.sub("", reason.replace(f"{config().cache_folder}/", ""))


def verdict(outcome: Outcome) -> tuple[str, str]:
    """What happened in one case, and the reason where there is one."""
    told = outcome.told
    if "verdict" in told:
        return told["verdict"], told.get("reason", "")
    if "ours" in told:  # daceml was done: what failed is the program that it is compared with
        return "no oracle", f"the peer: {outcome.end}"
    if outcome.end == "timeout":
        return "timeout", f"after {outcome.duration_s:.0f} s in {told.get('stage', 'the beginning')}"
    return "crash", f"{outcome.end} in {told.get('stage', 'the beginning')}"


def file_case(seed: int, tell: Tell) -> None:
    """Compile and run the damaged file of a seed."""
    with tempfile.TemporaryDirectory() as folder:
        tell({"stage": "making the file"})
        path, done = make_file(seed, Path(folder))
        tell({"stage": "compilation", "done": done})
        feeds, ours = _guarded(lambda: _ours(path, seed, tell), tell)
        if feeds is None:
            return
        tell({"ours": "ran", "stage": "onnxruntime"})
        peers = _theirs(path, feeds)
        found, reason = compare(ours, peers)
        if found == "wrong":  # onnxruntime 1.31 keeps the axes of a mean over nothing, for one
            tell({"stage": "ONNX's reference"})
            found, reason = compare(ours, [*peers, *_reference(path, feeds)])
        if found == "wrong" and _overflows(path):
            # what is left of infinities depends on the order of operations
            found, reason = "no oracle", f"weights beyond {_LARGEST:g}; {reason}"
        tell({"verdict": found, "reason": reason})


def _overflows(path: Path) -> bool:
    import onnx

    floats = (t for t in onnx.load(path).graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    return any(not (np.abs(onnx.numpy_helper.to_array(tensor)) <= _LARGEST).all() for tensor in floats)


def _guarded(run: Any, tell: Tell) -> Any:
    from daceml.errors import DacemlError

    try:
        return run()
    except DacemlError as error:
        complete = error.what and error.why and error.fix and error.code in REFUSALS
        tell({"verdict": "refused" if complete else "foreign exception", "reason": str(error)})
    except Exception as error:
        lines = traceback.format_exception(error)
        place = [
            line.strip().splitlines()[0] for line in lines if "daceml" in line or "site-packages" in line
        ]
        reason = f"{type(error).__name__}: {str(error)[:300]} at {'; '.join(place[-2:])}"
        tell({"verdict": "foreign exception", "reason": reason})
    return None, None


def _ours(path: Path, seed: int, tell: Tell) -> tuple[dict[str, np.ndarray], tuple[Any, ...]]:
    import daceml

    model = daceml.ONNXModel(path)
    records = model.program.manifest.inputs
    tell({"stage": "the call"})
    generator = torch.Generator().manual_seed(seed)
    feeds = {record.name: _example(record, generator) for record in records}
    results = model(**feeds)
    results = results if isinstance(results, tuple) else (results,)
    return _as_numpy(feeds), tuple(_as_numpy({"": value})[""] for value in results)


def _example(record: Any, generator: torch.Generator) -> torch.Tensor:
    from daceml.runtime.torch_types import DTYPES

    shape = [size if isinstance(size, int) else _SIZE for size in record.shape]
    dtype = DTYPES[record.dtype]
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def _as_numpy(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    from daceml.module.arrays.array_kinds import to_numpy

    return {name: to_numpy(tensor) for name, tensor in tensors.items()}


def _theirs(path: Path, feeds: dict[str, np.ndarray]) -> list[tuple[np.ndarray, ...]]:
    """onnxruntime's results, with and without its own optimisations; none where it refuses the file."""
    import onnxruntime

    found: list[tuple[np.ndarray, ...]] = []
    levels = onnxruntime.GraphOptimizationLevel
    for level in (levels.ORT_ENABLE_BASIC, levels.ORT_DISABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = level
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            found.append(tuple(np.asarray(value) for value in session.run(None, feeds)))
        except Exception:  # whatever it says: there is nothing to compare with
            continue
    return found


def _reference(path: Path, feeds: dict[str, np.ndarray]) -> list[tuple[np.ndarray, ...]]:
    """What ONNX's own evaluator in Python gives; nothing where it cannot run the file."""
    from onnx.reference import ReferenceEvaluator

    try:
        results = ReferenceEvaluator(str(path)).run(None, feeds)
    except Exception:  # as for onnxruntime
        return []
    return [tuple(np.asarray(value) for value in results)]  # pyright: ignore[reportGeneralTypeIssues]


def compare(ours: Sequence[np.ndarray], peers: Sequence[Sequence[np.ndarray]]) -> tuple[str, str]:
    """Whether results are those of one of the peers, where these are finite."""
    if not peers:
        return "no oracle", "onnxruntime refuses the file"
    reasons = [_difference(ours, theirs) for theirs in peers]
    return ("equal", "") if "" in reasons else ("wrong", reasons[0])


def _difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return f"result {index} is {mine.dtype} {mine.shape} instead of {other.dtype} {other.shape}"
        if mine.dtype.kind not in "fc":
            if not np.array_equal(mine, other):
                return f"result {index} differs in {int((mine != other).sum())} of {mine.size} elements"
            continue
        finite = np.isfinite(other)
        a, b = mine[finite].astype(np.float64), other[finite].astype(np.float64)
        scale = np.abs(b).max(initial=1.0)
        if not np.all(np.abs(a - b) <= _TOLERANCE * scale):  # a NaN of ours is not within anything
            return f"result {index} differs by {np.abs(a - b).max():.3g}, values up to {scale:.3g}"
    return ""


def call_case(number: int, tell: Tell) -> None:
    """Make one wrong call of the compiled form, and of its peer."""
    name, (kind, call) = list(CASES.items())[number]
    tell({"done": name, "stage": "the peer's compilation"})
    compiled, peer = subject(kind)
    tell({"stage": "the compiled call"})
    ours, our_error = _attempt(lambda: call(compiled))
    tell({"stage": "the peer's call", "ours": "done"})
    theirs, their_error = _attempt(lambda: call(peer))
    tell(dict(zip(("verdict", "reason"), compare_calls(ours, our_error, theirs, their_error), strict=True)))


def _attempt(run: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return run(), None
    except Exception as error:
        return None, error


def compare_calls(
    ours: Any, our_error: BaseException | None, theirs: Any, their_error: BaseException | None
) -> tuple[str, str]:
    """Whether a call of the compiled form ended as it may: refused, or as the peer's did.

    What is refused alone is a call that the peer can do: a limit of daceml's, which its error explains.
    """
    from daceml.errors import DacemlError

    if isinstance(our_error, DacemlError):
        if not (our_error.what and our_error.why and our_error.fix and our_error.code in CALL_REFUSALS):
            return "foreign exception", f"an error that says too little: {our_error}"
        return ("refused" if their_error is not None else "refused alone"), str(our_error)
    if our_error is not None:
        if type(our_error) is type(their_error):
            return "as eager", repr(our_error)[:200]
        return "foreign exception", f"{our_error!r:.300}, and the peer: {their_error!r:.100}"
    if their_error is not None:
        return "wrong", f"a result where the peer raises {their_error!r:.200}"
    reason = _unlike(ours, theirs)
    return ("wrong", reason) if reason else ("equal", "")


def _unlike(ours: Any, theirs: Any) -> str:
    if isinstance(ours, np.ndarray):
        ours = torch.from_numpy(ours)
    if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return "" if ours is theirs else f"{type(ours).__name__} instead of {type(theirs).__name__}"
    mine, other = (f"{t.dtype} {tuple(t.shape)} on {t.device}" for t in (ours, theirs))
    if mine != other:
        return f"{mine} instead of {other}"
    if theirs.is_meta or "Fake" in type(theirs).__name__:
        return ""
    if not torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True):
        return f"differs by {(ours - theirs).abs().max():.3g}"
    return ""


def rows_of(outcomes: Sequence[Outcome], kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for outcome in sorted(outcomes, key=lambda o: o.case):
        what, reason = verdict(outcome)
        rows.append(
            {
                "kind": kind,
                "case": outcome.case,
                "done": outcome.told.get("done", ""),
                "verdict": what,
                "reason": portable(reason),
                "duration_s": round(outcome.duration_s, 2),
            }
        )
    return rows


def bars_of(rows: Sequence[dict[str, Any]], kind: str) -> list[Bar]:
    """One bar for each bad end; a run without cases has measured nothing."""
    counts = Counter(row["verdict"] for row in rows)
    cases = "; ".join(
        f"case {r['case']} ({r['done']}): {r['reason'][:200]}" for r in rows if r["verdict"] in BAD
    )
    return [
        Bar(
            name=f"{kind}: {end}",
            figure=counts[end] if rows else None,
            limit=0,
            note=cases if counts[end] else f"of {len(rows)}",
        )
        for end in BAD
    ]


def _warm() -> None:
    """Import what every case needs, once, without starting a thread."""
    for module in ("dace", "onnxruntime"):
        import_module(module)
    from daceml.onnx_ops.registry import load_implementations

    load_implementations()


def measure(work: Any, cases: Sequence[int], kind: str, processes: int) -> list[dict[str, Any]]:
    outcomes: list[Outcome] = []
    start = time.monotonic()
    for outcome in run_cases(work, cases, processes=processes, limit_s=LIMIT_S):
        outcomes.append(outcome)
        what, reason = verdict(outcome)
        if what in BAD:
            print(f"{kind} {outcome.case} {what}: {outcome.told.get('done', '')}: {reason}", flush=True)
    counts = Counter(verdict(outcome)[0] for outcome in outcomes)
    told = ", ".join(f"{counts[end]} {end}" for end in (*GOOD, *BAD) if counts[end])
    print(f"{len(outcomes)} {kind} in {time.monotonic() - start:.0f} s: {told}", flush=True)
    return rows_of(outcomes, kind)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compile and run damaged ONNX files, and call compiled modules wrongly.")
    parser.add_argument("--count", type=int, default=None, help="damaged files; 300, with --quick 60")
    parser.add_argument("--calls", type=int, default=None, help="wrong calls; 100, with --quick 60")
    parser.add_argument("--seed", type=int, default=0, help="of the first file; the next ones count up")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args(arguments)
    count = options.count if options.count is not None else 60 if options.quick else 300
    calls = options.calls if options.calls is not None else 60 if options.quick else 100
    _warm()
    rows = measure(file_case, range(options.seed, options.seed + count), "files", options.processes)
    met = bars_of(rows, "files")
    chosen = random.Random(options.seed).sample(range(len(CASES)), min(calls, len(CASES)))
    called = measure(call_case, chosen, "calls", options.processes)
    return command.finish(
        "robustness", options, [*rows, *called], [*met, *(bars_of(called, "calls") if calls else [])]
    )


if __name__ == "__main__":
    sys.exit(main())
